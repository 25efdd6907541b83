package xsync

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestSemaphorePassesSlotsInTheOrderOfWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSemaphore(2)
		for range 2 {
			if !s.Acquire(t.Context(), 0) {
				t.Fatal("a new semaphore has fewer slots than it should")
			}
		}
		if s.TryAcquire() {
			t.Error("TryAcquire takes a third slot of two")
		}
		var order []int
		for i := range 5 {
			go func() {
				if s.Acquire(t.Context(), 0) {
					order = append(order, i)
				}
			}()
			synctest.Wait()
		}
		for released := range 5 {
			s.Release()
			synctest.Wait()
			if len(order) != released+1 || order[released] != released {
				t.Fatalf("after %d releases, the callers %v have a slot", released+1, order)
			}
		}
	})
}

func TestSemaphoreStopsWaitingAfterPatienceOrCancellation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSemaphore(1)
		s.Acquire(t.Context(), 0)
		began := time.Now()
		if s.Acquire(t.Context(), time.Second) || time.Since(began) != time.Second {
			t.Errorf("Acquire without a free slot returned after %v, want false after 1s", time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if s.Acquire(ctx, time.Hour) || time.Since(began) != time.Minute+time.Second {
			t.Errorf("Acquire returned at %v, want false when its context is done", time.Since(began))
		}
		s.Release()
		if !s.Acquire(t.Context(), time.Nanosecond) {
			t.Error("the slot is not free after callers gave up")
		}
	})
}

func TestSemaphoreLosesNoSlotIfCallersGiveUpOrAreRefused(t *testing.T) {
	s := NewSemaphore(3)
	s.most = 10
	var inside, most atomic.Int64
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for i := range 500 {
				if !s.Acquire(context.Background(), time.Duration(1+i%50)*time.Microsecond) {
					continue
				}
				n := inside.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				if i%10 == 0 {
					time.Sleep(20 * time.Microsecond)
				}
				inside.Add(-1)
				s.Release()
			}
		})
	}
	all.Wait()
	if most.Load() > 3 {
		t.Errorf("%d callers had a slot at once, want at most 3", most.Load())
	}
	for i := range 3 {
		if !s.Acquire(context.Background(), time.Nanosecond) {
			t.Errorf("only %d of 3 slots are free at the end", i)
		}
	}
	if s.Acquire(context.Background(), time.Nanosecond) {
		t.Error("more than 3 slots are free at the end")
	}
}

// A Lane must refuse a caller that is one too many at once, and must admit others afterwards.
func TestLaneRefusesTooManyCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, ctx := NewLane(2, 3, time.Minute), t.Context()
		for range 3 {
			go l.Enter(ctx)
		}
		synctest.Wait() // two have slots, and one waits
		start := time.Now()
		if l.Enter(ctx) || time.Since(start) > 0 {
			t.Errorf("a fourth caller was not refused at once, but after %v", time.Since(start))
		}
		for range 3 { // the one that waits is passed a slot
			l.Leave()
			synctest.Wait()
		}
		free := 0
		for l.TryEnter() {
			free++
		}
		if free != 2 {
			t.Errorf("%d slots are free at the end, want 2", free)
		}
	})
}

func BenchmarkSemaphore(b *testing.B) {
	b.Run("channel", func(b *testing.B) {
		slots := make(chan struct{}, 8)
		for b.Loop() {
			slots <- struct{}{}
			<-slots
		}
	})
	b.Run("semaphore", func(b *testing.B) {
		s := NewSemaphore(8)
		for b.Loop() {
			s.Acquire(context.Background(), 0)
			s.Release()
		}
	})
}
