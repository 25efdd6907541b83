package backendtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chaingql/chaingql"
)

// A pruneLoad prunes the oldest blocks of a chain while other goroutines call Blocks and
// Follow.
type pruneLoad struct {
	all    []chaingql.Block
	begun  atomic.Int64  // number of blocks whose Prune has started: they may be gone
	done   atomic.Int64  // number of blocks whose Prune has returned: they must be gone
	over   chan struct{} // closed when the last Prune has returned
	read   chan struct{} // receives a value when a reader is about to call Blocks
	pruned chan struct{} // has a value if blocks were pruned since the last call of Follow
}

// correctDuringPrune calls Blocks and Follow with cursors near the oldest stored block
// while blocks are pruned repeatedly. It detects a Backend that checks in one statement
// whether a cursor is too old and reads the page in another: blocks that are pruned
// between the two statements are missing from the page without an error.
func correctDuringPrune(t *trial) {
	r := newPruneLoad(t)
	slow := t.follow(r.all[0].Cursor) // is read only after the last Prune
	wait := r.start(t, func(rng *rand.Rand) { r.readPage(t, rng) })
	defer wait()
	rng := rand.New(rand.NewPCG(8, 0))
	for {
		select {
		case <-r.pruned: // at most one Follow per Prune, to leave CPU time to the other goroutines
			r.follows(t, rng)
			continue
		case <-r.over:
		}
		break
	}
	r.checkFollow(slow, 1, len(r.all))
}

// lookupsAreCorrectDuringPrune looks up blocks near the oldest stored one while blocks are
// pruned. It detects a Backend that reads an index in one statement and the block in another.
func lookupsAreCorrectDuringPrune(t *trial) {
	ways := t.lookups()
	byTime, timed := t.Backend.(chaingql.TimeIndex)
	if len(ways) == 0 && !timed {
		return
	}
	r := newPruneLoad(t)
	wait := r.start(t, func(rng *rand.Rand) {
		if i := rng.IntN(len(ways) + 1); i < len(ways) {
			r.lookUp(t, &ways[i], rng)
		} else if timed {
			r.lookUpTime(t, byTime, rng)
		}
	})
	wait()
}

func newPruneLoad(t *trial) *pruneLoad {
	t.fill(700, 1)
	return &pruneLoad{
		all: t.stored, over: make(chan struct{}), read: make(chan struct{}), pruned: make(chan struct{}, 1),
	}
}

// start prunes blocks, and calls read on four other goroutines meanwhile. wait waits until pruning is over.
func (r *pruneLoad) start(t *trial, read func(*rand.Rand)) (wait func()) {
	var running sync.WaitGroup
	running.Go(func() { r.prune(t) })
	for reader := range 4 {
		rng := rand.New(rand.NewPCG(7, uint64(reader)))
		running.Go(func() {
			for {
				select {
				case r.read <- struct{}{}:
					read(rng)
				case <-r.over:
					return
				}
			}
		})
	}
	return running.Wait
}

// prune prunes all blocks except the last 200, mostly one at a time. It waits for a reader
// before each Prune, so that Prune runs at the same time as a call of Blocks.
func (r *pruneLoad) prune(t *trial) {
	defer close(r.over)
	rng := rand.New(rand.NewPCG(9, 0))
	for n := 0; n < len(r.all)-200; {
		select {
		case <-r.read:
		case <-t.ctx.Done(): // the readers have given up
			return
		}
		n++
		if rng.IntN(8) == 0 {
			n += 2
		}
		r.begun.Store(int64(n))
		if err := t.Prune(r.all[n].Cursor); err != nil {
			t.Errorf("Harness.Prune(%q) failed: %v", r.all[n].Cursor, err)
			return
		}
		r.done.Store(int64(n))
		select {
		case r.pruned <- struct{}{}:
		default:
		}
	}
}

// readPage reads and checks a random page.
func (r *pruneLoad) readPage(t *trial, rng *rand.Rand) {
	q := chaingql.BlocksQuery{First: 1 + rng.IntN(60)}
	if rng.IntN(4) == 0 {
		q.First, q.Last = 0, chaingql.MaxPage // a page that includes the oldest block
	}
	if rng.IntN(4) > 0 { // most often the cursor that the next Prune makes too old
		q.After = r.all[max(0, r.nearOldest(rng)-1)].Cursor
	}
	if rng.IntN(4) == 0 {
		q.Before = r.all[min(max(0, r.nearOldest(rng))+1+rng.IntN(60), len(r.all)-1)].Cursor
	}
	if rng.IntN(3) == 0 {
		b := pick(rng, r.all)
		if q.Workchain = &b.Workchain; rng.IntN(2) == 0 {
			q.Shard = &b.Shard
		}
	}
	r.checkPage(t, q)
}

// nearOldest returns the index in r.all of the oldest stored block or, less often, of one after it.
func (r *pruneLoad) nearOldest(rng *rand.Rand) int { return int(r.done.Load()) + max(0, rng.IntN(6)-3) }

// lookUp looks up the oldest stored block, or one near it, and checks the result.
func (r *pruneLoad) lookUp(t *trial, l *lookup, rng *rand.Rand) {
	i := max(0, r.nearOldest(rng)-rng.IntN(2))
	b, before := &r.all[i], int(r.done.Load())
	what := l.call(b) + ", while blocks were pruned,"
	got, err := result(t, what, mayDoEither, func() (chaingql.Block, error) { return l.find(t.ctx, b) })
	fault := l.resultFault(b, got, err, i >= before)
	if fault != "" && i < int(r.begun.Load()) { // may have been pruned during the call
		fault = l.resultFault(b, got, err, false)
	}
	if fault != "" {
		t.Errorf("%s %s", what, fault)
	}
}

// lookUpTime looks up the time of a block near the oldest stored one. The result must be correct for some moment
// between the call and its return: there are later masterchain blocks, so it cannot be ErrBlockNotFound.
func (r *pruneLoad) lookUpTime(t *trial, x chaingql.TimeIndex, rng *rand.Rand) {
	at := r.all[max(0, r.nearOldest(rng))].Time.Truncate(time.Second)
	matches := func(b chaingql.Block) bool { return b.Workchain == masterchain && !b.Time.Before(at) }
	before := int(r.done.Load())
	what := fmt.Sprintf("MasterBlockByTime(%d), while blocks were pruned,", at.Unix())
	got, err := result(t, what, mayDoEither, func() (chaingql.Block, error) { return x.MasterBlockByTime(t.ctx, at) })
	after := int(r.begun.Load())
	first, last := before+slices.IndexFunc(r.all[before:], matches), after+slices.IndexFunc(r.all[after:], matches)
	i, _ := slices.BinarySearchFunc(r.all, got.Cursor, byCursor)
	if err != nil || i < first || i > last || !matches(r.all[i]) || blockFault(got, r.all[i]) != "" {
		t.Errorf("%s returned cursor %q and error %v, but the first masterchain block at that time or later had %q, "+
			"and %q at the end of the call", what, got.Cursor, err, r.all[first].Cursor, r.all[last].Cursor)
	}
}

// checkPage reads and checks a page.
func (r *pruneLoad) checkPage(t *trial, q chaingql.BlocksQuery) {
	before := int(r.done.Load())
	page, err := t.readPage(q, mayDoEither)
	if fault := r.pageFault(before, int(r.begun.Load()), q, page, err); fault != "" {
		t.Errorf("%s, while blocks were pruned, %s", describe(q), fault)
	}
}

// pageFault checks a page that was read while blocks were pruned. The page must be correct
// for some moment between the call and its return. before is the number of blocks that
// were pruned before the call; after also counts those whose Prune had started when the
// call returned.
func (r *pruneLoad) pageFault(before, after int, q chaingql.BlocksQuery, page []chaingql.Block, err error) string {
	moment := after
	if q.After != "" {
		place, _ := slices.BinarySearchFunc(r.all, q.After, byCursor)
		switch next := place + 1; {
		case errors.Is(err, chaingql.ErrCursorTooOld) && next < after:
			return ""
		case err == nil && next < before:
			return fmt.Sprintf("returned %d blocks and no error: it must return %s", len(page), tooOldBecause)
		}
		moment = 0 // no block after the cursor was pruned
	} else if len(page) > 0 {
		place, _ := slices.BinarySearchFunc(r.all, page[0].Cursor, byCursor)
		moment = min(after, max(before, place))
	}
	if err != nil {
		return fmt.Sprintf("failed: %v", err)
	}
	return pageFault(r.all[moment:], q, page)
}

// follows calls Follow with a cursor near the oldest stored block and checks a few blocks.
func (r *pruneLoad) follows(t *trial, rng *rand.Rand) {
	from := max(1, r.nearOldest(rng))
	r.checkFollow(t.follow(r.all[from-1].Cursor), from, 20)
}

// checkFollow checks that f yields the n blocks from index next of r.all, or as many as r.all
// has. The Follow must not omit any of them. It may end with ErrCursorTooOld if the next
// block was pruned.
func (r *pruneLoad) checkFollow(f *reading, next, n int) {
	t := f.t
	defer f.stop()
	f.name += ", while blocks were pruned,"
	for end := min(next+n, len(r.all)); next < end; next++ {
		it := f.next("a block or ErrCursorTooOld")
		switch {
		case it.err == nil:
			f.take(it.block, r.all[next])
		case !errors.Is(it.err, chaingql.ErrCursorTooOld):
			t.Fatalf("%s ended after cursor %q with error %v: the only allowed error is ErrCursorTooOld",
				f.name, f.last, it.err)
		case next >= int(r.begun.Load()):
			t.Fatalf("%s ended after cursor %q with ErrCursorTooOld, but no block after this cursor was pruned",
				f.name, f.last)
		default:
			return
		}
	}
}
