package xsync

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// A pollable call returns when release is closed or, if it polls, when its context has an error.
func pollable(release <-chan struct{}) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		for ctx.Err() == nil {
			select {
			case <-release:
				return 1, nil
			case <-time.After(time.Second):
			}
		}
		return 0, ctx.Err()
	}
}

func waiting(release <-chan struct{}) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		select {
		case <-release:
			return 1, nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// The context of a call must end when all callers have left, whether the function polls its context or waits for it.
func TestCallEndsWhenAllCallersHaveLeft(t *testing.T) {
	for name, form := range map[string]func(<-chan struct{}) func(context.Context) (int, error){
		"polls": pollable, "waits": waiting,
	} {
		for _, stays := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				var g Group[string, int]
				release := make(chan struct{})
				results := make(chan error, 3)
				contexts := make([]context.CancelFunc, 3)
				for i := range contexts {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					contexts[i] = cancel
					go func() {
						_, err := g.Do(ctx, "key", nil, form(release))
						results <- err
					}()
					synctest.Wait()
				}
				contexts[0]()
				contexts[1]()
				if err := <-results; !errors.Is(err, context.Canceled) {
					t.Errorf("%s: a caller that left received %v", name, err)
				}
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if len(results) > 0 {
					t.Errorf("%s: the call ended although a caller waits for it", name)
				}
				if stays {
					close(release)
				} else {
					contexts[2]()
				}
				failed := 0
				for range 2 {
					if err := <-results; err != nil {
						failed++
					}
				}
				if want := map[bool]int{true: 1, false: 2}[stays]; failed != want {
					t.Errorf("%s: %d callers failed, want %d", name, failed, want)
				}
				if len(g.calls) > 0 {
					t.Errorf("%s: %d calls are kept", name, len(g.calls))
				}
			})
		}
	}
}

func TestContextIsCanceledWhenCallReturns(t *testing.T) {
	var g Group[string, int]
	for _, form := range []func(context.Context) (int, error){
		func(context.Context) (int, error) { return 1, nil },
		func(ctx context.Context) (int, error) { return 1, context.Cause(ctx) },
		func(ctx context.Context) (int, error) { ctx.Done(); return 1, nil },
	} {
		var kept context.Context
		type key struct{}
		asker := context.WithValue(t.Context(), key{}, "secret")
		v, err := g.Do(asker, "key", nil, func(ctx context.Context) (int, error) {
			kept = ctx
			if _, ok := ctx.Deadline(); ok || ctx.Err() != nil || ctx.Value(key{}) != nil {
				t.Errorf("the context has a deadline, an error or a value of the caller")
			}
			return form(ctx)
		})
		if v != 1 || err != nil {
			t.Errorf("Do returned %v and error %v, want 1", v, err)
		}
		<-kept.Done()
		if !errors.Is(kept.Err(), context.Canceled) {
			t.Errorf("after the call, its context has error %v", kept.Err())
		}
	}
}

func TestWaitForASharedCallIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := Group[string, int]{Wait: time.Minute, JoinWithin: 2 * time.Minute}
		release := make(chan struct{})
		go func() { _, _ = g.Do(t.Context(), "key", nil, waiting(release)) }()
		synctest.Wait()
		start := time.Now()
		_, err := g.Do(t.Context(), "key", nil, waiting(release))
		if took := time.Since(start); !errors.Is(err, ErrWaited) || took != time.Minute {
			t.Errorf("Do returned %v after %v, want ErrWaited after a minute", err, took)
		}
		time.Sleep(time.Minute)
		go close(release)
		two := func(context.Context) (int, error) { return 2, nil }
		if v, err := g.Do(t.Context(), "key", nil, two); v != 2 || err != nil {
			t.Errorf("Do after JoinWithin returned %v and error %v, want its own call", v, err)
		}
	})
}

// A caller's context may live much longer than a call, such as that of a socket.
func TestCallersContextKeepsNoResultsOfEndedCalls(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var g Group[int, []byte]
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for i := range 100 {
		_, _ = g.Do(ctx, i, nil, func(ctx context.Context) ([]byte, error) {
			ctx.Done()
			return make([]byte, 1<<20), nil
		})
	}
	if grown := int64(heap()) - int64(before); grown > 10<<20 {
		t.Errorf("100 calls with results of 1 MB left %d bytes", grown)
	}
	runtime.KeepAlive(&g)
}

// A testSlot is a slot of a FairSemaphore.
type testSlot struct {
	*FairSemaphore[string]
	key string
}

func (s testSlot) Acquire(ctx context.Context) error {
	if !s.FairSemaphore.Acquire(ctx, s.key, time.Minute) {
		return context.Cause(ctx)
	}
	return nil
}

func (s testSlot) TryAcquire() bool { return s.FairSemaphore.TryAcquire(s.key) }
func (s testSlot) Release()         { s.FairSemaphore.Release(s.key) }

func TestFirstCallerWithASlotMakesTheCallForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group[string, string]
		s := NewFairSemaphore[string](1)
		s.TryAcquire("before")
		calls := 0
		results := make(chan string, 10)
		do := func(ctx context.Context, client, key string) {
			go func() {
				v, err := g.Do(ctx, key, testSlot{s, client}, func(context.Context) (string, error) {
					calls++
					time.Sleep(time.Second)
					return client, nil
				})
				if err != nil {
					v = err.Error()
				}
				results <- v
			}()
			synctest.Wait()
		}
		do(t.Context(), "busy", "other")
		do(t.Context(), "busy", "shared")
		do(t.Context(), "idle", "shared")
		ctx, cancel := context.WithCancel(t.Context())
		do(ctx, "gone", "shared")
		cancel()
		if got := <-results; got != context.Canceled.Error() {
			t.Errorf("a caller that left while it waited for a slot received %q", got)
		}
		s.Release("before")
		for i, want := range []string{"busy", "idle", "idle"} {
			if got := <-results; got != want {
				t.Errorf("caller %d received the result of %q, want that of %q", i, got, want)
			}
		}
		synctest.Wait()
		if calls != 2 || len(g.next) > 0 || len(g.calls) > 0 || s.free != 1 || len(s.waiting) > 0 {
			t.Errorf("%d calls were made, want 2; %d callers and %d calls are kept, %d slots are free", calls,
				len(g.next), len(g.calls), s.free)
		}
	})
}
