package gqlsse_test

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

	"github.com/chaingql/chaingql/internal/gqlsse"
	"github.com/chaingql/chaingql/internal/testkit"
)

func TestMain(m *testing.M) { testkit.RunWithoutLeaks(m, 5*time.Second) }

// A script is a Stream that returns the events and the error that put has added.
type script struct {
	mu     sync.Mutex
	events []gqlsse.Event
	err    error
	wake   chan struct{}
}

func newScript() *script { return &script{wake: make(chan struct{}, 1)} }

func (s *script) put(err error, events ...gqlsse.Event) {
	s.mu.Lock()
	s.events = append(s.events, events...)
	s.err = err
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *script) Next() (gqlsse.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.events) == 0 {
		return gqlsse.Event{}, s.err
	}
	e := s.events[0]
	s.events = s.events[1:]
	return e, nil
}

func (s *script) Pause() {}

func event(id, data string) gqlsse.Event { return gqlsse.Event{ID: id, Data: []byte(data)} }

func TestStreamFollowsProtocol(t *testing.T) {
	for name, tc := range map[string]struct {
		events []gqlsse.Event
		err    error
		want   string
	}{
		"events, then complete": {
			[]gqlsse.Event{event("01m", `{"data":1}`), event("", `{"data":2}`)}, io.EOF,
			"event: next\nid: 01m\ndata: {\"data\":1}\n\nevent: next\ndata: {\"data\":2}\n\nevent: complete\ndata:\n\n",
		},
		"a final end sends complete": {
			nil, &gqlsse.End{Data: []byte(`{"errors":[]}`), Final: true},
			"event: next\ndata: {\"errors\":[]}\n\nevent: complete\ndata:\n\n",
		},
		"a retriable end sends no complete": {
			nil, fmt.Errorf("wrapped: %w", &gqlsse.End{Data: []byte(`{"errors":[]}`)}),
			"event: next\ndata: {\"errors\":[]}\n\n",
		},
		"an id with a line break is omitted": {
			[]gqlsse.Event{event("1\ndata: forged", `{}`)}, io.EOF,
			"event: next\ndata: {}\n\nevent: complete\ndata:\n\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript()
			s.put(tc.err, tc.events...)
			w := httptest.NewRecorder()
			if err := gqlsse.Serve(t.Context(), w, gqlsse.Options{}, s.wake, s); err != nil {
				t.Fatal(err)
			}
			if got := w.Body.String(); got != ":\n\n"+tc.want {
				t.Errorf("wrote %q\nwant  %q", got, ":\n\n"+tc.want)
			}
			h := w.Result().Header
			if h.Get("Content-Type") != "text/event-stream; charset=utf-8" || h.Get("X-Accel-Buffering") != "no" ||
				h.Get("Cache-Control") != "no-store" {
				t.Errorf("received the headers %v, want those of an event stream that is not cached", h)
			}
		})
	}
}

func TestServeReturnsStreamError(t *testing.T) {
	broken := errors.New("broken")
	s := newScript()
	s.put(broken)
	if err := gqlsse.Serve(t.Context(), httptest.NewRecorder(), gqlsse.Options{}, s.wake, s); !errors.Is(err, broken) {
		t.Errorf("Serve returned %v, want %v", err, broken)
	}
}

func TestLargeWritesAreCounted(t *testing.T) {
	large := event("1", strings.Repeat("x", 5000))
	for name, granted := range map[string]bool{"granted": true, "refused": false} {
		t.Run(name, func(t *testing.T) {
			s := newScript()
			s.put(io.EOF, large)
			var counts []int
			count := func(n int) bool { counts = append(counts, n); return granted }
			w := httptest.NewRecorder()
			err := gqlsse.Serve(t.Context(), w, gqlsse.Options{Count: count}, s.wake, s)
			if granted && (err != nil || len(counts) != 2 || counts[0] < 5000 || counts[1] != -counts[0]) {
				t.Errorf("Serve returned %v and counted %v, want nil and one write of at least 5000 bytes", err, counts)
			}
			if !granted && (!errors.Is(err, os.ErrDeadlineExceeded) || len(counts) != 1 || w.Body.Len() > 100) {
				t.Errorf("Serve returned %v and counted %v, want %v and no event", err, counts, os.ErrDeadlineExceeded)
			}
		})
	}
}

// A small write is not counted. If the client does not read it, the write must not keep the buffer of a large one.
func TestBufferOfALargeWriteIsNotReusedForASmallOne(t *testing.T) {
	s, sizes := newScript(), []int{}
	w := flushing{writeFunc(func(p []byte) { sizes = append(sizes, cap(p)) })}
	s.put(io.EOF, event("1", strings.Repeat("x", 100<<10)), event("2", "{}"))
	if err := gqlsse.Serve(t.Context(), w, gqlsse.Options{}, nil, s); err != nil {
		t.Fatal(err)
	}
	if last := sizes[len(sizes)-1]; len(sizes) < 2 || last > 4<<10 {
		t.Errorf("the writes had buffers of %d bytes, want at most %d for the last", sizes, 4<<10)
	}
}

// A writeFunc is an io.Writer that passes what is written to a function.
type writeFunc func([]byte)

func (f writeFunc) Write(p []byte) (int, error) {
	f(p)
	return len(p), nil
}

func TestEventsAndHeartbeatsAreFlushed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		r, w := io.Pipe()
		done := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			done <- gqlsse.Serve(ctx, flushing{w}, gqlsse.Options{KeepAliveInterval: 15 * time.Second}, s.wake, s)
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
				t.Errorf("read %q, want nothing more", <-lines)
			}
		}
		expect(":")
		time.Sleep(14 * time.Second)
		expect()
		s.put(nil, event("7", "{}"))
		expect("event: next", "id: 7", "data: {}")
		time.Sleep(2 * time.Second)
		expect(":")
		cancel() // the client disconnects
		if err := <-done; err != nil {
			t.Errorf("Serve returned %v, want nil after the client has disconnected", err)
		}
	})
}

type flushing struct{ io.Writer }

func (f flushing) Header() http.Header { return http.Header{} }
func (f flushing) WriteHeader(int)     {}
func (f flushing) Flush()              {}

// wrapped is a ResponseWriter as logging middleware wraps it.
type wrapped struct{ http.ResponseWriter }

func (w wrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func TestWrappedResponseWriterIsUnwrapped(t *testing.T) {
	s := newScript()
	s.put(io.EOF)
	if err := gqlsse.Serve(t.Context(), wrapped{httptest.NewRecorder()}, gqlsse.Options{}, s.wake, s); err != nil {
		t.Error(err)
	}
}

func TestServeRejectsUnflushableResponseWriterBeforeWriting(t *testing.T) {
	rec := httptest.NewRecorder()
	hidden := struct{ http.ResponseWriter }{rec}
	s := newScript()
	if err := gqlsse.Serve(t.Context(), hidden, gqlsse.Options{}, s.wake, s); !errors.Is(err, gqlsse.ErrNotFlushable) {
		t.Errorf("Serve returned %v, want %v", err, gqlsse.ErrNotFlushable)
	}
	if rec.Body.Len() > 0 || rec.Header().Get("Content-Type") != "" {
		t.Errorf("wrote %q with headers %v, want nothing", rec.Body, rec.Header())
	}
}

func TestWriteTimeoutEndsStreamIfClientDoesNotRead(t *testing.T) {
	s := newScript()
	ended := make(chan error, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ended <- gqlsse.Serve(r.Context(), w, gqlsse.Options{WriteTimeout: 200 * time.Millisecond}, s.wake, s)
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
	for range 64 { // larger than any socket buffer
		s.put(nil, event("", big))
	}
	select {
	case err := <-ended:
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Serve returned %v, want %v", err, os.ErrDeadlineExceeded)
		}
	case <-time.After(20 * time.Second):
		t.Error("Serve is still writing to a client that does not read")
	}
}

// A service may have thousands of idle streams, each of which has sent a burst of events before.
func TestIdleStreamReleasesBurstMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const streams = 100
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		var all sync.WaitGroup
		burst := make([]gqlsse.Event, 64)
		for i := range burst {
			burst[i] = event("1", strings.Repeat("x", 1000))
		}
		before := heap()
		for range streams {
			s := newScript()
			all.Go(func() { _ = gqlsse.Serve(ctx, flushing{io.Discard}, gqlsse.Options{}, s.wake, s) })
			s.put(nil, burst...)
			synctest.Wait()
			s.mu.Lock()
			s.events = nil
			s.mu.Unlock()
		}
		if grown := (heap() - before) / streams; grown > 8<<10 {
			t.Errorf("each idle stream keeps %d bytes, want at most %d", grown, 8<<10)
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

func TestBlockedIsReportedDuringEachWrite(t *testing.T) {
	s, blocked, writes := newScript(), false, 0
	s.put(io.EOF, event("1", "{}"))
	w := flushing{writeFunc(func([]byte) {
		if writes++; !blocked {
			t.Error("a write is not reported as blocked")
		}
	})}
	o := gqlsse.Options{Blocked: func(b bool) { blocked = b }}
	if err := gqlsse.Serve(t.Context(), w, o, nil, s); err != nil || blocked || writes < 2 {
		t.Errorf("Serve returned %v after %d writes and blocked is %v, want nil, 2 and false", err, writes, blocked)
	}
}
