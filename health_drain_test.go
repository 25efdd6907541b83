package chaingql_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
)

func TestDrainReturnsWhenItsContextIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHandler(t, newBreakable(), chaingql.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		h.Drain(ctx, time.Hour)
		equal(t, "duration of Drain", time.Since(began), time.Second)
	})
}

// A probe shows for how long the instance has been draining, however many calls there were.
func TestDrainingBeginsWithTheFirstCall(t *testing.T) {
	for name, first := range map[string]func(t *testing.T, h *chaingql.Handler){
		"Drain": func(t *testing.T, h *chaingql.Handler) { h.Drain(t.Context(), time.Second) },
		"Shutdown": func(t *testing.T, h *chaingql.Handler) {
			if err := h.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBreakable()
				b.grow(t, 1)
				h, _ := newHandler(t, b, chaingql.Options{})
				first(t, h)
				began := time.Now()
				h.Drain(t.Context(), 2*time.Second)
				equal(t, "duration of the second call", time.Since(began), 2*time.Second)
				if err := h.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
				status, state := probe(t, h)
				if status != 503 || state["draining"]["active"] != true || state["draining"]["for_s"] != 3.0 {
					t.Errorf("after three calls in 3 s, the status is %d, want 503 and 3 s of draining: %v", status,
						state)
				}
			})
		})
	}
}

// The state of the Backend has the age of the call that observed it.
func TestProbeShowsTheAgeOfTheBackendsState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreakable()
		h, _ := newHandler(t, b, chaingql.Options{})
		for _, c := range []struct {
			sleep time.Duration
			age   float64
		}{{0, 0}, {700 * time.Millisecond, 0.7}, {time.Hour, 0}, {900 * time.Millisecond, 0.9}} {
			time.Sleep(c.sleep)
			_, state := probe(t, h)
			equal(t, "age", state["backend"]["age_s"], any(c.age))
		}
	})
}

// The client of a probe may leave, but others share its call.
func TestProbeThatWasCanceledDoesNotEndTheCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreakable()
		h, _ := newHandler(t, stubBackend{Backend: b,
			blocks: func(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
				time.Sleep(time.Second / 2)
				return nil, ctx.Err()
			}}, chaingql.Options{})
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		for _, ctx := range []context.Context{canceled, t.Context()} {
			if err := h.Health(ctx).BackendErr; err != nil {
				t.Errorf("the check failed with %v", err)
			}
		}
	})
}

func TestConcurrentProbesWaitForTheSameCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHandler(t, stubBackend{Backend: newBreakable(),
			blocks: func(context.Context, chaingql.BlocksQuery) ([]chaingql.Block, error) {
				time.Sleep(time.Second / 2)
				return nil, errors.New("down")
			}}, chaingql.Options{})
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				if h.Health(t.Context()).BackendErr == nil {
					t.Error("a probe reported a Backend that had not answered")
				}
			})
		}
		all.Wait()
	})
}

// Probes arrive every second, so an outage would otherwise write a line for each.
func TestBackendCheckLogsOnlyChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBreakable()
		h, log := newHandler(t, b, chaingql.Options{})
		for range 2 {
			b.breakDown(errors.New("connection refused"))
			for range 60 {
				h.Health(t.Context())
				time.Sleep(time.Second)
			}
			b.restore()
			for range 60 {
				h.Health(t.Context())
				time.Sleep(time.Second)
			}
		}
		for _, line := range []string{"backend check failed", "backend check succeeded after a failure"} {
			equal(t, line, strings.Count(log.String(), line), 2)
		}
	})
}
