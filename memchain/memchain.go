// Package memchain implements a [chaingql.Backend] in memory for tests, demonstrations
// and replays. Blocks come from [Chain.Append] or from a recording of a real chain (see
// [Load]). A chain keeps its blocks until [Chain.Prune] drops them.
package memchain

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/big"
	"math/bits"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/chaingql/chaingql"
)

// MaxCursor is the maximum length of a cursor in bytes.
const MaxCursor = 64

var errInterrupted = errors.New("memchain: Follow was interrupted by Chain.Interrupt")

// A Chain is a chain in memory. Create it with [New]. Its methods may be called
// concurrently.
type Chain struct {
	epoch    atomic.Pointer[string] // replaced under mu; one pointer stands for one chain
	mu       sync.RWMutex
	blocks   []chaingql.Block // ascending; elements are never changed, so readers need no lock to read them
	index    index
	places   places
	dropped  int             // number of pruned blocks
	floor    chaingql.Cursor // cursor of the newest pruned block
	balances map[chaingql.Address]*big.Int
	grown    chan struct{} // closed and replaced when blocks are appended
	line     *line         // connects the Follow calls that start now; Interrupt replaces it
}

// A line stands for the connection to a source. Each Follow uses the line that was current
// when it started, and ends when Interrupt closes cut.
type line struct {
	cut   chan struct{}
	cause error // set before cut is closed
}

var (
	_ chaingql.Backend        = (*Chain)(nil)
	_ chaingql.BalanceBatcher = (*Chain)(nil)
	_ chaingql.HashIndex      = (*Chain)(nil)
	_ chaingql.SeqNoIndex     = (*Chain)(nil)
	_ chaingql.TimeIndex      = (*Chain)(nil)
	_ chaingql.Epocher        = (*Chain)(nil)
)

// New returns an empty chain.
func New() *Chain {
	c := &Chain{
		index:    make(index),
		places:   newPlaces(),
		balances: make(map[chaingql.Address]*big.Int),
		grown:    make(chan struct{}),
		line:     &line{cut: make(chan struct{})},
	}
	c.epoch.Store(new(string))
	return c
}

// Append adds blocks to the end of the chain. Their cursors must ascend, and be greater
// than the cursor of every block that the chain ever had. If Append returns an error, the
// chain is unchanged.
//
// A cursor has 1 to [MaxCursor] of the characters that [chaingql.ChainOrder] and
// [chaingql.SeqCursor] use: 0-9, a-f, m and -. The error for any other cursor wraps
// [chaingql.ErrBadCursor]. Append does not keep the slice.
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
		if b.Cursor == "" || !valid(b.Cursor) {
			return fmt.Errorf("memchain: block %d of %d has cursor %.80q: %w",
				i+1, len(blocks), b.Cursor, chaingql.ErrBadCursor)
		}
		if b.Cursor <= newest {
			return fmt.Errorf("memchain: block %d of %d has cursor %q, "+
				"which is not greater than the previous cursor %q", i+1, len(blocks), b.Cursor, newest)
		}
		newest = b.Cursor
	}
	for i, b := range blocks {
		c.index.add(c.dropped+len(c.blocks)+i, b)
		c.places.add(c.dropped+len(c.blocks)+i, &b)
	}
	c.blocks = append(c.blocks, blocks...)
	close(c.grown)
	c.grown = make(chan struct{})
	return nil
}

// newest returns the cursor of the newest block, or "" if the chain is empty.
func (c *Chain) newest() chaingql.Cursor {
	if len(c.blocks) == 0 {
		return ""
	}
	return c.blocks[len(c.blocks)-1].Cursor
}

// SetBalance sets the balance of an account in nano-units. It copies nano. If nano is
// zero, the account exists and [Chain.Balance] returns zero instead of
// [chaingql.ErrNotFound]. SetBalance panics if nano is nil or negative.
func (c *Chain) SetBalance(addr chaingql.Address, nano *big.Int) {
	if nano == nil || nano.Sign() < 0 {
		panic(fmt.Sprintf("memchain: SetBalance of account %v: invalid balance %v", addr, nano))
	}
	nano = new(big.Int).Set(nano)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.balances[addr] = nano
}

// Prune drops all blocks with a cursor less than before, except for the newest block of
// the chain. Afterwards, Blocks and Follow return [chaingql.ErrCursorTooOld] for every
// cursor that is less than the cursor of the newest dropped block. A running Follow that
// has not read that block ends with the same error; it may first yield blocks that it read
// before Prune.
func (c *Chain) Prune(before chaingql.Cursor) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(below(c.blocks, before), len(c.blocks)-1)
	if n <= 0 {
		return
	}
	c.floor = c.blocks[n-1].Cursor
	c.places.prune(c.blocks[:n], c.dropped)
	c.dropped += n
	c.blocks = without(c.blocks, n)
	c.index.prune(c.dropped)
}

// without returns s without its first n elements. If at most about half of s remains, without
// copies the remaining elements and the old memory is freed. Otherwise the memory of the n
// elements is freed when append next reallocates the slice: copying a long chain on each
// call would hold the lock for too long.
func without[T any](s []T, n int) []T {
	if n >= len(s)/2 {
		return slices.Clone(s[n:])
	}
	return s[n:]
}

// Interrupt ends every running Follow with err, like a source that loses its connection.
// If err is nil, a default error is used. Interrupt does not affect calls of Follow that
// start later.
func (c *Chain) Interrupt(err error) {
	if err == nil {
		err = errInterrupted
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.interrupt(err)
}

func (c *Chain) interrupt(err error) {
	c.line.cause = err
	close(c.line.cut)
	c.line = &line{cut: make(chan struct{})}
}

// Balance returns a copy of the account's balance. It returns [chaingql.ErrNotFound] if
// neither [Chain.SetBalance] nor [Chain.Add] has set the balance of the account.
func (c *Chain) Balance(ctx context.Context, addr chaingql.Address) (*big.Int, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.mu.RLock()
	nano, known := c.balances[addr] // the big.Int is never changed, only replaced
	c.mu.RUnlock()
	if !known {
		return nil, chaingql.ErrNotFound
	}
	return clone(nano), nil
}

// clone returns a copy of n. Up to 64 bits, the copy takes one allocation.
func clone(n *big.Int) *big.Int {
	var c struct {
		big.Int
		words [64 / bits.UintSize]big.Word
	}
	return c.SetBits(c.words[:0]).Set(n)
}

// Balances returns copies of the balances of addrs, in the same order. The balance of an
// unknown account is nil.
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

// Blocks returns the page of blocks that q selects, as [chaingql.Backend] specifies.
func (c *Chain) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !valid(q.After) || !valid(q.Before) {
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

// Follow yields every block after the cursor from, as [chaingql.Backend] specifies. It
// yields new blocks as soon as they are appended. A slow caller delays neither Append nor
// any other caller. If any block was pruned, the cursor "" is too old.
func (c *Chain) Follow(ctx context.Context, from chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	epoch := c.epoch.Load()
	return func(yield func(chaingql.Block, error) bool) {
		if !valid(from) {
			yield(chaingql.Block{}, chaingql.ErrBadCursor)
			return
		}
		c.mu.RLock()
		line := c.line
		c.mu.RUnlock()
		last, next := from, -1
		for {
			blocks, at, grown, err := c.since(epoch, last, next)
			if err != nil {
				yield(chaingql.Block{}, err)
				return
			}
			for _, b := range blocks {
				if err := line.err(ctx); err != nil {
					yield(chaingql.Block{}, err)
					return
				}
				if b.Cursor <= last { // possible only if from was after the newest block
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

// since returns the blocks of the chain with this epoch from number next on, the number of the first of these blocks,
// and a channel that is closed when more blocks are appended. Numbers count all blocks that
// the chain ever had, from 0. If next is negative or the block with that number was pruned,
// since returns the blocks after the cursor last instead.
func (c *Chain) since(
	epoch *string, last chaingql.Cursor, next int,
) (blocks []chaingql.Block, at int, grown <-chan struct{}, err error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if epoch != c.epoch.Load() {
		return nil, 0, nil, chaingql.ErrChainReplaced
	}
	if next < c.dropped {
		if last < c.floor {
			return nil, 0, nil, chaingql.ErrCursorTooOld
		}
		next = c.dropped + upTo(c.blocks, last)
	}
	return c.blocks[next-c.dropped:], next, c.grown, nil
}

// err returns the cause of the interruption if l was cut, and ctx.Err() otherwise.
func (l *line) err(ctx context.Context) error {
	select {
	case <-l.cut:
		return l.cause
	default:
		return ctx.Err()
	}
}

// below returns the number of blocks with a cursor less than c.
func below(blocks []chaingql.Block, c chaingql.Cursor) int {
	// slices.BinarySearchFunc would copy a block in each step.
	return sort.Search(len(blocks), func(i int) bool { return blocks[i].Cursor >= c })
}

// upTo returns the number of blocks with a cursor less than or equal to c.
func upTo(blocks []chaingql.Block, c chaingql.Cursor) int {
	n := below(blocks, c)
	if n < len(blocks) && blocks[n].Cursor == c {
		n++
	}
	return n
}

// valid reports whether c is not too long and has only characters that the cursors of a Chain have. The empty cursor is
// valid.
func valid(c chaingql.Cursor) bool {
	return len(c) <= MaxCursor && strings.Trim(string(c), "0123456789abcdefm-") == ""
}
