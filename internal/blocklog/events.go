package blocklog

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/chaingql/chaingql/internal/guard"
)

// ErrSourceStalled is passed to Events.Failed when no block has arrived for Options.Silence.
var ErrSourceStalled = errors.New("blocklog: no block for too long")

// Events receives the events of a stream. Each function may be nil. Block and Gap are called one at a time, in order,
// by the goroutine that follows the source. Failed and Recovered are called one at a time, in order; Failed may also be
// called by a timer. The functions may use the Log and its Readers. They must not call [Log.Close], and must not block,
// because that delays the next block of all readers. A panic is logged and has no other effect.
type Events[B any] struct {
	// Block is called for each accepted block, after it was delivered.
	Block func(b B)

	// Dropped is called for each block that is not accepted, because it is not after the newest block.
	Dropped func(b B)

	// Failed is called when Follow has ended with err, and is called again after wait. It is also called with an error
	// that wraps ErrSourceStalled and no wait when Follow continues, but no block has arrived for Options.Silence.
	Failed func(err error, wait time.Duration)

	// Recovered is called when the first block arrives after a failure. down is the time since the first failure or, if
	// that was a silence, since the block before it.
	Recovered func(down time.Duration)

	// Gap is called when the search for the blocks of a gap has ended. repaired reports whether they were found, after
	// is a cursor before the gap, and ended is the number of Readers that ended with ErrGap.
	Gap func(workchain int32, after string, repaired bool, ended int)
}

// callEvent calls a function of Events.
func (l *Log[B]) callEvent(event func()) {
	if err := guard.Run(event); err != nil {
		l.logPanic("event panicked", err, "")
	}
}

// failed reports a failure to Events. Called with eventMu held.
func (l *Log[B]) failed(err error, wait time.Duration) {
	if l.downSince.IsZero() {
		l.downSince = time.Now()
		if errors.Is(err, ErrSourceStalled) {
			l.downSince = l.lastHeard
		}
	}
	if l.opts.Events.Failed != nil {
		l.callEvent(func() { l.opts.Events.Failed(err, wait) })
	}
}

// blockArrived records that the source has yielded a new block.
func (l *Log[B]) blockArrived() {
	l.eventMu.Lock()
	defer l.eventMu.Unlock()
	l.lastHeard, l.silent = time.Now(), false
	if l.silenceTimer != nil {
		l.silenceTimer.Reset(l.opts.Silence)
	}
	if l.downSince.IsZero() {
		return
	}
	down := time.Since(l.downSince)
	l.downSince = time.Time{}
	l.logLine(slog.LevelInfo, "block source recovered", "down", down)
	if l.opts.Events.Recovered != nil {
		l.callEvent(func() { l.opts.Events.Recovered(down) })
	}
}

// watchSilence starts the timer that detects silence, and returns a function that stops it. restart ends the present
// attempt.
func (l *Log[B]) watchSilence(restart context.CancelCauseFunc) (stop func()) {
	if l.opts.Silence < 0 {
		return func() {}
	}
	l.eventMu.Lock()
	defer l.eventMu.Unlock()
	l.lastHeard = time.Now()
	l.silent = false
	l.silenceTimer = time.AfterFunc(l.opts.Silence, func() {
		if l.reportSilence() {
			l.probe(restart)
		}
	})
	return func() {
		l.eventMu.Lock()
		defer l.eventMu.Unlock()
		l.silenceTimer.Stop()
		l.silenceTimer = nil
	}
}

// reportSilence is called by the timer. It reports whether the source is silent: a block may have arrived, or the
// attempt may have ended, before it got the lock. An attempt does not end during the call.
func (l *Log[B]) reportSilence() bool {
	l.eventMu.Lock()
	defer l.eventMu.Unlock()
	if l.silenceTimer == nil || time.Since(l.lastHeard) < l.opts.Silence || l.ctx.Err() != nil {
		return false
	}
	l.silenceTimer.Reset(l.opts.Silence)
	if !l.silent {
		l.silent = true
		after := l.view.Load().newest.cursor
		l.logLine(slog.LevelWarn, "block source is silent", "for", l.opts.Silence, "after", after)
		l.failed(ErrSourceStalled, 0)
	}
	return true
}

// hangTimeout is the time that Follow has to yield a block after Page has returned it.
const hangTimeout = time.Second

// probe restarts a Follow that hangs: one that does not yield a block although the source
// has, or had, one after the newest.
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
	_ = guard.Run(func() { // the next attempt handles a failure
		blocks, err := l.src.Page(l.ctx, newest, 1)
		newer = err == nil && len(blocks) > 0 && l.src.Cursor(blocks[0]) > newest || err != nil && l.src.Gone(err)
	})
	if newer {
		select {
		case <-time.After(hangTimeout): // Follow may be about to yield it
		case <-l.ctx.Done():
		}
		if l.view.Load().newest.cursor == newest {
			restart(errHangs)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taskDone()
}

func (l *Log[B]) logFailure(err error, attempt int, wait time.Duration) {
	l.mu.Lock()
	after, positioned := l.view.Load().newest.cursor, l.positioned
	l.mu.Unlock()
	from := slog.String("after", after)
	if !positioned {
		from = slog.Bool("from_head", true)
	}
	l.logLine(slog.LevelWarn, "block source failed", "error", err, "attempt", attempt, from, "wait", wait, guard.Stack(err))
	l.eventMu.Lock()
	defer l.eventMu.Unlock()
	l.failed(err, wait)
}

// logPage logs the failure of a page, at most once per MaxBackoff: there may be as many pages as readers.
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
		l.logLine(slog.LevelWarn, "block page failed", "error", err, "after", after, "failures", n, guard.Stack(err))
	}
}

func (l *Log[B]) logPanic(what string, err error, cursor string) {
	l.logLine(slog.LevelError, what, "error", err, "cursor", cursor, guard.Stack(err))
}

// logLine writes a log line. If the host's handler panics, blocks are still delivered, and the line is lost.
func (l *Log[B]) logLine(level slog.Level, what string, args ...any) {
	_ = guard.Run(func() { l.opts.Logger.Log(context.Background(), level, what, args...) })
}
