package blocklog

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/chaingql/chaingql/internal/guard"
)

// ErrSourceStalled is the error that Events.Failed receives if no block has arrived for Options.Silence.
var ErrSourceStalled = errors.New("blocklog: the source has not yielded a block for too long")

// Events contains functions that the Log calls when something happens in the stream. Each function may be nil. Block,
// Dropped and Gap are called by the goroutine that follows the source, one at a time and in order. Failed and Recovered
// are also called one at a time and in order, but Failed may be called by a timer. The functions may use the Log and
// its Readers. They must not call [Log.Close], and must not block, because that delays the next block for all Readers.
// A panic in one of them is logged and has no other effect.
type Events[B any] struct {
	// Block is called for each accepted block after it was delivered.
	Block func(b B)

	// Dropped is called for each block that the Log does not accept because it is not after the newest block.
	Dropped func(b B)

	// Failed is called when Follow has ended with err; the Log calls Follow again after wait. Failed is also called if
	// Follow has not ended but no block has arrived for Options.Silence. Then err wraps ErrSourceStalled and wait is 0.
	Failed func(err error, wait time.Duration)

	// Recovered is called when the first block arrives after a failure. down is the time since the first failure after
	// the last block. If that failure was a silence, down also includes the silence.
	Recovered func(down time.Duration)

	// Gap is called when the search for the missing blocks of a gap has ended. repaired reports whether the blocks were
	// found, after is a cursor before the gap, and ended is the number of Readers that ended with ErrGap.
	Gap func(workchain int32, after string, repaired bool, ended int)
}

// callEvent calls one of the Events functions. If the function panics, callEvent recovers and logs the panic.
func (l *Log[B]) callEvent(event func()) {
	if err := guard.Run(event); err != nil {
		l.logPanic("event function panicked; blocks are still delivered", err, "")
	}
}

// failed records a failure of the source and calls Events.Failed. The caller must hold l.eventMu.
func (l *Log[B]) failed(err error, wait time.Duration) {
	if l.downSince.IsZero() {
		l.downSince = time.Now()
		if errors.Is(err, ErrSourceStalled) {
			l.downSince = l.lastHeard
		}
	}
	if !errors.Is(err, ErrSourceStalled) { // a chain may be quiet: the check that follows decides
		l.sourceLost(err, time.Now())
	}
	if l.opts.Events.Failed != nil {
		l.callEvent(func() { l.opts.Events.Failed(err, wait) })
	}
}

// gapEvent reports to Events that the search for the blocks of a gap has ended.
func (l *Log[B]) gapEvent(workchain int32, after string, repaired bool, ended int) {
	if l.opts.Events.Gap != nil {
		l.callEvent(func() { l.opts.Events.Gap(workchain, after, repaired, ended) })
	}
}

// blockArrived records that the source has yielded a new block. If the source had failed before, blockArrived reports
// that it has recovered.
func (l *Log[B]) blockArrived() {
	l.eventMu.Lock()
	defer l.eventMu.Unlock()
	l.lastHeard, l.silent = time.Now(), false
	l.sourceAnswered()
	if l.silenceTimer != nil {
		l.silenceTimer.Reset(l.opts.Silence)
	}
	if l.downSince.IsZero() {
		return
	}
	down := time.Since(l.downSince)
	l.downSince = time.Time{}
	l.logLine(slog.LevelInfo, "block source recovered", guard.Milliseconds("down_ms", down))
	if l.opts.Events.Recovered != nil {
		l.callEvent(func() { l.opts.Events.Recovered(down) })
	}
}

// watchSilence starts the timer that checks the source: after a silence and, if the source is not live, soon and
// repeatedly. It returns a function that stops the timer. restart ends the current attempt to follow the source.
func (l *Log[B]) watchSilence(restart context.CancelCauseFunc) (stop func()) {
	l.eventMu.Lock()
	defer l.eventMu.Unlock()
	l.lastHeard = time.Now()
	l.silent = false
	l.silenceTimer = time.AfterFunc(l.untilCheck(), func() {
		switch due, silent := l.checkIsDue(); {
		case silent:
			l.probe(restart)
		case due: // the attempt may still be connecting
			l.probe(func(error) {})
		}
		l.eventMu.Lock()
		defer l.eventMu.Unlock()
		if l.silenceTimer != nil {
			l.silenceTimer.Reset(l.untilCheck())
		}
	})
	return func() {
		l.eventMu.Lock()
		defer l.eventMu.Unlock()
		l.silenceTimer.Stop()
		l.silenceTimer = nil
	}
}

// checkIsDue is called by the timer that checks the source. due reports whether the source must be checked now, and
// silent whether no block has arrived for Options.Silence. Both are false if a block arrived or Follow ended before
// checkIsDue acquired the lock. It logs each silence once.
func (l *Log[B]) checkIsDue() (due, silent bool) {
	l.eventMu.Lock()
	defer l.eventMu.Unlock()
	if l.silenceTimer == nil || l.ctx.Err() != nil {
		return false, false
	}
	if time.Since(l.lastHeard) < l.opts.Silence {
		return !l.state.Load().Live, false
	}
	if !l.silent {
		l.silent = true
		after := l.view.Load().newest.cursor
		l.logLine(slog.LevelWarn, "block source is silent; checking it",
			guard.Milliseconds("silent_ms", l.opts.Silence), slog.String("after", after))
		l.failed(ErrSourceStalled, 0)
	}
	return true, true
}

// hangTimeout is the maximum time that Follow may take to yield a block that Page has returned. On a chain with rare
// blocks, Page often returns a block first, because Follow may poll every few seconds.
const hangTimeout = 5 * time.Second

// probe calls the source for the block after the newest one, and records whether the source answered. If the source has
// such a block, or had one and pruned it, but Follow does not yield it within hangTimeout, probe restarts Follow.
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
	var failed error
	panicked := guard.RunApart(func() {
		var blocks []B
		if blocks, failed = l.src.Page(l.ctx, newest, 1); failed != nil {
			newer = l.src.Gone(failed)
			return
		}
		newer = len(blocks) > 0 && l.src.Cursor(blocks[0]) > newest
	})
	l.eventMu.Lock()
	switch failed = errors.Join(failed, panicked); {
	case newer: // Follow must yield it
	case failed == nil:
		l.sourceAnswered()
	case l.ctx.Err() == nil:
		l.sourceLost(failed, l.lastHeard)
	}
	l.eventMu.Unlock()
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
	l.logLine(slog.LevelWarn, "block source failed; retrying", guard.Error(err), slog.Int("attempt", attempt),
		from, guard.Milliseconds("wait_ms", wait), guard.Stack(err))
	l.eventMu.Lock()
	defer l.eventMu.Unlock()
	l.failed(err, wait)
}

// pageLineInterval is the minimum time between log lines about pages.
const pageLineInterval = 10 * time.Second

// logPage logs that a page could not be read or has a gap. It logs at most once per pageLineInterval, because there may
// be as many pages as readers.
func (l *Log[B]) logPage(after string, err error) {
	l.mu.Lock()
	l.pageFailures++
	n, now := l.pageFailures, time.Now()
	due := l.ctx.Err() == nil && !now.Before(l.nextPageLine)
	if due {
		l.pageFailures, l.nextPageLine = 0, now.Add(pageLineInterval)
	}
	l.mu.Unlock()
	if due {
		l.logLine(slog.LevelWarn, "reading stored blocks for subscriptions failed; retrying",
			guard.Error(err), slog.String("after", after), slog.Int("failures", n), guard.Stack(err))
	}
}

func (l *Log[B]) logPanic(what string, err error, cursor string) {
	l.logLine(slog.LevelError, what, guard.Error(err), slog.String("cursor", cursor), guard.Stack(err))
}

// logLine writes a log line. If the host's log handler panics, the line is lost, but blocks are still delivered.
func (l *Log[B]) logLine(level slog.Level, what string, attrs ...slog.Attr) {
	_ = guard.Run(func() { l.opts.Logger.LogAttrs(context.Background(), level, what, attrs...) })
}
