package blocklog

import "time"

// A SourceState reports whether the source answers.
type SourceState struct {
	// Live reports whether the source answers: since its last failure it has yielded a block, or has confirmed that the
	// Log has its newest block. A source without new blocks may be Live.
	Live bool

	// Since is the time at which Live changed last. For a source that has stalled, that is the time at which it was
	// heard last. If the source has never answered, it is the time of New.
	Since time.Time

	// Err is the last failure of a source that is not Live. It is nil if the source has not failed yet.
	Err error
}

// State returns the state of the source. It acquires no lock.
func (l *Log[B]) State() SourceState { return *l.state.Load() }

// sourceAnswered records that the source is live. The caller must hold l.eventMu.
func (l *Log[B]) sourceAnswered() {
	if !l.state.Load().Live {
		l.state.Store(&SourceState{Live: true, Since: time.Now()})
	}
}

// sourceLost records that the source is not live because of err, and since when. The caller must hold l.eventMu.
func (l *Log[B]) sourceLost(err error, since time.Time) {
	if s := l.state.Load(); !s.Live {
		since = s.Since
	}
	l.state.Store(&SourceState{Since: since, Err: err})
}

// lostCheckInterval is the time between checks of a source that is not live. It is short, so that a quiet chain does not
// delay the end of an outage until its next block.
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
