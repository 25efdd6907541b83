package blocklog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime/debug"
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

	// Place tells where a block stands in its chain. Holes are looked for where both Place and Between are there.
	Place func(B) Place
}

const recentBlocks = pageBlocks + 1

var errEnded = errors.New("the source's Follow ended without an error")

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
	ctx, cancel := context.WithCancel(l.ctx) // whatever this attempt left running ends before the next begins
	defer cancel()
	defer l.stale()
	defer l.listen()()
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
	if err = errors.Join(err, perr); err == nil {
		err = errEnded
	}
	return came, err
}

// position returns where to follow from: the last block, or else the source's newest.
func (l *Log[B]) position(ctx context.Context) (string, error) {
	l.mu.Lock()
	cursor, positioned := l.view.Load().newest.cursor, l.positioned
	l.mu.Unlock()
	if positioned {
		return cursor, nil
	}
	blocks, err := l.src.Recent(ctx, recentBlocks)
	if err != nil {
		return "", fmt.Errorf("recent: %w", err)
	}
	entries, err := l.ascending(blocks[max(0, len(blocks)-recentBlocks):], "")
	if err != nil {
		return "", fmt.Errorf("recent: %w", err)
	}
	return l.begin(entries), nil
}

// begin gives the log its place, behind the last of some stored blocks. The first of them is before the window: its
// cursor is a place that the source has, which "" may not be any more.
func (l *Log[B]) begin(stored []entry[B]) string {
	if l.checked() {
		l.lines = make(lines)
		for _, e := range stored {
			l.lines.take(l.src.Place(e.block), e.cursor)
		}
	}
	l.mu.Lock()
	at := l.view.Load().newest
	if len(stored) > 0 {
		at.cursor = stored[0].cursor
		stored = stored[1:]
	}
	v := emptyView[B](at)
	for _, e := range stored {
		v.push(e.block, stamp{cursor: e.cursor}, l.opts.Window)
	}
	l.view.Store(&v)
	l.positioned, l.delivered = true, v.newest
	for _, f := range l.feeds {
		f.begin(v.newest)
	}
	l.wakes = l.nudge(l.wakes)
	l.mu.Unlock()
	l.callWakes()
	return v.newest.cursor
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
		l.admit(b, cursor)
		return true
	}
	at := l.src.Place(b)
	switch v := l.lines.judge(at); v {
	case hole, merge:
		if !l.mend(b, cursor, at, v) {
			return l.ctx.Err() == nil
		}
	case lower:
		l.mu.Lock()
		l.stats.Backwards++
		l.mu.Unlock()
	}
	l.lines.take(at, cursor)
	l.admit(b, cursor)
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

// admit makes a block the newest one.
func (l *Log[B]) admit(b B, cursor string) {
	l.mu.Lock()
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
	l.wakes = l.nudge(l.wakes)
}

// handRound gives the newest block to all the feeds there were when it was published.
func (l *Log[B]) handRound(b B, before mark, v *view[B]) {
	l.callWakes()
	l.heard()
	for _, f := range l.turn {
		l.deliver(f, b, before, v.newest, v.arrived)
	}
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

// deliver gives one feed the block between two marks.
func (l *Log[B]) deliver(f *feed[B], b B, before, after mark, arrived time.Time) {
	payload, err := f.evaluate(b)
	switch {
	case err != nil:
		l.logPanic("evaluation of a block panicked", err, after.cursor)
		l.mu.Lock()
		l.wakes = l.end(f, before, err, l.wakes)
		l.mu.Unlock()
	case payload != nil:
		l.wakes = f.put(payload, before, after, arrived, l.wakes)
	}
	l.callWakes()
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

// lose gives the position up. The next attempt starts from the head, and everybody who counted on the old one is
// behind: the source tells each whether what follows its cursor is still there. The window must not be read across
// that seam.
func (l *Log[B]) lose() {
	l.mu.Lock()
	for _, f := range l.feeds {
		l.wakes = f.fallAll(l.delivered, l.wakes)
	}
	newest := l.view.Load().newest
	l.note(newest.cursor)
	v := emptyView[B](mark{newest.next, ""})
	l.view.Store(&v)
	l.positioned, l.delivered = false, v.newest
	l.mu.Unlock()
	l.callWakes()
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
