package blocklog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// Source is where the blocks come from. Its functions are called on a context that ends with [Log.Close], and must
// come back promptly when that is done. Recent, Follow and Between are called one at a time, from one goroutine, the
// others from several at once. A panic in one of them is a failure of the source like any other.
type Source[B any] struct {
	// Recent returns the newest stored blocks, at most n, ascending; none for an empty chain. The log starts behind
	// the last of them, has them in its window, all but the first, and knows the lines of seq_nos from them. One that
	// returns only the newest block there is will do.
	Recent func(ctx context.Context, n int) ([]B, error)

	// Follow yields every block after the cursor, ascending, each at least once, stored ones first and then each new
	// one, and ends with one non-nil error. It is called again, with the last block's cursor, however it ended.
	Follow func(ctx context.Context, after string) iter.Seq2[B, error]

	// Page returns the first n stored blocks past the cursor, ascending; fewer only where no more are stored. It is
	// for Readers that are behind. Up to 16 calls are under way at once, and one that hangs keeps others waiting, so
	// it should have a deadline of its own.
	Page func(ctx context.Context, after string, n int) ([]B, error)

	// Cursor returns a block's cursor, never "".
	Cursor func(B) string

	// Gone tells whether an error of Follow or Page says that the position handed to it is not there (history pruned,
	// or a cursor of another chain), so that going on from it is impossible. Any other error of theirs is taken to
	// pass. Nil is for a source that keeps everything.
	Gone func(error) bool

	// Between returns the first n stored blocks of before's workchain past the cursor after and short of before's own,
	// ascending; fewer only where no more are stored. It is asked for what is missing where seq_nos show a hole.
	Between func(ctx context.Context, after string, before B, n int) ([]B, error)

	// Before returns the last n stored blocks before b's cursor, ascending: of all workchains, or, if shard is not nil,
	// those of that very shard of b's workchain. It is asked for the block at a cursor, and for what a new shard
	// continues. Without it neither is checked.
	Before func(ctx context.Context, b B, shard *uint64, n int) ([]B, error)

	// Place tells where a block stands in its chain. Holes are looked for where both Place and Between are there.
	Place func(B) Place
}

const recentBlocks = pageBlocks + 1

var (
	errEnded = errors.New("the source's Follow ended without an error")
	errHangs = errors.New("the source's Follow yields nothing, but there are newer blocks")
)

// run follows the source, again and again, until the Log is closed.
func (l *Log[B]) run() {
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.left()
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

// follow is one attempt: from the last block, or from the head where there is none. It reports whether a new block
// came, and why it ended.
func (l *Log[B]) follow() (came bool, err error) {
	ctx, cancel := context.WithCancelCause(l.ctx) // whatever this attempt left running ends before the next begins
	defer cancel(nil)
	defer l.stale()
	defer l.endUnplaced()
	defer l.listen(cancel)()
	perr := guard(func() {
		var after string
		if after, err = l.position(ctx); err != nil {
			return
		}
		for b, e := range l.src.Follow(ctx, after) {
			if e != nil {
				err = e
				// After a block it was not the log's position that the source could not find: the next attempt tells.
				if !came && l.src.Gone(e) {
					l.lose()
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

// accept takes the source's next block, and gives it to every feed. It reports whether the block was new.
func (l *Log[B]) accept(b B) bool {
	cursor := l.src.Cursor(b)
	newest := l.view.Load().newest.cursor // only this goroutine moves it
	if cursor <= newest {
		l.drop(b, cursor == newest)
		return false
	}
	if !l.checked() {
		l.admit(b, cursor, nil)
		return true
	}
	l.recheck()
	at := l.src.Place(b)
	l.know(at.Workchain)
	switch v := l.lines.judge(at); v {
	case hole, merge, first:
		if !l.mend(b, cursor, at, v) {
			return l.ctx.Err() == nil
		}
	case lower:
		l.mu.Lock()
		l.stats.Backwards++
		l.mu.Unlock()
	}
	l.admit(b, cursor, &at)
	return true
}

// checked tells whether seq_nos are looked at.
func (l *Log[B]) checked() bool { return l.src.Place != nil && l.src.Between != nil }

// drop counts a block that is not taken.
func (l *Log[B]) drop(b B, newest bool) {
	l.mu.Lock()
	if newest {
		l.stats.Duplicates++
	} else {
		l.stats.OutOfOrder++
	}
	l.mu.Unlock()
	if l.opts.Events.Dropped != nil {
		l.tell(func() { l.opts.Events.Dropped(b) })
	}
}

// admit makes a block the newest one, and that of its shard if its place is given.
func (l *Log[B]) admit(b B, cursor string, at *Place) {
	l.mu.Lock()
	if at != nil {
		l.lines.take(*at, cursor)
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
	l.handRound(b, before, &v)
}

// publish shows a window with a new block at its end, before anybody is woken for it.
func (l *Log[B]) publish(v *view[B]) {
	l.view.Store(v)
	l.stats.Blocks++
	l.turn = append(l.turn, l.feeds...)
	l.wakes = l.arrive(l.wakes)
}

// handRound gives the newest block to all the feeds there were when it was published.
func (l *Log[B]) handRound(b B, before mark, v *view[B]) {
	l.callWakes()
	l.heard()
	l.deliverAll(b, before, v)
	clear(l.turn) // or feeds that are gone would be kept until the next block
	l.turn = l.turn[:0]

	l.mu.Lock()
	l.delivered = v.newest
	l.mu.Unlock()
	l.tellBlock(b)
}

func (l *Log[B]) tellBlock(b B) {
	if l.opts.Events.Block != nil {
		l.tell(func() { l.opts.Events.Block(b) })
	}
}

// feedsEach is how many feeds a goroutine serves at least, so that few are served without starting any.
const feedsEach = 64

// deliverAll gives the newest block to all feeds whose turn it is, on all processors.
func (l *Log[B]) deliverAll(b B, before mark, v *view[B]) {
	hands := min(runtime.GOMAXPROCS(0), len(l.turn)/feedsEach)
	if hands < 2 {
		for _, f := range l.turn {
			l.wakes = l.deliver(f, b, before, v, l.wakes)
		}
		return
	}
	var next atomic.Int64
	var all sync.WaitGroup
	for range hands {
		all.Go(func() {
			var wakes []func()
			for i := int(next.Add(1)) - 1; i < len(l.turn); i = int(next.Add(1)) - 1 {
				wakes = l.deliver(l.turn[i], b, before, v, wakes)
			}
		})
	}
	all.Wait()
}

// deliver gives one feed the block between a mark and the end of a window. It calls the wakes, and returns their slice
// for the next ones.
func (l *Log[B]) deliver(f *feed[B], b B, before mark, v *view[B], wakes []func()) []func() {
	payload, err := f.evaluate(b)
	switch {
	case err != nil:
		l.logPanic("evaluation of a block panicked", err, v.newest.cursor)
		l.mu.Lock()
		wakes = l.end(f, before, err, wakes)
		l.mu.Unlock()
	case payload != nil:
		wakes = f.put(payload, before, v.newest, v.arrived, wakes)
		l.spare()
	}
	l.call(wakes)
	clear(wakes)
	return wakes[:0]
}

// callWakes is for the following goroutine.
func (l *Log[B]) callWakes() {
	l.call(l.wakes)
	clear(l.wakes)
	l.wakes = l.wakes[:0]
}

// stale takes the window's claim to be live away, until a new block comes.
func (l *Log[B]) stale() {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := *l.view.Load()
	v.fresh = false
	l.view.Store(&v)
}

// backoff doubles with each attempt. It is random between a half and the whole, so that the hosts of one source do
// not come back to it all at once, and never outside least and most.
func backoff(least, most time.Duration, attempt int) time.Duration {
	d := least
	for ; attempt > 0 && d < most; attempt-- {
		d = min(2*d, most)
	}
	low := max(least, d/2)
	return low + rand.N(d-low+1)
}

// panicError is a recovered panic.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// Unwrap lets a panic with an error be told by that error.
func (e *panicError) Unwrap() error {
	err, _ := e.value.(error)
	return err
}

// guard calls f and returns its panic as a *panicError.
func guard(f func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{p, debug.Stack()}
		}
	}()
	f()
	return nil
}
