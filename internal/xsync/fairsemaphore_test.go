package xsync

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestFairSemaphorePassesSlotsInTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewFairSemaphore[string](1)
		if !s.TryAcquire() || s.TryAcquire() {
			t.Fatal("a FairSemaphore with one slot did not pass exactly one")
		}
		var order []string
		var all sync.WaitGroup
		wait := func(key, name string, patience time.Duration) {
			all.Go(func() {
				if !s.Acquire(t.Context(), key, patience) {
					order = append(order, name+" failed")
					return
				}
				order = append(order, name)
				s.Release()
			})
			synctest.Wait()
		}
		for i := range 3 {
			wait("a", fmt.Sprint("a", i), time.Minute)
		}
		wait("b", "b0", time.Second)
		wait("b", "b1", time.Minute)
		wait("c", "c0", time.Minute)
		time.Sleep(time.Second)
		synctest.Wait()
		s.Release()
		all.Wait()
		if got, want := strings.Join(order, " "), "b0 failed a0 b1 c0 a1 a2"; got != want {
			t.Errorf("order %s, want %s", got, want)
		}
		if len(s.waiting) > 0 || s.turns.Len() > 0 || s.free != 1 {
			t.Errorf("at the end, %d keys wait and %d slots are free", len(s.waiting), s.free)
		}
	})
}

func TestFairSemaphoreNeverPassesMoreSlotsThanItHas(t *testing.T) {
	const slots = 3
	s := NewFairSemaphore[int](slots)
	var held, most atomic.Int64
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(i)))
			for range 300 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(300))*time.Microsecond)
				if s.Acquire(ctx, i%7, time.Duration(1+r.IntN(300))*time.Microsecond) {
					n := held.Add(1)
					for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
					}
					time.Sleep(time.Duration(r.IntN(20)) * time.Microsecond)
					held.Add(-1)
					s.Release()
				}
				cancel()
			}
		})
	}
	all.Wait()
	if n := most.Load(); n > slots {
		t.Errorf("%d callers had a slot at once, want at most %d", n, slots)
	}
	if s.free != slots || len(s.waiting) > 0 || s.turns.Len() > 0 {
		t.Errorf("at the end, %d slots are free and %d keys wait", s.free, len(s.waiting))
	}
}

// A caller whose context ends when it receives a slot keeps it, and must release it.
func TestFairSemaphoreLosesNoSlotIfTheContextEnds(t *testing.T) {
	for range 200 {
		s := NewFairSemaphore[int](1)
		s.TryAcquire()
		ctx, cancel := context.WithCancel(t.Context())
		received := make(chan bool)
		go func() { received <- s.Acquire(ctx, 1, time.Minute) }()
		actions := []func(){cancel, s.Release}
		if rand.IntN(2) == 0 {
			slices.Reverse(actions)
		}
		var both sync.WaitGroup
		for _, action := range actions {
			both.Go(action)
		}
		if both.Wait(); <-received {
			s.Release()
		}
		if s.free != 1 {
			t.Fatalf("%d slots are free at the end, want one", s.free)
		}
	}
}
