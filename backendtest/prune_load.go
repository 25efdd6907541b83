package backendtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/chaingql/chaingql"
)

// A pruneLoad prunes the oldest blocks of a chain while other goroutines read pages and follow it.
type pruneLoad struct {
	all    []chaingql.Block
	begun  atomic.Int64 // blocks that may be gone
	done   atomic.Int64 // blocks that must be gone
	over   chan struct{}
	read   chan struct{} // a reader is about to read
	pruned chan struct{} // blocks went since the last Follow
	faults chan string
}

// allHoldsWhilePruned reads pages and follows from cursors around the oldest block
// while blocks are pruned repeatedly. If a Backend checks in one statement whether a
// cursor is too old and reads the page in another, it omits the blocks that are pruned
// between the two.
func allHoldsWhilePruned(t *trial) {
	t.fill(1200, 1)
	r := &pruneLoad{
		all: t.stored, over: make(chan struct{}), read: make(chan struct{}), pruned: make(chan struct{}, 1),
		faults: make(chan string, 16),
	}
	slow := t.follow(r.all[0].Cursor) // is overtaken
	var running sync.WaitGroup
	running.Go(func() { r.prune(t) })
	for reader := range 4 {
		running.Go(func() { r.pages(t, rand.New(rand.NewPCG(7, uint64(reader)))) })
	}
	defer func() {
		running.Wait()
		close(r.faults)
		for fault := range r.faults {
			t.Errorf("%s", fault)
		}
	}()
	rng := rand.New(rand.NewPCG(8, 0))
	for {
		select {
		case <-r.pruned: // no more Follows than that: their loop must leave the rest its time
			r.follows(t, rng)
			continue
		case <-r.over:
		}
		break
	}
	r.judge(slow, 1, len(r.all))
}

func (r *pruneLoad) report(format string, args ...any) {
	select {
	case r.faults <- fmt.Sprintf(format, args...):
	default: // enough is enough
	}
}

// prune drops all but the last 200 blocks, mostly one at a time, so that each Prune meets a page.
func (r *pruneLoad) prune(t *trial) {
	defer close(r.over)
	rng := rand.New(rand.NewPCG(9, 0))
	for n := 0; n < len(r.all)-200; {
		<-r.read
		n++
		if rng.IntN(8) == 0 {
			n += 2
		}
		r.begun.Store(int64(n))
		if err := t.Prune(r.all[n].Cursor); err != nil {
			r.report("Harness.Prune(%q): %v", r.all[n].Cursor, err)
			return
		}
		r.done.Store(int64(n))
		select {
		case r.pruned <- struct{}{}:
		default:
		}
	}
}

func (r *pruneLoad) pages(t *trial, rng *rand.Rand) {
	for {
		select {
		case r.read <- struct{}{}:
		case <-r.over:
			return
		}
		q := chaingql.BlocksQuery{First: 1 + rng.IntN(60)}
		if rng.IntN(4) == 0 {
			q.First, q.Last = 0, chaingql.MaxPage // down to the oldest
		}
		if rng.IntN(4) > 0 { // most often the one cursor that the next Prune makes too old
			q.After = r.all[max(0, int(r.done.Load())-1+max(0, rng.IntN(6)-3))].Cursor
		}
		if rng.IntN(3) == 0 {
			b := pick(rng, r.all)
			q.Workchain = &b.Workchain
		}
		before := int(r.done.Load())
		page, err := t.Backend.Blocks(t.ctx, q)
		if fault := r.pageFault(before, int(r.begun.Load()), q, page, err); fault != "" {
			r.report("%s, while blocks were pruned, %s", describe(q), fault)
		}
	}
}

// pageFault checks a page that was read while blocks were pruned: it must be correct
// for some moment between the call and its return.
func (r *pruneLoad) pageFault(before, after int, q chaingql.BlocksQuery, page []chaingql.Block, err error) string {
	byCursor := func(b chaingql.Block, c chaingql.Cursor) int { return strings.Compare(string(b.Cursor), string(c)) }
	moment := after
	if q.After != "" {
		place, _ := slices.BinarySearchFunc(r.all, q.After, byCursor)
		switch next := place + 1; {
		case errors.Is(err, chaingql.ErrCursorTooOld) && next < after:
			return ""
		case err == nil && next < before:
			return fmt.Sprintf("returned %d blocks and no error: it must be ErrCursorTooOld, as a block after the cursor is gone", len(page))
		}
		moment = 0 // nothing after the cursor was gone
	} else if len(page) > 0 {
		place, _ := slices.BinarySearchFunc(r.all, page[0].Cursor, byCursor)
		moment = min(after, max(before, place))
	}
	if err != nil {
		return fmt.Sprintf("returned %v", err)
	}
	return pageFault(r.all[moment:], q, page)
}

// follows reads a few blocks from cursors around the oldest block.
func (r *pruneLoad) follows(t *trial, rng *rand.Rand) {
	from := max(1, int(r.done.Load())+max(0, rng.IntN(6)-3))
	r.judge(t.follow(r.all[from-1].Cursor), from, 20)
}

// judge reads up to n blocks of a Follow, starting with block number next. The Follow
// must not omit any. It may end with ErrCursorTooOld if the next block was pruned.
func (r *pruneLoad) judge(f *reading, next, n int) {
	t := f.t
	t.Helper()
	defer f.stop()
	f.name += ", while blocks were pruned,"
	for end := min(next+n, len(r.all)); next < end; next++ {
		it := f.next("a block or ErrCursorTooOld")
		switch {
		case it.err == nil:
			f.take(it.block, r.all[next])
		case !errors.Is(it.err, chaingql.ErrCursorTooOld):
			t.Fatalf("%s ended after cursor %q with %v: it must be ErrCursorTooOld", f.name, f.last, it.err)
		case next >= int(r.begun.Load()):
			t.Fatalf("%s ended after cursor %q with ErrCursorTooOld, but the block after it was not pruned", f.name, f.last)
		default:
			return
		}
	}
}
