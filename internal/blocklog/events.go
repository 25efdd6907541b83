package blocklog

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// ErrSilent is told to Events.Failed when nothing has come for Options.Silence.
var ErrSilent = errors.New("blocklog: no block for too long")

// Events are told of what happens to the stream. Each may be nil. Block and Gap are called one at a time, in order, on
// the goroutine that follows the source, Failed and Recovered likewise, but Failed also on a timer's. They may use the
// Log and its Readers, but must not block, for everybody's next block waits, nor call [Log.Close]. A panic is logged
// and has no effect.
type Events[B any] struct {
	// Block is called for each block accepted, after it was handed round.
	Block func(b B)

	// Dropped is called for each block that is not taken, because it or one past it was there before.
	Dropped func(b B)

	// Failed is called when Follow has ended with err and will be asked again after wait, and, with an err that wraps
	// ErrSilent and no wait, when it goes on but nothing came for Options.Silence.
	Failed func(err error, wait time.Duration)

	// Recovered is called when the first block comes after that. down is the time since the first failure, or since the
	// block before the silence.
	Recovered func(down time.Duration)

	// Gap is called when a hole in a workchain has been dealt with: healed, or else given up. after is a cursor before
	// the hole, and told counts the Readers that were ended with ErrGap.
	Gap func(workchain int32, after string, healed bool, told int)
}

// tell calls an event's function.
func (l *Log[B]) tell(event func()) {
	if err := guard(event); err != nil {
		l.logPanic("event panicked", err, "")
	}
}

// failed tells of a failure. Who calls it holds l.telling.
func (l *Log[B]) failed(err error, wait time.Duration) {
	if l.downSince.IsZero() {
		l.downSince = time.Now()
		if errors.Is(err, ErrSilent) {
			l.downSince = l.lastHeard
		}
	}
	if l.opts.Events.Failed != nil {
		l.tell(func() { l.opts.Events.Failed(err, wait) })
	}
}

// heard notes that the source has given a new block.
func (l *Log[B]) heard() {
	l.telling.Lock()
	defer l.telling.Unlock()
	l.lastHeard, l.silent = time.Now(), false
	if l.quiet != nil {
		l.quiet.Reset(l.opts.Silence)
	}
	if l.downSince.IsZero() {
		return
	}
	down := time.Since(l.downSince)
	l.downSince = time.Time{}
	l.say(slog.LevelInfo, "block source recovered", "down", down)
	if l.opts.Events.Recovered != nil {
		l.tell(func() { l.opts.Events.Recovered(down) })
	}
}

// listen begins to watch for silence, and returns what ends it. restart ends the present attempt.
func (l *Log[B]) listen(restart context.CancelCauseFunc) (stop func()) {
	if l.opts.Silence < 0 {
		return func() {}
	}
	l.telling.Lock()
	defer l.telling.Unlock()
	l.lastHeard = time.Now()
	l.silent = false
	l.quiet = time.AfterFunc(l.opts.Silence, func() {
		if l.fellSilent() {
			l.probe(restart)
		}
	})
	return func() {
		l.telling.Lock()
		defer l.telling.Unlock()
		l.quiet.Stop()
		l.quiet = nil
	}
}

// fellSilent is the timer's, and reports whether it is silent. A block may have come, or the attempt have ended, while
// it was on its way here. An attempt does not end during it.
func (l *Log[B]) fellSilent() bool {
	l.telling.Lock()
	defer l.telling.Unlock()
	if l.quiet == nil || time.Since(l.lastHeard) < l.opts.Silence || l.ctx.Err() != nil {
		return false
	}
	l.quiet.Reset(l.opts.Silence)
	if !l.silent {
		l.silent = true
		after := l.view.Load().newest.cursor
		l.say(slog.LevelWarn, "block source is silent", "for", l.opts.Silence, "after", after)
		l.failed(ErrSilent, 0)
	}
	return true
}

// hangPatience is how much later than Page Follow may have a block.
const hangPatience = time.Second

// probe restarts a Follow that hangs: the source has a block past the newest, and Follow does not yield it.
func (l *Log[B]) probe(restart context.CancelCauseFunc) {
	l.mu.Lock()
	if l.ctx.Err() != nil || !l.positioned {
		l.mu.Unlock()
		return
	}
	l.busy++
	newest := l.view.Load().newest.cursor
	l.mu.Unlock()
	newer := false
	_ = guard(func() { // the next attempt will meet it again
		blocks, err := l.src.Page(l.ctx, newest, 1)
		newer = err == nil && len(blocks) > 0 && l.src.Cursor(blocks[0]) > newest
	})
	if newer {
		select {
		case <-time.After(hangPatience): // Follow may be about to yield it
		case <-l.ctx.Done():
		}
		if l.view.Load().newest.cursor == newest {
			restart(errHangs)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left()
}

func (l *Log[B]) logFailure(err error, attempt int, wait time.Duration) {
	l.mu.Lock()
	after, positioned := l.view.Load().newest.cursor, l.positioned
	l.mu.Unlock()
	from := slog.String("after", after)
	if !positioned {
		from = slog.Bool("from_head", true)
	}
	l.say(slog.LevelWarn, "block source failed", "error", err, "attempt", attempt, from, "wait", wait, stackOf(err))
	l.telling.Lock()
	defer l.telling.Unlock()
	l.failed(err, wait)
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
		l.say(slog.LevelWarn, "block page failed", "error", err, "after", after, "failures", n, stackOf(err))
	}
}

func (l *Log[B]) logPanic(what string, err error, cursor string) {
	l.say(slog.LevelError, what, "error", err, "cursor", cursor, stackOf(err))
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
