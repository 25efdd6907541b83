//go:build unix

package gqlws

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// What each of the ways here to spare work brings. "At once" is a connection as
// it comes from net/http; "wrapped" is one whose type is not known, so that it is
// read and written to by goroutines of its own, a frame at a time.

const listeners = 200

var payload = []byte(`{"data":{"blocks":{"id":"` + strings.Repeat("x", 150) + `"}}}`)

// A choir is the Session of all connections. Its streams have a payload as often
// as they are told.
type choir struct {
	mu     sync.Mutex
	voices []*voice
}

func (*choir) Opened(context.Context, string)                              {}
func (*choir) Init(ctx context.Context, _ []byte) (context.Context, error) { return ctx, nil }
func (*choir) Limit(string)                                                {}
func (*choir) Closed(error)                                                {}

func (ch *choir) Start(context.Context, []byte) (Operation, error) {
	return Operation{Open: func(wake func()) (Stream, error) {
		v := &voice{wake: wake}
		ch.mu.Lock()
		defer ch.mu.Unlock()
		ch.voices = append(ch.voices, v)
		return v, nil
	}}, nil
}

type voice struct {
	wake func()
	left atomic.Int64
}

func (v *voice) Next() ([]byte, error) {
	if v.left.Load() == 0 {
		return nil, nil
	}
	v.left.Add(-1)
	return payload, nil
}

func (*voice) Pending() *RequestError { return nil }
func (*voice) Cursor() string         { return "" }
func (*voice) Close(error)            {}

// seated connects callers, and leave sends them home.
func seated(b *testing.B, kind string, ss Session) (callers []net.Conn, leave func()) {
	b.Helper()
	s := NewServer(Options{WriteTimeout: time.Minute})
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _ = s.Accept(w, r, ss) }))
	switch kind {
	case "TLS":
		srv.StartTLS()
	case "wrapped":
		srv.Listener = watching{srv.Listener, new(atomic.Int64)}
		srv.Start()
	default:
		srv.Start()
	}
	leave = func() {
		for _, nc := range callers {
			nc.Close()
		}
		if err := s.Shutdown(context.Background()); err != nil {
			b.Error(err)
		}
		srv.Close()
	}
	r := upgradeRequest("graphql-ws")
	for range listeners {
		nc, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		if kind == "TLS" {
			nc = tls.Client(nc, &tls.Config{InsecureSkipVerify: true}) // a certificate of httptest's
		}
		callers = append(callers, nc)
		if err := r.Write(nc); err != nil {
			b.Fatal(err)
		}
		// The reader has read nothing ahead: nothing was sent.
		if _, err := http.ReadResponse(bufio.NewReader(nc), r); err != nil {
			b.Fatal(err)
		}
	}
	return callers, leave
}

// audience connects callers that listen to a stream each; heard counts what they
// have read, in bytes.
func audience(b *testing.B, kind string) (ch *choir, heard *atomic.Int64, leave func()) {
	b.Helper()
	ch, heard = &choir{}, new(atomic.Int64)
	callers, part := seated(b, kind, ch)
	var wg sync.WaitGroup
	for _, nc := range callers {
		if _, err := nc.Write(frameOf(true, opText, []byte(startA))); err != nil {
			b.Fatal(err)
		}
		wg.Go(func() {
			buf := make([]byte, 8<<10)
			for {
				k, err := nc.Read(buf)
				if err != nil {
					return
				}
				heard.Add(int64(k))
			}
		})
	}
	for {
		ch.mu.Lock()
		all := len(ch.voices) == listeners
		ch.mu.Unlock()
		if all {
			return ch, heard, func() { part(); wg.Wait() }
		}
		runtime.Gosched()
	}
}

// benchmarkSpeech has everybody told a number of payloads, and measures what a
// message costs, its reader included.
func benchmarkSpeech(b *testing.B, payloads int) {
	frame := int64(len(appendText(nil, legacy{}.appendData(nil, identity{echo: []byte(`"a"`)}, payload))))
	for _, kind := range []string{"at once", "wrapped"} {
		b.Run(kind, func(b *testing.B) {
			ch, heard, leave := audience(b, kind)
			defer leave()
			want, before := heard.Load(), processor()
			for b.Loop() {
				for _, v := range ch.voices {
					v.left.Add(int64(payloads))
					v.wake()
				}
				want += int64(payloads*listeners) * frame
				for heard.Load() < want {
					runtime.Gosched()
				}
			}
			messages := float64(b.N * payloads * listeners)
			b.ReportMetric(float64((processor()-before).Nanoseconds())/messages, "cpu-ns/message")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/messages, "ns/message")
		})
	}
}

func BenchmarkOneForAll(b *testing.B) { benchmarkSpeech(b, 1) }
func BenchmarkBurst(b *testing.B)     { benchmarkSpeech(b, 20) }

// An oracle is the Session of all who ask it something.
type oracle struct{ choir }

func (*oracle) Start(context.Context, []byte) (Operation, error) {
	return Operation{Run: func(context.Context) []byte { return payload }}, nil
}

// BenchmarkQuestion tells what a question and its answer cost when all ask at
// once, those who ask included.
func BenchmarkQuestion(b *testing.B) {
	for _, bc := range []struct {
		name    string
		asked   []byte
		answers int // frames
	}{
		{"query", frameOf(true, opText, []byte(`{"id":"b","type":"start","payload":{"query":"{a}"}}`)), 2},
		{"ping", frameOf(true, opPing, []byte("hello")), 1},
	} {
		for _, kind := range []string{"TCP", "TLS", "wrapped"} {
			b.Run(bc.name+"/"+kind, func(b *testing.B) {
				callers, leave := seated(b, kind, &oracle{})
				defer leave()
				before := processor()
				b.ResetTimer()
				var wg sync.WaitGroup
				for _, nc := range callers {
					wg.Go(func() {
						br := bufio.NewReader(nc)
						for range b.N {
							_, err := nc.Write(bc.asked)
							for range bc.answers {
								if err == nil {
									_, _, err = readServerFrame(br)
								}
							}
							if err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				questions := float64(b.N * listeners)
				b.ReportMetric(float64((processor()-before).Nanoseconds())/questions, "cpu-ns/question")
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/questions, "ns/question")
			})
		}
	}
}

func processor() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkIdle tells the memory of idle subscribed connections: that of their
// stacks, and all of it. Their peers, in this process too, add the same to both.
func BenchmarkIdle(b *testing.B) {
	for _, kind := range []string{"at once", "wrapped"} {
		b.Run(kind, func(b *testing.B) {
			for b.Loop() {
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				_, _, leave := audience(b, kind)
				runtime.GC()
				runtime.GC()
				runtime.ReadMemStats(&after)
				stacks := float64(after.StackInuse) - float64(before.StackInuse)
				b.ReportMetric(stacks/listeners, "stack-B/conn")
				leave()
				b.ReportMetric((stacks+float64(after.HeapAlloc)-float64(before.HeapAlloc))/listeners, "B/conn")
			}
		})
	}
}

// BenchmarkFrame compares frames made here with the library's.
func BenchmarkFrame(b *testing.B) {
	id := identity{echo: []byte(`"a"`)}
	h := newHandshake(&pipeWriter{conn: sink{}, header: http.Header{}}, &Options{})
	ws, err := websocket.Accept(h, upgradeRequest("graphql-ws"), &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		b.Fatal(err)
	}
	defer ws.CloseNow()
	var buf []byte
	b.Run("here", func(b *testing.B) {
		for b.Loop() {
			buf = sealFrame(legacy{}.appendData(openFrame(buf[:0]), id, payload), 0)
			if _, err := h.conn.put(buf); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("library", func(b *testing.B) {
		for b.Loop() {
			buf = legacy{}.appendData(buf[:0], id, payload)
			if err := ws.Write(context.Background(), websocket.MessageText, buf); err != nil {
				b.Fatal(err)
			}
		}
	})
	// A frame ready-made for all who use the same id would spare this:
	b.Run("copy", func(b *testing.B) {
		for b.Loop() {
			buf = sealFrame(legacy{}.appendData(openFrame(buf[:0]), id, payload), 0)
		}
	})
}

// A sink takes everything and gives nothing.
type sink struct{ net.Conn }

func (sink) Write(p []byte) (int, error)        { return len(p), nil }
func (sink) Read([]byte) (int, error)           { return 0, io.EOF }
func (sink) Close() error                       { return nil }
func (sink) SetWriteDeadline(t time.Time) error { return nil }
