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

// Source is where the blocks come from. Its functions are called one at a time, from the Log's one goroutine, on a
// context that ends with [Log.Close], and must come back promptly when that is done. A panic in one of them is a
// failure of the source like any other.
type Source[B any] struct {
	// Head returns the cursor of the newest block there is, "" for an empty chain. The log starts behind it.
	Head func(ctx context.Context) (cursor string, err error)

	// Follow yields every block after the cursor, ascending, each at least once, stored ones first and then each new
	// one, and ends with one non-nil error. It is called again, with the last block's cursor, however it ended.
	Follow func(ctx context.Context, after string) iter.Seq2[B, error]

	// Cursor returns a block's cursor, never "".
	Cursor func(B) string

	// Gone tells whether an error of Follow says that the position handed to it is no longer there (history pruned),
	// so that going on from it is impossible. Nil is for a source that keeps everything.
	Gone func(error) bool
}

var errEnded = errors.New("the source's Follow ended without an error")

// run follows the source, again and again, until the Log is closed.
func (l *Log[B]) run() {
	defer close(l.done)
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
					l.lose(e)
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
	defer l.mu.Unlock()
	l.positioned = true
	l.newest.cursor = cursor
	l.delivered = l.newest
	return cursor, nil
}

// lose gives the position up, and ends everybody who counted on it. The next attempt starts from the head. Blocks
// that have arrived stay in the window, for readers of the lost stream who have still to read them.
func (l *Log[B]) lose(err error) {
	l.mu.Lock()
	wakes := l.endAll(err, nil)
	l.positioned = false
	l.newest.cursor = ""
	l.delivered = l.newest
	l.arrived = time.Time{}
	l.mu.Unlock()
	l.call(wakes)
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
