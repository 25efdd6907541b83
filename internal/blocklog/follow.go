package blocklog

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chaingql/chaingql/internal/guard"
)

// A Source provides the blocks. Its functions are called with a context that ends with [Log.Close], and must return
// promptly when the context is done. Recent and Follow are called one at a time, from one goroutine; the others may be
// called concurrently. A panic in one of them counts as an error of the source.
type Source[B any] struct {
	// Recent returns the newest stored blocks, at most n, ascending; none if the chain is empty. The log starts after
	// the last of them, keeps the last 100 in its window, and takes the shard heads from all of them. Recent returns
	// fewer than n blocks only if no more are stored, but a source that returns only the newest block works too.
	Recent func(ctx context.Context, n int) ([]B, error)

	// Follow yields every block after the cursor, ascending, each at least once: first the stored ones, then each new
	// one. It ends with one non-nil error. However it ends, it is called again with the cursor of the last block.
	Follow func(ctx context.Context, after string) iter.Seq2[B, error]

	// Page returns the first n stored blocks after the cursor, ascending; fewer only if no more are stored. It serves
	// Readers that are catching up. Up to 16 calls run concurrently. A call that hangs delays others, so each should
	// have a deadline of its own.
	Page func(ctx context.Context, after string, n int) ([]B, error)

	// Cursor returns the cursor of a block. It is never "".
	Cursor func(B) string

	// Gone reports whether an error of Follow, or of the calls that read and check a page (Page, Before and Between),
	// means that the source does not have the requested position (its history was pruned, or the cursor is of another
	// chain), so that it is impossible to continue from there. Other errors of these calls count as temporary. Nil
	// means that the source keeps everything.
	Gone func(error) bool

	// Between returns the first n stored blocks of before's workchain after the cursor after and before the cursor of
	// before, ascending; fewer only if no more are stored. It is called for the missing blocks if sequence numbers show
	// a gap.
	Between func(ctx context.Context, after string, before B, n int) ([]B, error)

	// Before returns the last n stored blocks before b's cursor, ascending: of all workchains, or, if shard is not nil,
	// of exactly that shard of b's workchain. It is called for the block at a cursor, and for the blocks that a new
	// shard continues. If it is nil, neither is checked.
	Before func(ctx context.Context, b B, shard *uint64, n int) ([]B, error)

	// Place returns the position of a block in its chain. Gaps are looked for only if both Place and Between are set.
	Place func(B) Place
}

// recentBlocks is the number of blocks that are read when the log starts. The window keeps the last pageBlocks. The
// blocks before them show whether one is missing at the beginning of the window, like the blocks up to a cursor for a
// catch-up.
const recentBlocks = startBlocks + 1 + pageBlocks

var (
	errEnded = errors.New("the source's Follow ended without an error")
	errHangs = errors.New("the source's Follow yields nothing, but there are newer blocks")
)

// run follows the source until the Log is closed. It waits between attempts.
func (l *Log[B]) run() {
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.taskDone()
	}()
	for attempt := 1; ; attempt++ {
		came, err := l.follow()
		if l.ctx.Err() != nil {
			return
		}
		if came {
			attempt = 1
		}
		wait := backoff(l.opts.MinBackoff, l.opts.MaxBackoff, attempt)
		l.logFailure(err, attempt, wait)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-l.ctx.Done():
			timer.Stop()
			return
		}
		l.mu.Lock()
		l.stats.Restarts++
		l.mu.Unlock()
	}
}

// follow makes one attempt: it continues after the last block, or at the head of the chain if the log has no position.
// It reports whether a new block came, and why the attempt ended.
func (l *Log[B]) follow() (came bool, err error) {
	ctx, cancel := context.WithCancelCause(l.ctx) // goroutines of this attempt end before the next begins
	defer cancel(nil)
	defer l.stale()
	defer l.endUnpositioned()
	defer l.watchSilence(cancel)()
	perr := guard.Run(func() {
		var after string
		if after, err = l.position(ctx); err != nil {
			return
		}
		for b, e := range l.src.Follow(ctx, after) {
			if e != nil {
				err = e
				// After a block, the error is not about the log's position; the next attempt shows if that is gone.
				if !came && l.src.Gone(e) {
					l.reset()
				}
				break
			}
			if ctx.Err() != nil {
				break
			}
			if l.accept(b) {
				came = true
			}
		}
	})
	switch err = errors.Join(err, perr); {
	case context.Cause(ctx) == errHangs:
		err = errHangs
	case err == nil:
		err = errEnded
	}
	return came, err
}

// accept handles the next block of the source and delivers it to every group. It reports whether the block was new.
func (l *Log[B]) accept(b B) bool {
	cursor := l.src.Cursor(b)
	newest := l.view.Load().newest.cursor // only this goroutine changes it
	if cursor <= newest {
		l.drop(b, cursor == newest)
		return false
	}
	if !l.checked() {
		l.admit(b, cursor, nil)
		return true
	}
	l.recheck()
	l.addLearned()
	at := l.src.Place(b)
	l.addWorkchain(at.Workchain)
	switch v := l.heads.check(at); v {
	case verdictGap, verdictMerge, verdictFirst:
		if !l.repair(b, cursor, at, v) {
			return l.ctx.Err() == nil
		}
	case verdictLower:
		l.mu.Lock()
		l.stats.Backwards++
		l.mu.Unlock()
	}
	l.admit(b, cursor, &at)
	return true
}

// checked reports whether sequence numbers are checked.
func (l *Log[B]) checked() bool { return l.src.Place != nil && l.src.Between != nil }

// drop counts a block that is not accepted.
func (l *Log[B]) drop(b B, newest bool) {
	l.mu.Lock()
	if newest {
		l.stats.Duplicates++
	} else {
		l.stats.OutOfOrder++
	}
	l.mu.Unlock()
	if l.opts.Events.Dropped != nil {
		l.callEvent(func() { l.opts.Events.Dropped(b) })
	}
}

// admit makes a block the newest one, and also the head of its shard if at is not nil. It then delivers the block.
func (l *Log[B]) admit(b B, cursor string, at *Place) {
	l.mu.Lock()
	if at != nil {
		l.heads.set(*at, cursor)
	}
	v := *l.view.Load()
	before := v.newest
	if before.cursor == "" {
		l.first = cursor
	}
	v.arrived, v.fresh = time.Now(), true
	v.push(b, stamp{cursor, v.arrived}, l.opts.Window)
	l.publish(&v)
	l.mu.Unlock()
	l.deliverNewest(b, before, &v)
}

// publish stores a window that ends with a new block, before any reader is woken for it. Called with mu held.
func (l *Log[B]) publish(v *view[B]) {
	l.view.Store(v)
	l.stats.Blocks++
	l.delivering = append(l.delivering, l.groups...)
	l.wakes = l.wakeReached(l.wakes)
}

// deliverNewest delivers the newest block to all groups that existed when it was published.
func (l *Log[B]) deliverNewest(b B, before mark, v *view[B]) {
	l.callWakes()
	l.blockArrived()
	l.deliverAll(b, before, v)
	clear(l.delivering) // otherwise removed groups would stay in memory until the next block
	l.delivering = l.delivering[:0]

	l.mu.Lock()
	l.delivered = v.newest
	l.mu.Unlock()
	l.blockEvent(b)
}

func (l *Log[B]) blockEvent(b B) {
	if l.opts.Events.Block != nil {
		l.callEvent(func() { l.opts.Events.Block(b) })
	}
}

// groupsPerGoroutine is the minimum number of groups per goroutine: a few groups are served without starting a
// goroutine.
const groupsPerGoroutine = 64

// deliverAll delivers the newest block to all groups in l.delivering, on all processors.
func (l *Log[B]) deliverAll(b B, before mark, v *view[B]) {
	hands := min(runtime.GOMAXPROCS(0), len(l.delivering)/groupsPerGoroutine)
	if hands < 2 {
		for _, g := range l.delivering {
			l.wakes = l.deliver(g, b, before, v, l.wakes)
		}
		return
	}
	var next atomic.Int64
	var all sync.WaitGroup
	for range hands {
		all.Go(func() {
			var wakes []func()
			for i := int(next.Add(1)) - 1; i < len(l.delivering); i = int(next.Add(1)) - 1 {
				wakes = l.deliver(l.delivering[i], b, before, v, wakes)
			}
		})
	}
	all.Wait()
}

// deliver evaluates block b, which is between the mark before and the end of v, for one group. It calls the wakes, and
// returns their empty slice for reuse.
func (l *Log[B]) deliver(g *shareGroup[B], b B, before mark, v *view[B], wakes []func()) []func() {
	payload, err := g.evaluate(b)
	switch {
	case err != nil:
		l.logPanic("evaluation of a block panicked", err, v.newest.cursor)
		l.mu.Lock()
		wakes = l.end(g, before, err, wakes)
		l.mu.Unlock()
	case payload != nil:
		wakes = g.put(payload, before, v.newest, v.arrived, wakes)
		l.shrink()
	}
	l.callAll(wakes)
	clear(wakes)
	return wakes[:0]
}

// callWakes calls and clears l.wakes. Called by the following goroutine.
func (l *Log[B]) callWakes() {
	l.callAll(l.wakes)
	clear(l.wakes)
	l.wakes = l.wakes[:0]
}

// stale marks the window as not live until a new block arrives.
func (l *Log[B]) stale() {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := *l.view.Load()
	v.fresh = false
	l.view.Store(&v)
}

// backoff returns a wait that doubles with each attempt. It is random between half and all of that, so that the hosts
// of one source do not all return at once, and always between least and most.
func backoff(least, most time.Duration, attempt int) time.Duration {
	d := least
	for ; attempt > 0 && d < most; attempt-- {
		d = min(2*d, most)
	}
	low := max(least, d/2)
	return low + rand.N(d-low+1)
}
