package gqlsse_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/chaingql/chaingql/internal/gqlsse"
)

// An endless Stream always has another event, from a goroutine of its own.
type endless struct {
	events chan gqlsse.Event
	wake   chan struct{}
}

func newEndless(ctx context.Context) *endless {
	s := &endless{make(chan gqlsse.Event, 1), make(chan struct{}, 1)}
	go func() {
		for {
			select {
			case s.events <- event("", "{}"):
			case <-ctx.Done():
				return
			}
			select {
			case s.wake <- struct{}{}:
			default:
			}
		}
	}()
	return s
}

func (s *endless) Pause() {}

func (s *endless) Next() (gqlsse.Event, error) {
	select {
	case e := <-s.events:
		return e, nil
	default:
		return gqlsse.Event{}, nil
	}
}

// A goroutine that is woken runs next, in the time slice of the one that has woken it. So the stream and its source
// could pass the processor to each other for 10 ms and more.
func TestStreamThatAlwaysHasEventsYieldsTheProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	ctx, cancel := context.WithCancel(t.Context())
	var writes atomic.Int64
	done := make(chan error)
	s := newEndless(ctx)
	go func() {
		w := flushing{writeFunc(func([]byte) { writes.Add(1) })}
		done <- gqlsse.Serve(ctx, w, gqlsse.Options{}, s.wake, s)
	}()
	const yields = 30
	for range yields {
		runtime.Gosched()
	}
	if n := writes.Load(); n > 10*yields {
		t.Errorf("%d writes while another goroutine yielded %d times", n, yields)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
