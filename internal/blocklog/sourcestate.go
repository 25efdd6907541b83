package blocklog

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/chaingql/chaingql/internal/guard"
	"github.com/chaingql/chaingql/internal/xsync"
)

// A SourceState reports whether the source answers.
type SourceState struct {
	// Live reports whether the source answers: since its last failure it has yielded a block, or has confirmed that the
	// Log has its newest block. A source without new blocks may be Live.
	Live bool

	// Since is the time at which Live changed last. For a source that has stalled, that is the time of its last
	// answer. If the source has never answered, it is the time of New or, after the first call, of that call.
	Since time.Time

	// Err is the last failure of a source that is not Live. It is nil if the source has not failed yet.
	Err error
}

// State returns the state of the source. It acquires no lock.
func (l *Log[B]) State() SourceState { return *l.state.Load() }

// sourceAnswered records that the source is live. The caller must hold l.eventMu.
func (l *Log[B]) sourceAnswered() {
	if l.state.Load().Live {
		return
	}
	l.state.Store(&SourceState{Live: true, Since: time.Now()})
	if l.outageTimer != nil {
		l.outageTimer.Stop()
		l.outageTimer = nil
	}
}

// sourceLost records that the source is not live because of err, and since when. The caller must hold l.eventMu.
func (l *Log[B]) sourceLost(err error, since time.Time) {
	if s := l.state.Load(); !s.Live {
		since = s.Since
	}
	l.state.Store(&SourceState{Since: since, Err: err})
	if l.opts.Outage > 0 && l.outageTimer == nil && l.ctx.Err() == nil {
		l.outageTimer = time.AfterFunc(max(0, l.opts.Outage-time.Since(since)), l.endForOutage)
	}
}

// endForOutage ends all readers if the source is not live. It wakes them one after another, so that their clients do
// not all reconnect at once.
func (l *Log[B]) endForOutage() {
	l.eventMu.Lock()
	s := l.state.Load()
	if s.Live || l.ctx.Err() != nil {
		l.eventMu.Unlock()
		return
	}
	l.outageTimer.Reset(l.opts.Outage) // for readers that join from now on
	l.eventMu.Unlock()
	l.mu.Lock()
	if l.ctx.Err() != nil {
		l.mu.Unlock()
		return
	}
	l.busy++
	wakes := l.endAll(fmt.Errorf("%w: %w", ErrOutage, s.Err), nil)
	l.mu.Unlock()
	if len(wakes) > 0 {
		l.logLine(slog.LevelWarn, "block source lost for too long; ending subscriptions", guard.Error(s.Err),
			guard.Milliseconds("lost_ms", time.Since(s.Since)), slog.Int("subscriptions", len(wakes)),
			guard.Stack(s.Err))
	}
	xsync.SpreadOut(l.ctx, len(wakes), func(i int) { l.callAll(wakes[i : i+1]) })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taskDone()
}

// lostCheckInterval is the time between checks of a source that is not live. It is short, so that a quiet chain does
// not delay the end of an outage until its next block.
const lostCheckInterval = time.Second

// untilCheck returns the time until the source must be checked again. The caller must hold l.eventMu.
func (l *Log[B]) untilCheck() time.Duration {
	if !l.state.Load().Live {
		return min(lostCheckInterval, l.opts.Silence)
	}
	if quiet := time.Since(l.lastHeard); quiet < l.opts.Silence {
		return l.opts.Silence - quiet
	}
	return l.opts.Silence
}
