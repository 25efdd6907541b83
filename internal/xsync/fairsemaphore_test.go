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
		if !s.TryAcquire("a") || s.TryAcquire("b") {
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
				s.Release(key)
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
		s.Release("a")
		all.Wait()
		if got, want := strings.Join(order, " "), "b0 failed a0 b1 c0 a1 a2"; got != want {
			t.Errorf("order %s, want %s", got, want)
		}
		if len(s.waiting) > 0 || s.turns.Len() > 0 || s.free != 1 {
			t.Errorf("at the end, %d keys wait and %d slots are free", len(s.waiting), s.free)
		}
	})
}

func TestSharedSemaphoreLeavesSlotsToOtherKeys(t *testing.T) {
	for slots, want := range map[int][]int{
		1: {1, 0}, 2: {1, 1, 0}, 3: {2, 1, 0}, 4: {2, 1, 1, 0}, 24: {14, 5, 3, 1, 1, 0}, 64: {36, 14, 7, 4, 2, 1, 0},
	} {
		s := NewSharedSemaphore[string](slots)
		var got []int
		for key := 'a'; len(got) < len(want); key++ {
			n := 0
			for s.TryAcquire(string(key)) {
				n++
			}
			got = append(got, n)
		}
		if !slices.Equal(got, want) {
			t.Errorf("of %d slots, the keys received %v, want %v", slots, got, want)
		}
		for i, n := range got {
			for range n {
				s.Release(string(rune('a' + i)))
			}
		}
		if s.free != slots || len(s.held) > 0 {
			t.Errorf("at the end, %d of %d slots are free, and %d keys have some", s.free, slots, len(s.held))
		}
	}
}

// A key with as many slots as are free waits until it releases one or more are free. Others overtake it.
func TestSharedSemaphorePassesSlotsToKeysThatMayHaveThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewSharedSemaphore[string](4)
		received := make(chan string, 4)
		wait := func(key string) {
			go func() {
				if s.Acquire(t.Context(), key, time.Minute) {
					received <- key
				}
			}()
			synctest.Wait()
		}
		expect := func(want ...string) {
			t.Helper()
			synctest.Wait()
			for _, key := range want {
				if got := <-received; got != key {
					t.Errorf("%s received a slot, want %s", got, key)
				}
			}
			if len(received) > 0 {
				t.Errorf("%d further slots were passed", len(received))
			}
		}
		for range 4 {
			wait("a")
		}
		expect("a", "a")
		wait("b")
		expect("b")
		s.Release("b") // a has as many as are free
		expect()
		s.Release("a")
		expect("a")
		wait("b")
		expect("b")
		wait("c")
		expect("c") // the last one
		s.Release("c")
		s.Release("b")
		expect()
		s.Release("a")
		expect("a")
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
					s.Release(i % 7)
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
		s.TryAcquire(1)
		ctx, cancel := context.WithCancel(t.Context())
		received := make(chan bool)
		go func() { received <- s.Acquire(ctx, 1, time.Minute) }()
		actions := []func(){cancel, func() { s.Release(1) }}
		if rand.IntN(2) == 0 {
			slices.Reverse(actions)
		}
		var both sync.WaitGroup
		for _, action := range actions {
			both.Go(action)
		}
		if both.Wait(); <-received {
			s.Release(1)
		}
		if s.free != 1 {
			t.Fatalf("%d slots are free at the end, want one", s.free)
		}
	}
}
