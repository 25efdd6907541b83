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
						_, err := g.Do(ctx, "key", form(release))
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
		v, err := g.Do(asker, "key", func(ctx context.Context) (int, error) {
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
		go func() { _, _ = g.Do(t.Context(), "key", waiting(release)) }()
		synctest.Wait()
		start := time.Now()
		_, err := g.Do(t.Context(), "key", waiting(release))
		if took := time.Since(start); !errors.Is(err, ErrWaited) || took != time.Minute {
			t.Errorf("Do returned %v after %v, want ErrWaited after a minute", err, took)
		}
		time.Sleep(time.Minute)
		go close(release)
		two := func(context.Context) (int, error) { return 2, nil }
		if v, err := g.Do(t.Context(), "key", two); v != 2 || err != nil {
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
		_, _ = g.Do(ctx, i, func(ctx context.Context) ([]byte, error) { ctx.Done(); return make([]byte, 1<<20), nil })
	}
	if grown := int64(heap()) - int64(before); grown > 10<<20 {
		t.Errorf("100 calls with results of 1 MB left %d bytes", grown)
	}
	runtime.KeepAlive(&g)
}
