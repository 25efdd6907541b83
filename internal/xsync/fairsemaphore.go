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
	slots   int
	free    int
	held    map[K]int           // the slots that each key has, except for the first eighth; nil if a key may have all
	turns   list.List           // of the *turn of each key with waiting callers; the next one comes first
	waiting map[K]*list.Element // in turns
}

// A turn contains the callers with one key that wait.
type turn[K comparable] struct {
	key     K
	callers list.List // of chan struct{}, which is closed when the caller receives a slot
}

// NewFairSemaphore returns a FairSemaphore with a number of slots. One key may have all of them, so its turns must be
// short: other keys wait until one of them has ended.
func NewFairSemaphore[K comparable](slots int) *FairSemaphore[K] {
	return &FairSemaphore[K]{slots: slots, free: slots, waiting: make(map[K]*list.Element)}
}

// NewSharedSemaphore returns a FairSemaphore in which a key may have as many slots as are free, in addition to the
// first eighth. So a key whose callers keep their slots for long leaves some to others. The zero key may have all.
func NewSharedSemaphore[K comparable](slots int) *FairSemaphore[K] {
	s := NewFairSemaphore[K](slots)
	s.held = make(map[K]int)
	return s
}

// TryAcquire takes a slot if the key may have one, and reports whether it did. The key does not matter if one key may
// have all slots.
func (s *FairSemaphore[K]) TryAcquire(key K) bool {
	if s == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.take(key)
}

// take takes a slot if the key may have one, and reports whether it did. While few slots are taken, it does not count
// for which key: that would cost more.
func (s *FairSemaphore[K]) take(key K) bool {
	var none K
	counts := s.held != nil && s.slots-s.free >= s.slots/8 && key != none
	if s.free == 0 || counts && s.held[key] >= s.free {
		return false
	}
	if s.free--; counts {
		s.held[key]++
	}
	return true
}

// Acquire takes a slot and returns true. If the key may not have one, it waits until ctx is done or, if patience is
// positive, for that time, and then returns false.
func (s *FairSemaphore[K]) Acquire(ctx context.Context, key K, patience time.Duration) bool {
	if s == nil {
		return true
	}
	s.mu.Lock()
	if s.take(key) {
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

// Release frees a slot of a key. The key does not matter if one key may have all slots.
func (s *FairSemaphore[K]) Release(key K) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free++
	switch n := s.held[key]; n {
	case 0: // one of the first eighth
	case 1:
		delete(s.held, key)
	default:
		s.held[key]--
	}
	// A key that may not have a slot has one already, so at most as many keys are passed over as there are slots.
	for at := s.turns.Front(); at != nil && s.free > 0; {
		next := at.Next()
		if t := at.Value.(*turn[K]); s.take(t.key) {
			close(t.callers.Remove(t.callers.Front()).(chan struct{}))
			s.turns.MoveToBack(at)
			s.removeIfEmpty(t, at)
		}
		at = next
	}
}

func (s *FairSemaphore[K]) removeIfEmpty(t *turn[K], at *list.Element) {
	if t.callers.Len() == 0 {
		s.turns.Remove(at)
		delete(s.waiting, t.key)
	}
}
