package xsync

import (
	"runtime"
	"slices"
	"sync"
	"time"
)

// LateAfter is how long a read or write lasts before LateDeadlines sets its deadline. It may last twice as long.
const LateAfter = 100 * time.Millisecond

// LateDeadlines sets the deadlines of those reads and writes that are not done soon. Most requests are read and
// answered in microseconds, and to set the two deadlines of a connection for each of them, and to clear them, takes 5 %
// of the CPU time of a short request over loopback (see BenchmarkLateDeadlines). The methods are safe for concurrent
// use.
type LateDeadlines struct{ shards []lateShard }

// A lateShard has the reads and writes in progress on one processor. Its timer runs only while there are some.
type lateShard struct {
	mu       sync.Mutex
	pending  []*Late
	timer    *time.Timer
	running  bool // timer will call setDue
	returned sync.Cond
	_        [128]byte // the next shard must not be in the same or the next cache line
}

// A Late is a read or write that may be late. The zero value is none.
type Late struct {
	// Owner sets the deadline. It is called at most once for each Begin, never after End has returned, without a lock,
	// and by another goroutine. It must neither block nor panic.
	Owner interface{ SetDeadline() }

	shard *lateShard // nil unless between Begin and End

	// The shard's mu guards these fields.
	began   time.Duration
	index   int  // in pending plus 1; 0 if it is not there
	setting bool // SetDeadline is running
}

// NewLateDeadlines returns a LateDeadlines in which nothing is in progress.
func NewLateDeadlines() *LateDeadlines {
	d := &LateDeadlines{make([]lateShard, runtime.GOMAXPROCS(0))}
	for i := range d.shards {
		s := &d.shards[i]
		s.returned.L = &s.mu
	}
	return d
}

// Begin records that a read or write begins now, a time on the Clock. Unless End is called before, l.Owner is called
// after LateAfter to twice LateAfter. n selects a shard, and should be the same for the calls on one processor.
func (d *LateDeadlines) Begin(l *Late, n uint32, now time.Duration) {
	s := &d.shards[n%uint32(len(d.shards))]
	l.shard = s
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending = append(s.pending, l)
	l.began, l.index = now, len(s.pending)
	switch {
	case s.running:
		return
	case s.timer == nil:
		s.timer = time.AfterFunc(LateAfter, s.setDue)
	default:
		s.timer.Reset(LateAfter)
	}
	s.running = true
}

// End records that l has ended. If its deadline is being set, End waits. If l has not begun, End does nothing.
func (l *Late) End() {
	s := l.shard
	if s == nil {
		return
	}
	l.shard = nil
	s.mu.Lock()
	defer s.mu.Unlock()
	for l.setting {
		s.returned.Wait()
	}
	if l.index > 0 {
		s.remove(l)
	}
}

// remove removes l from those that are pending. Called with mu held.
func (s *lateShard) remove(l *Late) {
	last := len(s.pending) - 1
	moved := s.pending[last]
	s.pending[l.index-1], moved.index = moved, l.index
	s.pending[last], l.index = nil, 0
	s.pending = s.pending[:last]
}

// setDue sets the deadlines of everything that began at least LateAfter ago.
func (s *lateShard) setDue() {
	s.mu.Lock()
	defer s.mu.Unlock()
	began := Clock(-LateAfter)
	var due []*Late
	for _, l := range slices.Backward(s.pending) { // remove moves the last one
		if l.began <= began {
			s.remove(l)
			l.setting = true
			due = append(due, l)
		}
	}
	if s.running = len(s.pending) > 0; s.running {
		s.timer.Reset(LateAfter)
	}
	s.mu.Unlock()
	for _, l := range due {
		l.Owner.SetDeadline()
	}
	s.mu.Lock()
	for _, l := range due {
		l.setting = false
	}
	s.returned.Broadcast()
}
