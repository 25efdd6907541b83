// Package memchain is a chain in memory: a [chaingql.Backend] for tests,
// demonstrations and replays. It holds what it is given, by hand (see
// [Chain.Append]) or out of a recording of a real chain (see [Load]), until it
// is told to drop it (see [Chain.Prune]).
package memchain

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/big"
	"slices"
	"strings"
	"sync"

	"github.com/chaingql/chaingql"
)

// MaxCursor is how many bytes a cursor may have at most.
const MaxCursor = 64

var errInterrupted = errors.New("memchain: interrupted")

// A Chain is a chain in memory. Make one with [New]; its methods may be called
// concurrently.
type Chain struct {
	mu       sync.RWMutex
	blocks   []chaingql.Block // ascending; what is in it is never written again, so readers share it unlocked
	index    index
	dropped  int             // how many blocks were pruned
	floor    chaingql.Cursor // the newest block that was pruned
	balances map[chaingql.Address]*big.Int
	grown    chan struct{} // closed, and made anew, whenever blocks come
	line     *line
}

// A line is what running Follows hang on until it is cut.
type line struct {
	cut   chan struct{}
	cause error // written before cut is closed
}

var (
	_ chaingql.Backend        = (*Chain)(nil)
	_ chaingql.BalanceBatcher = (*Chain)(nil)
)

// New returns an empty chain.
func New() *Chain {
	return &Chain{
		index:    make(index),
		balances: make(map[chaingql.Address]*big.Int),
		grown:    make(chan struct{}),
		line:     &line{cut: make(chan struct{})},
	}
}

// Append commits blocks behind the newest, all of them or, on error, none.
// They must ascend by cursor, and past every block that the chain ever had. A
// cursor is made of the characters that [chaingql.ChainOrder] and
// [chaingql.SeqCursor] use (0-9, a-f, m and -), at most [MaxCursor] of them;
// the error wraps [chaingql.ErrBadCursor] where one is not. The slice remains
// the caller's.
func (c *Chain) Append(blocks ...chaingql.Block) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.append(blocks)
}

func (c *Chain) append(blocks []chaingql.Block) error {
	if len(blocks) == 0 {
		return nil
	}
	newest := c.newest()
	for i, b := range blocks {
		if b.Cursor == "" || checkCursor(b.Cursor) != nil {
			return fmt.Errorf("memchain: block %d of %d has cursor %.80q: %w", i+1, len(blocks), b.Cursor, chaingql.ErrBadCursor)
		}
		if b.Cursor <= newest {
			return fmt.Errorf("memchain: block %d of %d has cursor %q, which is not past %q", i+1, len(blocks), b.Cursor, newest)
		}
		newest = b.Cursor
	}
	for i, b := range blocks {
		c.index.add(c.dropped+len(c.blocks)+i, b)
	}
	c.blocks = append(c.blocks, blocks...)
	close(c.grown)
	c.grown = make(chan struct{})
	return nil
}

func (c *Chain) newest() chaingql.Cursor {
	if len(c.blocks) == 0 {
		return ""
	}
	return c.blocks[len(c.blocks)-1].Cursor
}

// SetBalance gives an account a balance in nano-units, of which it keeps a
// copy. An account with a balance of zero is known all the same. SetBalance
// panics where the balance is nil or negative, which no account can have.
func (c *Chain) SetBalance(addr chaingql.Address, nano *big.Int) {
	if nano == nil || nano.Sign() < 0 {
		panic(fmt.Sprintf("memchain: balance %v of %v", nano, addr))
	}
	nano = new(big.Int).Set(nano)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.balances[addr] = nano
}

// Prune drops all blocks below a cursor but the newest of the chain, which is
// always kept. From then on, reading on from a cursor below the newest block that
// was dropped is [chaingql.ErrCursorTooOld], and a running Follow that has yet to
// reach that block ends with it.
func (c *Chain) Prune(before chaingql.Cursor) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(below(c.blocks, before), len(c.blocks)-1)
	if n <= 0 {
		return
	}
	c.floor = c.blocks[n-1].Cursor
	c.dropped += n
	c.blocks = without(c.blocks, n)
	c.index.prune(c.dropped)
}

// without returns s without its first n elements. It copies the rest if that is the smaller part. Otherwise the memory
// of the n elements is freed when the slice grows: a copy each time would keep the lock for long if the chain is long.
func without[T any](s []T, n int) []T {
	if n >= len(s)/2 {
		return slices.Clone(s[n:])
	}
	return s[n:]
}

// Interrupt ends every Follow that is running with err, as a source does that
// loses its connection. A nil err stands for one of Interrupt's own. Follows
// that start later are not touched.
func (c *Chain) Interrupt(err error) {
	if err == nil {
		err = errInterrupted
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.line.cause = err
	close(c.line.cut)
	c.line = &line{cut: make(chan struct{})}
}

// Balance returns a copy of the account's balance, or
// [chaingql.ErrNotFound] where SetBalance never named the account.
func (c *Chain) Balance(ctx context.Context, addr chaingql.Address) (*big.Int, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.mu.RLock()
	nano, known := c.balances[addr] // never written again, only replaced
	c.mu.RUnlock()
	if !known {
		return nil, chaingql.ErrNotFound
	}
	return new(big.Int).Set(nano), nil
}

// Balances returns the balances that accounts were given, nil for those that
// were given none.
func (c *Chain) Balances(ctx context.Context, addrs []chaingql.Address) ([]*big.Int, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	found := make([]*big.Int, len(addrs))
	for i, addr := range addrs {
		if nano, known := c.balances[addr]; known {
			found[i] = new(big.Int).Set(nano)
		}
	}
	return found, nil
}

// Blocks returns one page of the blocks, as [chaingql.Backend] describes it.
func (c *Chain) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if checkCursor(q.After) != nil || checkCursor(q.Before) != nil {
		return nil, chaingql.ErrBadCursor
	}
	f := filterOf(q)
	c.mu.RLock()
	blocks, dropped, floor, numbers := c.blocks, c.dropped, c.floor, c.index[f]
	c.mu.RUnlock()
	switch {
	case q.After != "" && q.After < floor:
		return nil, chaingql.ErrCursorTooOld
	case f.byWorkchain || f.byShard:
		return pageOf(blocks, dropped, numbers, q), nil
	}
	return chaingql.PageOf(blocks, q), nil
}

// Follow yields every block after a cursor, as [chaingql.Backend] describes
// it. It wakes as soon as blocks are appended, and holds nothing up however
// slowly its caller reads. If blocks were pruned, "" is too old.
func (c *Chain) Follow(ctx context.Context, from chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	return func(yield func(chaingql.Block, error) bool) {
		if err := checkCursor(from); err != nil {
			yield(chaingql.Block{}, err)
			return
		}
		c.mu.RLock()
		line := c.line
		c.mu.RUnlock()
		last, next := from, -1
		for {
			blocks, at, grown, err := c.since(last, next)
			if err != nil {
				yield(chaingql.Block{}, err)
				return
			}
			for _, b := range blocks {
				if err := line.err(ctx); err != nil {
					yield(chaingql.Block{}, err)
					return
				}
				if b.Cursor <= last { // last may have been past the newest block
					continue
				}
				if !yield(b, nil) {
					return
				}
				last = b.Cursor
			}
			next = at + len(blocks)
			select {
			case <-grown:
			case <-line.cut:
			case <-ctx.Done():
			}
			if err := line.err(ctx); err != nil {
				yield(chaingql.Block{}, err)
				return
			}
		}
	}
}

// since returns the blocks from number next on (they are counted from the
// first that ever was), the number of the first of them, and what is closed as
// soon as there are more. If next is negative, or pruned, the place after last is
// looked up.
func (c *Chain) since(last chaingql.Cursor, next int) (blocks []chaingql.Block, at int, grown <-chan struct{}, err error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if next < c.dropped {
		if last < c.floor {
			return nil, 0, nil, chaingql.ErrCursorTooOld
		}
		next = c.dropped + after(c.blocks, last)
	}
	return c.blocks[next-c.dropped:], next, c.grown, nil
}

func (l *line) err(ctx context.Context) error {
	select {
	case <-l.cut:
		return l.cause
	default:
		return ctx.Err()
	}
}

// below returns the number of blocks below a cursor.
func below(blocks []chaingql.Block, c chaingql.Cursor) int {
	n, _ := slices.BinarySearchFunc(blocks, c, func(b chaingql.Block, c chaingql.Cursor) int {
		return strings.Compare(string(b.Cursor), string(c))
	})
	return n
}

// after returns the number of blocks up to and including a cursor.
func after(blocks []chaingql.Block, c chaingql.Cursor) int {
	n := below(blocks, c)
	if n < len(blocks) && blocks[n].Cursor == c {
		n++
	}
	return n
}

func checkCursor(c chaingql.Cursor) error {
	if len(c) > MaxCursor || strings.Trim(string(c), "0123456789abcdefm-") != "" {
		return chaingql.ErrBadCursor
	}
	return nil
}
