package sse_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql/internal/leak"
	"github.com/chaingql/chaingql/internal/sse"
)

func TestMain(m *testing.M) { leak.Main(m, 5*time.Second) }

// script is a stream that tests feed.
type script struct {
	mu     sync.Mutex
	events []sse.Event
	err    error
	wake   chan struct{}
}

func newScript() *script { return &script{wake: make(chan struct{}, 1)} }

func (s *script) put(err error, events ...sse.Event) {
	s.mu.Lock()
	s.events = append(s.events, events...)
	s.err = err
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *script) Next() (sse.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.events) == 0 {
		return sse.Event{}, s.err
	}
	e := s.events[0]
	s.events = s.events[1:]
	return e, nil
}

func event(id, data string) sse.Event { return sse.Event{ID: id, Data: []byte(data)} }

func TestAStreamIsWrittenAsTheProtocolHasIt(t *testing.T) {
	for name, tc := range map[string]struct {
		events []sse.Event
		err    error
		want   string
	}{
		"events, then complete": {
			[]sse.Event{event("01m", `{"data":1}`), event("", `{"data":2}`)}, io.EOF,
			"event: next\nid: 01m\ndata: {\"data\":1}\n\nevent: next\ndata: {\"data\":2}\n\nevent: complete\ndata:\n\n",
		},
		"a final end is complete": {
			nil, &sse.End{Data: []byte(`{"errors":[]}`), Final: true},
			"event: next\ndata: {\"errors\":[]}\n\nevent: complete\ndata:\n\n",
		},
		"a retriable end just ends": {
			nil, fmt.Errorf("wrapped: %w", &sse.End{Data: []byte(`{"errors":[]}`)}),
			"event: next\ndata: {\"errors\":[]}\n\n",
		},
		"an id with a line break is no id": {
			[]sse.Event{event("1\ndata: forged", `{}`)}, io.EOF,
			"event: next\ndata: {}\n\nevent: complete\ndata:\n\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript()
			s.put(tc.err, tc.events...)
			w := httptest.NewRecorder()
			if err := sse.Serve(t.Context(), w, sse.Options{}, s.wake, s); err != nil {
				t.Fatal(err)
			}
			if got := w.Body.String(); got != ":\n\n"+tc.want {
				t.Errorf("wrote %q\nwant  %q", got, ":\n\n"+tc.want)
			}
			h := w.Result().Header
			if h.Get("Content-Type") != "text/event-stream; charset=utf-8" || h.Get("X-Accel-Buffering") != "no" || h.Get("Cache-Control") != "no-store" {
				t.Errorf("headers %v", h)
			}
		})
	}
}

func TestAnErrorThatCannotBeToldIsReturned(t *testing.T) {
	broken := errors.New("broken")
	s := newScript()
	s.put(broken)
	if err := sse.Serve(t.Context(), httptest.NewRecorder(), sse.Options{}, s.wake, s); !errors.Is(err, broken) {
		t.Errorf("Serve returned %v", err)
	}
}

// A hastened is a ResponseWriter that must not be given a deadline.
type hastened struct {
	*httptest.ResponseRecorder
	t *testing.T
}

func (h hastened) SetWriteDeadline(at time.Time) error {
	h.t.Errorf("a deadline is set to %v", at)
	return nil
}

func TestAStreamWithoutAWriteTimeoutHasNoDeadline(t *testing.T) {
	s := newScript()
	s.put(io.EOF, event("1", "a"))
	if err := sse.Serve(t.Context(), hastened{httptest.NewRecorder(), t}, sse.Options{}, s.wake, s); err != nil {
		t.Error(err)
	}
}

func TestEventsGoOutWhenTheyComeAndHeartbeatsBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		r, w := io.Pipe()
		done := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			done <- sse.Serve(ctx, flushing{w}, sse.Options{Heartbeat: 15 * time.Second}, s.wake, s)
			w.Close()
		}()
		lines := make(chan string, 100)
		go func() {
			defer close(lines)
			for sc := bufio.NewScanner(r); sc.Scan(); {
				if sc.Text() != "" {
					lines <- sc.Text()
				}
			}
		}()
		expect := func(want ...string) {
			t.Helper()
			synctest.Wait()
			for _, line := range want {
				select {
				case got := <-lines:
					if got != line {
						t.Errorf("read %q, want %q", got, line)
					}
				default:
					t.Errorf("nothing read, want %q", line)
				}
			}
			if len(lines) > 0 {
				t.Errorf("read also %q", <-lines)
			}
		}
		expect(":")
		time.Sleep(14 * time.Second)
		expect()
		s.put(nil, event("7", "{}"))
		expect("event: next", "id: 7", "data: {}")
		time.Sleep(2 * time.Second)
		expect(":")
		cancel() // the client leaves
		if err := <-done; err != nil {
			t.Errorf("Serve returned %v", err)
		}
	})
}

type flushing struct{ io.Writer }

func (f flushing) Header() http.Header { return http.Header{} }
func (f flushing) WriteHeader(int)     {}
func (f flushing) Flush()              {}

// wrapped is what logging middleware looks like.
type wrapped struct{ http.ResponseWriter }

func (w wrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func TestAWrappedResponseWriterIsUnwrapped(t *testing.T) {
	s := newScript()
	s.put(io.EOF)
	if err := sse.Serve(t.Context(), wrapped{httptest.NewRecorder()}, sse.Options{}, s.wake, s); err != nil {
		t.Error(err)
	}
}

func TestAResponseWriterThatCannotFlushIsRefusedBeforeAnythingIsWritten(t *testing.T) {
	rec := httptest.NewRecorder()
	hidden := struct{ http.ResponseWriter }{rec}
	s := newScript()
	if err := sse.Serve(t.Context(), hidden, sse.Options{}, s.wake, s); !errors.Is(err, sse.ErrNotFlushable) {
		t.Errorf("Serve returned %v", err)
	}
	if rec.Body.Len() > 0 || rec.Header().Get("Content-Type") != "" {
		t.Errorf("wrote %q with %v", rec.Body, rec.Header())
	}
}

func TestAClientThatDoesNotReadIsCut(t *testing.T) {
	s := newScript()
	ended := make(chan error, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ended <- sse.Serve(r.Context(), w, sse.Options{WriteTimeout: 200 * time.Millisecond}, s.wake, s)
	}))
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	big := strings.Repeat("x", 1<<20)
	for range 64 { // more than any socket buffer
		s.put(nil, event("", big))
	}
	select {
	case err := <-ended:
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Serve returned %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("still writing to a client that does not read")
	}
}

// There may be thousands of streams, and each has had a burst.
func TestAStreamThatWaitsKeepsNoneOfItsBursts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const streams = 100
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		var all sync.WaitGroup
		burst := make([]sse.Event, 64)
		for i := range burst {
			burst[i] = event("1", strings.Repeat("x", 1000))
		}
		before := heap()
		for range streams {
			s := newScript()
			all.Go(func() { _ = sse.Serve(ctx, flushing{io.Discard}, sse.Options{}, s.wake, s) })
			s.put(nil, burst...)
			synctest.Wait()
			s.mu.Lock()
			s.events = nil
			s.mu.Unlock()
		}
		if grown := (heap() - before) / streams; grown > 8<<10 {
			t.Errorf("each keeps %d bytes", grown)
		}
		leave()
		all.Wait()
	})
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
