package xsync

import (
	"context"
	"time"
)

// A Lane is a Semaphore for work that takes long, with bounds on the number of callers and on their time to wait. A nil
// Lane always has a free slot.
type Lane struct {
	slots    *Semaphore
	patience time.Duration
}

// NewLane returns a Lane with a number of slots. At most callers have a slot or wait for one; 0 means no limit. If
// patience is positive, it is the maximum time to wait for a slot.
func NewLane(slots, callers int, patience time.Duration) *Lane {
	s := NewSemaphore(slots)
	s.most = int64(callers)
	return &Lane{s, patience}
}

// Enter takes a slot and returns true; the caller must call Leave. Otherwise there are too many callers, or it waited
// until its patience ended or ctx was done.
func (l *Lane) Enter(ctx context.Context) bool {
	if l == nil {
		return true
	}
	if !l.slots.Acquire(ctx, l.patience) {
		return false
	}
	if ctx.Err() != nil { // ctx may be done although there was a slot
		l.slots.Release()
		return false
	}
	return true
}

// TryEnter is like Enter, but does not wait.
func (l *Lane) TryEnter() bool { return l == nil || l.slots.TryAcquire() }

// Leave frees a slot.
func (l *Lane) Leave() {
	if l != nil {
		l.slots.Release()
	}
}
