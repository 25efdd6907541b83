package blocklog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"time"
)

// Source is where the blocks come from. Its functions are called on a context that ends with [Log.Close], and must
// come back promptly when that is done. Head and Follow are called one at a time, from one goroutine, the others
// from several at once. A panic in one of them is a failure of the source like any other.
type Source[B any] struct {
	// Head returns the cursor of the newest block there is, "" for an empty chain. The log starts behind it.
	Head func(ctx context.Context) (cursor string, err error)

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
}

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

// position returns where to follow from: the last block, or else the source's head.
func (l *Log[B]) position(ctx context.Context) (string, error) {
	l.mu.Lock()
	cursor, positioned := l.newest.cursor, l.positioned
	l.mu.Unlock()
	if positioned {
		return cursor, nil
	}
	cursor, err := l.src.Head(ctx)
	if err != nil {
		return "", fmt.Errorf("head: %w", err)
	}
	l.mu.Lock()
	l.positioned = true
	l.restart(cursor)
	l.wakes = l.nudge(l.wakes)
	l.mu.Unlock()
	l.callWakes()
	return cursor, nil
}

// accept takes the source's next block, and gives it to every feed. It reports whether the block was new.
func (l *Log[B]) accept(b B) bool {
	cursor := l.src.Cursor(b)
	l.mu.Lock()
	before := l.newest
	switch {
	case cursor == before.cursor:
		l.stats.Duplicates++
		l.mu.Unlock()
		return false
	case cursor < before.cursor:
		l.stats.OutOfOrder++
		l.mu.Unlock()
		return false
	}
	l.append(entry[B]{b, cursor})
	l.stats.Blocks++
	l.arrived = time.Now()
	after := l.newest
	l.turn = append(l.turn, l.feeds...)
	l.wakes = l.nudge(l.wakes)
	l.mu.Unlock()

	l.callWakes()
	for _, f := range l.turn {
		l.deliver(f, b, before, after)
	}
	clear(l.turn) // or feeds that are gone would be kept until the next block
	l.turn = l.turn[:0]

	l.mu.Lock()
	l.delivered = after
	l.mu.Unlock()
	return true
}

// deliver gives one feed the block between two marks.
func (l *Log[B]) deliver(f *feed[B], b B, before, after mark) {
	payload, err := f.evaluate(b)
	switch {
	case err != nil:
		l.logPanic("evaluation of a block panicked", err, after.cursor)
		l.mu.Lock()
		l.wakes = l.end(f, before, err, l.wakes)
		l.mu.Unlock()
	case payload != nil:
		l.wakes = f.put(payload, before, after, l.wakes)
	}
	l.callWakes()
}

// callWakes is for the following goroutine.
func (l *Log[B]) callWakes() {
	l.call(l.wakes)
	clear(l.wakes)
	l.wakes = l.wakes[:0]
}

// lose gives the position up. The next attempt starts from the head, and everybody who counted on the old one is
// behind: the source tells each whether what follows its cursor is still there. The window must not be read across
// that seam.
func (l *Log[B]) lose() {
	l.mu.Lock()
	for _, f := range l.feeds {
		l.wakes = f.fallAll(l.delivered, l.wakes)
	}
	l.positioned = false
	l.restart("")
	l.arrived = time.Time{}
	l.mu.Unlock()
	l.callWakes()
}

// restart empties the window, and has it go on after a cursor.
func (l *Log[B]) restart(cursor string) {
	l.newest.cursor = cursor
	l.base, l.delivered = l.newest, l.newest
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

func (l *Log[B]) logFailure(err error, attempt int, wait time.Duration) {
	l.mu.Lock()
	after, positioned := l.newest.cursor, l.positioned
	l.mu.Unlock()
	from := slog.String("after", after)
	if !positioned {
		from = slog.Bool("from_head", true)
	}
	l.say(slog.LevelWarn, "block source failed", "err", err, "attempt", attempt, from, "wait", wait, stackOf(err))
}

// logPage tells of a failed page, at most once in MaxBackoff: there are as many pages as readers have cursors.
func (l *Log[B]) logPage(after string, err error) {
	l.mu.Lock()
	l.pageFailures++
	n, now := l.pageFailures, time.Now()
	tell := l.ctx.Err() == nil && !now.Before(l.nextPageLine)
	if tell {
		l.pageFailures, l.nextPageLine = 0, now.Add(l.opts.MaxBackoff)
	}
	l.mu.Unlock()
	if tell {
		l.say(slog.LevelWarn, "block page failed", "err", err, "after", after, "failures", n, stackOf(err))
	}
}

func (l *Log[B]) logPanic(what string, err error, cursor string) {
	l.say(slog.LevelError, what, "err", err, "cursor", cursor, stackOf(err))
}

// say logs. A handler of the host's that panics must not stop the blocks, and there is nobody left to tell.
func (l *Log[B]) say(level slog.Level, what string, args ...any) {
	_ = guard(func() { l.opts.Logger.Log(context.Background(), level, what, args...) })
}

// stackOf is empty, and so left out of the log, where err is no panic.
func stackOf(err error) slog.Attr {
	var p *panicError
	if !errors.As(err, &p) {
		return slog.Attr{}
	}
	return slog.String("stack", string(p.stack))
}
