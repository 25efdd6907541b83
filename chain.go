package chaingql

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chaingql/chaingql/internal/blocklog"
	"github.com/chaingql/chaingql/internal/plan"
	"github.com/chaingql/chaingql/internal/xsync"
)

// A chain holds what the Handler knows about the Backend's chain. If the Backend has a new chain, the Handler replaces
// the whole value. So nothing that was read from one chain can reach a reader of the other.
type chain struct {
	suffix string // part of the suffix of all cursors: "~" and the epoch; "" if the chain has no epoch
	id     string // part of the suffixes of cursors and of the entity tags; no two chains of a process have the same
	blocks *blocklog.Log[Block]

	reads   xsync.Group[pageKey, []Block]
	lookups xsync.Group[sharedLookup, *Block]

	// down is the start of the current failure or stall; nil if there is none.
	down atomic.Pointer[time.Time]

	// replaced is set before blocks is closed because the Backend has a new chain.
	replaced atomic.Bool
}

// epoch returns the chain's epoch, or "" if it has none; see [Epocher].
func (c *chain) epoch() string { return strings.TrimPrefix(c.suffix, epochSign) }

// window returns the recent blocks. If they are not live, it makes the chain follow the Backend, so that later queries
// find them there.
func (c *chain) window() blocklog.Window[Block] {
	w := c.blocks.Window()
	if !w.Live {
		c.blocks.Start()
	}
	return w
}

// source returns the source value from which the fields of a block are resolved. Its cursor has the chain's suffix.
func (c *chain) source(b *Block) any {
	if c.suffix == "" {
		return b
	}
	return &suffixedBlock{b, c.suffix}
}

// A suffixedBlock is a block of a chain with an epoch.
type suffixedBlock struct {
	*Block
	suffix string
}

// blockOf returns the block in a source value that [chain.source] returned.
func blockOf(src any) *Block {
	switch b := src.(type) {
	case *Block:
		return b
	case *preparedBlock:
		return &b.Block
	}
	return src.(*suffixedBlock).Block
}

func isBlock(src any) bool {
	switch src.(type) {
	case *Block, *suffixedBlock, *preparedBlock:
		return true
	}
	return false
}

// addSuffixes wraps each block of p, so that its cursor ends in the suffix of chain c. It skips prepared blocks, whose
// cursors already have the suffix. If c has no suffix, addSuffixes wraps no block.
func (p *page) addSuffixes(c *chain) {
	if p.suffix = c.suffix; p.suffix == "" {
		return
	}
	for i := range p.blocks.Len() {
		if p.blocks.Prepared(i) != nil {
			continue
		}
		if p.suffixed == nil {
			p.suffixed = make([]suffixedBlock, p.blocks.Len())
		}
		p.suffixed[i] = suffixedBlock{p.blocks.At(i), p.suffix}
	}
}

// callOf returns the call that is the source value of a field. If graphql-go executes the query, there is none, and
// callOf returns a new one.
func callOf(src any) *call {
	if c, ok := src.(*call); ok {
		return c
	}
	return new(call)
}

// chainOf returns the chain from which a query reads.
func (r *resolvers) chainOf(c *call) *chain {
	if c.chain == nil {
		c.chain = r.chains.current()
	}
	return c.chain
}

// chains holds the current chain and replaces it.
type chains struct {
	epoch func() string // the Backend's Epoch; nil if the Backend is not an Epocher
	log   *slog.Logger

	// open returns the block log of a new chain. down is the time from which the source counts as failed; it is zero
	// for the first chain.
	open func(c *chain, down time.Time) *blocklog.Log[Block]

	// lost calls Hooks.SourceFailed because the chain was replaced.
	lost func(err error, wait time.Duration)

	newest atomic.Pointer[chain]

	mu      sync.Mutex
	retired []*chain // replaced chains whose calls of the Backend may still run
	closed  bool
}

func newChains(
	b Backend, log *slog.Logger, lost func(error, time.Duration),
	open func(c *chain, down time.Time) *blocklog.Log[Block],
) *chains {
	cs := &chains{log: log, lost: lost, open: open}
	if e, ok := b.(Epocher); ok {
		cs.epoch = e.Epoch
	}
	cs.newest.Store(cs.make(time.Time{}))
	return cs
}

// make returns a new chain.
func (cs *chains) make(down time.Time) *chain {
	c := &chain{id: strings.ToLower(rand.Text()[:idSize])}
	if cs.epoch != nil {
		if epoch := cs.epoch(); epoch != "" {
			c.suffix = epochSign + epoch
		}
	}
	c.blocks = cs.open(c, down)
	return c
}

// current returns the Backend's chain. If the Backend has a new epoch, current replaces the chain first.
func (cs *chains) current() *chain {
	c := cs.newest.Load() // before the epoch is read: its epoch cannot be newer than that
	if cs.epoch == nil || cs.epoch() == c.epoch() {
		return c
	}
	return cs.replace(c)
}

// replace ends the stream of an old chain, unless it has ended already, and returns the newest chain.
func (cs *chains) replace(old *chain) *chain {
	if now := cs.newest.Load(); now != old {
		return now
	}
	down := time.Now()
	if since := old.down.Load(); since != nil {
		down = *since
	}
	c := cs.make(down)
	c.down.Store(&down)
	cs.mu.Lock()
	if now := cs.newest.Load(); now != old {
		cs.mu.Unlock()
		_ = c.blocks.Close(done)
		return now
	}
	if cs.closed {
		_ = c.blocks.Close(done)
	}
	cs.retired = append(slices.DeleteFunc(cs.retired, (*chain).quiet), old)
	old.replaced.Store(true)
	cs.newest.Store(c)
	cs.mu.Unlock()
	_ = old.blocks.Close(done) // its readers end; wait waits for its calls
	cs.log.Warn("chaingql: chain replaced; all block subscriptions end",
		slog.String("epoch", c.epoch()), slog.String("previous", old.epoch()))
	cs.lost(ErrChainReplaced, 0)
	c.blocks.Start()
	return c
}

// done is a context that is done.
var done = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// quiet reports whether no call of the Backend runs for c, which must have been closed.
func (c *chain) quiet() bool { return c.blocks.Close(done) == nil }

// wait waits until the calls of the Backend for replaced chains have returned. Follow is then not called for two chains
// at once.
func (cs *chains) wait(ctx context.Context) error {
	cs.mu.Lock()
	retired := slices.Clone(cs.retired)
	cs.mu.Unlock()
	for _, c := range retired {
		if err := c.blocks.Close(ctx); err != nil {
			return err
		}
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.retired = slices.DeleteFunc(cs.retired, (*chain).quiet)
	return nil
}

// close ends the streams of all chains and waits for the calls of the Backend.
func (cs *chains) close(ctx context.Context) error {
	cs.mu.Lock()
	cs.closed = true
	c := cs.newest.Load()
	cs.mu.Unlock()
	return errors.Join(c.blocks.Close(ctx), cs.wait(ctx))
}

// verify checks the result of a call of the Backend that was made for chain c. It returns an error if the blocks may
// belong to another chain, or have cursors that clients could not send back.
func (cs *chains) verify(c *chain, err error, blocks ...Block) error {
	switch {
	case errors.Is(err, ErrChainReplaced):
		cs.replace(c)
		return epochChanged()
	case cs.current() != c:
		return epochChanged()
	case err != nil:
		return err
	}
	return c.checkCursors(blocks)
}

// maxEpoch is the maximum size of an epoch in bytes.
const maxEpoch = 32

// checkCursors returns an error if the epoch is invalid, or if a block's cursor is invalid or has the character that
// separates a cursor from its epoch.
func (c *chain) checkCursors(blocks []Block) error {
	if c.suffix != "" && !validEpoch(c.epoch()) {
		return fmt.Errorf("chaingql: Backend returned epoch %.80q: it must be 1 to %d letters and digits",
			c.epoch(), maxEpoch)
	}
	for i := range blocks {
		switch cursor := blocks[i].Cursor; {
		case !cursor.valid():
			return fmt.Errorf("chaingql: Backend returned cursor %.80q: it must be printable ASCII without spaces, "+
				"of at most %d bytes", cursor, MaxCursor)
		case c.suffix != "" && strings.Contains(string(cursor), epochSign):
			return fmt.Errorf("chaingql: Backend returned cursor %.80q: with an epoch, it must not contain %q",
				cursor, epochSign)
		}
	}
	return nil
}

func validEpoch(epoch string) bool {
	const letters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	return len(epoch) >= 1 && len(epoch) <= maxEpoch && strings.Trim(epoch, letters) == ""
}

// epochChanged returns the error for a cursor, a page or a stream of a chain that was replaced.
func epochChanged() *plan.Error {
	return &plan.Error{
		Message: "The chain was replaced: its cursors are no longer valid.", Code: codeEpochChanged,
	}
}
