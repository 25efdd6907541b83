package xsync

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// A FairSemaphore limits how many callers have a slot at once. Each caller has a key, such as its client. The keys of
// callers that wait receive slots in turns, and the callers of a key in the order in which they began to wait. So a
// client with hundreds of callers does not delay those of others by more than one turn. A nil FairSemaphore always has
// a free slot.
type FairSemaphore[K comparable] struct {
	mu      sync.Mutex
	free    int                 // 0 while a caller waits
	turns   list.List           // of the *turn of each key with waiting callers; the next one comes first
	waiting map[K]*list.Element // in turns
}

// A turn contains the callers with one key that wait.
type turn[K comparable] struct {
	key     K
	callers list.List // of chan struct{}, which is closed when the caller receives a slot
}

// NewFairSemaphore returns a FairSemaphore with a number of slots.
func NewFairSemaphore[K comparable](slots int) *FairSemaphore[K] {
	return &FairSemaphore[K]{free: slots, waiting: make(map[K]*list.Element)}
}

// TryAcquire takes a slot if one is free, and reports whether it did.
func (s *FairSemaphore[K]) TryAcquire() bool {
	if s == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free == 0 {
		return false
	}
	s.free--
	return true
}

// Acquire takes a slot and returns true. If none is free, it waits until ctx is done or, if patience is positive, for
// that time, and then returns false.
func (s *FairSemaphore[K]) Acquire(ctx context.Context, key K, patience time.Duration) bool {
	if s == nil {
		return true
	}
	s.mu.Lock()
	if s.free > 0 {
		s.free--
		s.mu.Unlock()
		return true
	}
	at := s.waiting[key]
	if at == nil {
		at = s.turns.PushBack(&turn[K]{key: key})
		s.waiting[key] = at
	}
	t, received := at.Value.(*turn[K]), make(chan struct{})
	place := t.callers.PushBack(received)
	s.mu.Unlock()

	var late <-chan time.Time
	if patience > 0 {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-received:
		return true
	case <-ctx.Done():
	case <-late:
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-received: // meanwhile
		return true
	default:
	}
	t.callers.Remove(place)
	s.removeIfEmpty(t, at)
	return false
}

// Release frees a slot.
func (s *FairSemaphore[K]) Release() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.turns.Front()
	if at == nil {
		s.free++
		return
	}
	t := at.Value.(*turn[K])
	close(t.callers.Remove(t.callers.Front()).(chan struct{}))
	s.turns.MoveToBack(at)
	s.removeIfEmpty(t, at)
}

func (s *FairSemaphore[K]) removeIfEmpty(t *turn[K], at *list.Element) {
	if t.callers.Len() == 0 {
		s.turns.Remove(at)
		delete(s.waiting, t.key)
	}
}
