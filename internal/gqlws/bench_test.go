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

	"github.com/chaingql/chaingql/internal/xsync"
)

// The benchmarks compare kinds of connections. A "TCP" connection is a *net.TCPConn, which supports non-blocking
// writes. A "wrapped" connection has a type that this package does not know, so that it needs goroutines of its own for
// reads and writes.

const benchPeers = 200

var payload = []byte(`{"data":{"blocks":{"id":"` + strings.Repeat("x", 150) + `"}}}`)

// A broadcastSession is the Session of all connections of a benchmark, which sets how many payloads the streams return.
type broadcastSession struct {
	mu      sync.Mutex
	streams []*broadcastStream
}

func (*broadcastSession) Opened(context.Context, string, func() bool) {}
func (*broadcastSession) Init(ctx context.Context, _ []byte) (context.Context, error) {
	return ctx, nil
}
func (*broadcastSession) Limit(string) {}
func (*broadcastSession) Blocked(bool) {}
func (*broadcastSession) Closed(error) {}

func (bs *broadcastSession) Start(context.Context, []byte) (Operation, error) {
	return Operation{Open: func(wake xsync.Waker) (Stream, error) {
		v := &broadcastStream{wake: wake}
		bs.mu.Lock()
		defer bs.mu.Unlock()
		bs.streams = append(bs.streams, v)
		return v, nil
	}}, nil
}

// A broadcastStream returns the same payload as often as remaining says.
type broadcastStream struct {
	wake      xsync.Waker
	remaining atomic.Int64
}

func (v *broadcastStream) Next() ([]byte, bool, error) {
	if v.remaining.Load() == 0 {
		return nil, false, nil
	}
	return payload, v.remaining.Add(-1) > 0, nil
}

func (*broadcastStream) Behind() bool                      { return false }
func (*broadcastStream) Position() (string, *RequestError) { return "", nil }
func (*broadcastStream) Close(error)                       {}

// connectPeers connects benchPeers clients over connections of the given kind. leave disconnects them and shuts the
// server down.
func connectPeers(b *testing.B, kind string, ss Session) (clients []net.Conn, leave func()) {
	b.Helper()
	s := NewServer(Options{WriteTimeout: time.Minute})
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = s.Accept(w, r, ss)
	}))
	switch kind {
	case "TLS":
		srv.StartTLS()
	case "wrapped":
		srv.Listener = countingListener{srv.Listener, new(atomic.Int64)}
		srv.Start()
	default:
		srv.Start()
	}
	leave = func() {
		for _, nc := range clients {
			nc.Close()
		}
		if err := s.Shutdown(context.Background()); err != nil {
			b.Error(err)
		}
		srv.Close()
	}
	r := upgradeRequest("graphql-ws")
	for range benchPeers {
		nc, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		if kind == "TLS" {
			nc = tls.Client(nc, &tls.Config{InsecureSkipVerify: true}) // the certificate of httptest
		}
		clients = append(clients, nc)
		if err := r.Write(nc); err != nil {
			b.Fatal(err)
		}
		// The bufio.Reader can be dropped, because the server has sent no frame yet.
		if _, err := http.ReadResponse(bufio.NewReader(nc), r); err != nil {
			b.Fatal(err)
		}
	}
	return clients, leave
}

// subscribePeers connects clients with one subscription each. received counts the bytes that all clients have read.
func subscribePeers(b *testing.B, kind string) (bs *broadcastSession, received *atomic.Int64, leave func()) {
	b.Helper()
	bs, received = &broadcastSession{}, new(atomic.Int64)
	clients, disconnect := connectPeers(b, kind, bs)
	var wg sync.WaitGroup
	for _, nc := range clients {
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
				received.Add(int64(k))
			}
		})
	}
	for {
		bs.mu.Lock()
		all := len(bs.streams) == benchPeers
		bs.mu.Unlock()
		if all {
			return bs, received, func() { disconnect(); wg.Wait() }
		}
		runtime.Gosched()
	}
}

// benchmarkBroadcast sends the given number of payloads to each client and measures the cost per message. The cost
// includes that of the clients.
func benchmarkBroadcast(b *testing.B, payloads int) {
	frame := int64(len(appendText(nil, legacy{}.appendData(nil, operationID{raw: []byte(`"a"`)}, payload))))
	for _, kind := range []string{"TCP", "wrapped"} {
		b.Run(kind, func(b *testing.B) {
			bs, received, leave := subscribePeers(b, kind)
			defer leave()
			want, before := received.Load(), cpuTime()
			for b.Loop() {
				for _, v := range bs.streams {
					v.remaining.Add(int64(payloads))
					v.wake.Wake()
				}
				want += int64(payloads*benchPeers) * frame
				for received.Load() < want {
					runtime.Gosched()
				}
			}
			messages := float64(b.N * payloads * benchPeers)
			b.ReportMetric(float64((cpuTime()-before).Nanoseconds())/messages, "cpu-ns/message")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/messages, "ns/message")
		})
	}
}

func BenchmarkBroadcast(b *testing.B) { benchmarkBroadcast(b, 1) }
func BenchmarkBurst(b *testing.B)     { benchmarkBroadcast(b, 20) }

// A querySession responds to each query immediately.
type querySession struct{ broadcastSession }

func (*querySession) Start(context.Context, []byte) (Operation, error) {
	return Operation{Run: func(context.Context) []byte { return payload }}, nil
}

// BenchmarkQuery measures the cost of a request and its response when all clients send requests at the same time. The
// cost includes that of the clients.
func BenchmarkQuery(b *testing.B) {
	for _, bc := range []struct {
		name      string
		request   []byte
		responses int // frames
	}{
		{"query", frameOf(true, opText, []byte(`{"id":"b","type":"start","payload":{"query":"{a}"}}`)), 2},
		{"ping", frameOf(true, opPing, []byte("hello")), 1},
	} {
		for _, kind := range []string{"TCP", "TLS", "wrapped"} {
			b.Run(bc.name+"/"+kind, func(b *testing.B) {
				clients, leave := connectPeers(b, kind, &querySession{})
				defer leave()
				before := cpuTime()
				b.ResetTimer()
				var wg sync.WaitGroup
				for _, nc := range clients {
					wg.Go(func() {
						br := bufio.NewReader(nc)
						for range b.N {
							_, err := nc.Write(bc.request)
							for range bc.responses {
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
				requests := float64(b.N * benchPeers)
				b.ReportMetric(float64((cpuTime()-before).Nanoseconds())/requests, "cpu-ns/request")
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/requests, "ns/request")
			})
		}
	}
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkIdle measures how much memory an idle connection with a subscription needs: for its stacks, and for its
// stacks and its part of the heap. Both values include the memory of the client, which runs in the same process.
func BenchmarkIdle(b *testing.B) {
	for _, kind := range []string{"TCP", "wrapped"} {
		b.Run(kind, func(b *testing.B) {
			for b.Loop() {
				var before, after runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				_, _, leave := subscribePeers(b, kind)
				runtime.GC()
				runtime.GC()
				runtime.ReadMemStats(&after)
				stacks := float64(after.StackInuse) - float64(before.StackInuse)
				b.ReportMetric(stacks/benchPeers, "stack-B/conn")
				leave()
				b.ReportMetric((stacks+float64(after.HeapAlloc)-float64(before.HeapAlloc))/benchPeers, "B/conn")
			}
		})
	}
}

// BenchmarkFrame compares the cost of writing a frame with this package and with coder/websocket.
func BenchmarkFrame(b *testing.B) {
	id := operationID{raw: []byte(`"a"`)}
	h := newHandshake(&pipeWriter{conn: discardConn{}, header: http.Header{}}, &Options{})
	ws, err := websocket.Accept(h, upgradeRequest("graphql-ws"), &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err != nil {
		b.Fatal(err)
	}
	defer ws.CloseNow()
	var buf []byte
	b.Run("gqlws", func(b *testing.B) {
		for b.Loop() {
			buf = sealFrame(legacy{}.appendData(openFrame(buf[:0]), id, payload), 0)
			if _, err := h.conn.writeAll(buf); err != nil {
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
	// If all peers with the same operation id shared a frame, this copy would not be necessary.
	b.Run("copy", func(b *testing.B) {
		for b.Loop() {
			buf = sealFrame(legacy{}.appendData(openFrame(buf[:0]), id, payload), 0)
		}
	})
}

// A discardConn discards writes, and its reads return io.EOF.
type discardConn struct{ net.Conn }

func (discardConn) Write(p []byte) (int, error)        { return len(p), nil }
func (discardConn) Read([]byte) (int, error)           { return 0, io.EOF }
func (discardConn) Close() error                       { return nil }
func (discardConn) SetWriteDeadline(t time.Time) error { return nil }
