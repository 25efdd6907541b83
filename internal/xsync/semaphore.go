package xsync

import (
	"context"
	"sync/atomic"
	"time"
)

// A Semaphore limits how many callers have a slot at once. Callers that wait receive slots
// in the order in which they began to wait. If a slot is free, Acquire and Release cost one
// atomic operation each, a third of the time of a send to a channel and a receive from it.
type Semaphore struct {
	limit  int64
	most   int64         // maximum number of users; 0 means no limit
	users  atomic.Int64  // callers that have a slot or wait for one
	passed chan struct{} // slots that Release has passed to waiting callers
}

// NewSemaphore returns a Semaphore with a number of slots.
func NewSemaphore(slots int) *Semaphore {
	return &Semaphore{limit: int64(slots), passed: make(chan struct{}, slots)}
}

// Acquire takes a slot and returns true. If none is free, it waits until ctx is done or,
// if patience is positive, for that time, and then returns false. It returns false at once
// if there are too many users.
func (s *Semaphore) Acquire(ctx context.Context, patience time.Duration) bool {
	users := s.users.Add(1)
	if users <= s.limit || (s.most == 0 || users <= s.most) && s.wait(ctx, patience) {
		return true
	}
	if s.users.Add(-1) < s.limit { // then every waiting caller has been passed a slot
		<-s.passed
	}
	return false
}

// wait waits until a slot is passed, ctx is done or, if patience is positive, for that
// time. It reports whether a slot was passed.
func (s *Semaphore) wait(ctx context.Context, patience time.Duration) bool {
	var late <-chan time.Time
	if patience > 0 {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-s.passed:
		return true
	case <-ctx.Done():
	case <-late:
	}
	return false
}

// TryAcquire is like Acquire, but does not wait.
func (s *Semaphore) TryAcquire() bool {
	for {
		n := s.users.Load()
		if n >= s.limit {
			return false
		}
		if s.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Release frees a slot.
func (s *Semaphore) Release() {
	if s.users.Add(-1) >= s.limit {
		s.passed <- struct{}{} // does not block, because passed has room for all slots
	}
}
