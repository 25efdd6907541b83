package blocklog

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/chaingql/chaingql/internal/guard"
)

// A Source provides the blocks. The context that its functions receive is canceled by [Log.Close] at the latest; they
// must return promptly when it is done. Recent and Follow are never called concurrently; the other functions may be. A
// panic or runtime.Goexit in one of the functions counts as an error of the source.
type Source[B any] struct {
	// Recent returns the newest stored blocks in ascending order, at most n; none if the chain is empty. The Log starts
	// after the last of them, keeps the last 100 in its window, and derives the shard heads from all of them. Recent
	// should return n blocks if the chain has that many, but a source that returns only the newest block works too.
	Recent func(ctx context.Context, n int) ([]B, error)

	// Follow yields every block after the cursor in ascending order: first the stored ones, then each new one. It may
	// repeat blocks. It ends by yielding a non-nil error. However it ends, the Log calls it again with the cursor of
	// the last block.
	Follow func(ctx context.Context, after string) iter.Seq2[B, error]

	// Page returns the first n stored blocks after the cursor in ascending order; fewer only if no more are stored. The
	// Log calls it for Readers that are catching up, up to 16 times concurrently. A call that hangs delays other
	// Readers, so Page should give each call a deadline.
	Page func(ctx context.Context, after string, n int) ([]B, error)

	// Cursor returns the cursor of a block. It must not return "".
	Cursor func(B) string

	// Gone reports whether an error means that the source cannot continue from the requested position, because its
	// history was pruned or the cursor belongs to another chain. Gone is called for errors returned by Follow and by
	// the functions that read and check pages: Page, Before and Between. All other errors are treated as temporary. If
	// Gone is nil, all errors are. The first such error of Follow is also temporary if Page can read after the same
	// cursor.
	Gone func(error) bool

	// Between returns the first n stored blocks that are after the cursor after, before the block before, and in the
	// workchain of that block. They are in ascending order; Between returns fewer only if no more are stored. The Log
	// calls it for missing blocks when sequence numbers show a gap.
	Between func(ctx context.Context, after string, before B, n int) ([]B, error)

	// Before returns the last n stored blocks before b in ascending order. If shard is nil, it includes the blocks of
	// all workchains; otherwise it includes only the blocks of exactly that shard of b's workchain. The Log calls
	// Before to check that no block is missing right after a Reader's cursor, before the first known block of a shard,
	// or before a merge. If Before is nil, the Log skips the first two of these checks and uses Between for the third.
	Before func(ctx context.Context, b B, shard *uint64, n int) ([]B, error)

	// Place returns the position of a block in its chain. The Log looks for gaps in new blocks only if both Place and
	// Between are set, and for gaps in pages if Place is set.
	Place func(B) Place

	// Prepare returns a value that the window keeps with a block, for [List.Prepared], and the size of the value in
	// bytes. It may be nil, and so may the value.
	Prepare func(B) (value any, bytes int)
}

// recentBlocks is the number of blocks that the log requests from Recent when it starts. The last pageBlocks of them
// enter the window. The earlier ones show whether a block is missing at the beginning of the window.
const recentBlocks = startBlocks + 1 + pageBlocks

var (
	errEnded = errors.New("the source's Follow ended without an error")
	errHangs = errors.New("the source's Follow yields nothing although newer blocks are stored")
)

// run follows the source until the Log is closed. It waits between attempts. Comments in this package call the
// goroutine that executes it, or an attempt that it waits for, "run's goroutine".
func (l *Log[B]) run() {
	defer func() {
		l.eventMu.Lock()
		l.opts.Outage = 0
		l.sourceLost(ErrClosed, time.Now())
		if l.outageTimer != nil {
			l.outageTimer.Stop() // otherwise it would keep the log in memory
		}
		l.eventMu.Unlock()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.taskDone()
	}()
	early := false // the last wait was ended by Retry
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
		if early = l.waitToRetry(wait, !early || came); l.ctx.Err() != nil {
			return
		}
		l.mu.Lock()
		l.stats.Restarts++
		l.mu.Unlock()
	}
}

// waitToRetry waits before the next attempt. It reports whether Retry ended the wait, which it may do if mayEnd is
// true.
func (l *Log[B]) waitToRetry(wait time.Duration, mayEnd bool) (early bool) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-l.retry: // from a call of Retry that came too late for the last wait
	default:
	}
	l.retryable.Store(mayEnd)
	defer l.retryable.Store(false)
	select {
	case <-timer.C:
	case <-l.retry:
		return true
	case <-l.ctx.Done():
	}
	return false
}

// Retry makes the Log call a failed source again without waiting, because the caller has noticed that it answers. If
// the source fails again, Retry does not shorten the next wait, so that frequent calls of Retry do not defeat the
// backoff. Retry may be called for every successful query: unless the Log waits, it is one atomic load.
func (l *Log[B]) Retry() {
	if l.retryable.Load() {
		select {
		case l.retry <- struct{}{}:
		default:
		}
	}
}

// taskDone records that one of the goroutines and timers that Close waits for has ended. The caller must hold l.mu.
func (l *Log[B]) taskDone() {
	if l.busy--; l.busy == 0 {
		close(l.done)
	}
}

// follow makes one attempt to follow the source. It starts after the last block that arrived, or after the newest
// stored block if the log has no position. It reports whether a new block arrived, and returns the error that ended the
// attempt.
func (l *Log[B]) follow() (came bool, err error) {
	ctx, cancel := context.WithCancelCause(l.ctx) // canceled before the next attempt begins
	defer cancel(nil)
	defer l.stale()
	defer l.endUnpositioned()
	defer l.watchSilence(cancel)()
	perr := guard.RunApart(func() {
		var after string
		if after, err = l.followFrom(ctx); err != nil {
			return
		}
		for b, e := range l.src.Follow(ctx, after) {
			if e != nil {
				err = e
				l.stale() // before the source knows that its Follow has ended
				// An error after a new block does not concern the position; the next attempt shows if that is gone.
				if !came && l.src.Gone(e) && l.confirmGone(ctx, after) {
					l.reset()
				}
				break
			}
			if ctx.Err() != nil {
				break
			}
			if l.accept(b) {
				came, l.gone = true, false
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

// checked reports whether the log checks the sequence numbers of new blocks.
func (l *Log[B]) checked() bool { return l.src.Place != nil && l.src.Between != nil }

// drop counts and reports a block that is not accepted. newest is true if the block repeats the newest one.
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

// admit makes b the newest block of the window and, if at is not nil, the newest block of its shard. Then it delivers
// b.
func (l *Log[B]) admit(b B, cursor string, at *Place) {
	s := l.stampOf(b, cursor, time.Now())
	l.mu.Lock()
	if at != nil {
		l.heads.set(*at, cursor)
	}
	v := l.view.Load().extend()
	before := v.newest
	if before.cursor == "" {
		l.first = cursor
	}
	v.arrived, v.fresh = s.arrived, true
	v.push(b, s, l.opts.limit(), l.src.Place)
	l.publish(&v)
	l.mu.Unlock()
	l.deliverNewest(b, before, &v)
}

// deliverNewest delivers the newest block to all groups that existed when it was published.
func (l *Log[B]) deliverNewest(b B, before position, v *view[B]) {
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

// callWakes calls and clears l.wakes. Only run's goroutine may call it.
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

// backoff returns the wait after the failed attempt with the given number, counted from 1. The maximum of the wait
// doubles with each attempt, up to most. The wait is random between half of that maximum and all of it, so that the
// hosts of one source do not all call it at once. It is never shorter than least.
func backoff(least, most time.Duration, attempt int) time.Duration {
	d := least
	for ; attempt > 0 && d < most; attempt-- {
		d = min(2*d, most)
	}
	low := max(least, d/2)
	return low + rand.N(d-low+1)
}
