package chaingql_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/chaingql/chaingql/memchain"
)

// behindProxy replaces the address of the proxy with that of the client. The proxy must set the header itself in
// every request; otherwise clients can choose their address.
func behindProxy(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if addr, err := netip.ParseAddr(r.Header.Get("X-Forwarded-For")); err == nil {
			r.RemoteAddr = addr.String()
		}
		next.ServeHTTP(w, r)
	})
}

// withDebug serves the API and, under /debug/, the handler debug. The mux that routes /debug/ has no wildcard, so its
// patterns do not conflict.
func withDebug(api, debug http.Handler) http.Handler {
	inner := http.NewServeMux()
	chaingql.Mount(inner, "/{project}/graphql", api)
	mux := http.NewServeMux()
	mux.Handle("/debug/", debug)
	mux.Handle("/", inner)
	return mux
}

// boundKernelBuffers bounds the data that the kernel keeps for each client that does not read.
func boundKernelBuffers(server *http.Server) {
	server.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if wrapped, ok := c.(interface{ NetConn() net.Conn }); ok { // TLS
			c = wrapped.NetConn()
		}
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetWriteBuffer(64 << 10)
		}
		return ctx
	}
}

// docs/operations.md shows boundKernelBuffers.
func TestKernelBuffersForUnreadResponsesAreSmall(t *testing.T) {
	realTime(t, "the kernel buffers the data of TCP connections")
	taken := make(chan int, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Second / 4))
		n := 0
		for piece := make([]byte, 16<<10); n < 64<<20; n += len(piece) {
			if _, err := w.Write(piece); err != nil {
				break
			}
		}
		taken <- n
	}))
	boundKernelBuffers(server.Config)
	server.Start()
	defer server.Close()
	c, err := net.DialTCP("tcp", nil, server.Listener.Addr().(*net.TCPAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if n := <-taken; n > 512<<10 {
		t.Errorf("%d bytes were accepted for a client that does not read", n)
	}
}

// docs/operations.md shows behindProxy.
func TestProxyHeaderReplacesTheLoggedAddress(t *testing.T) {
	for header, want := range map[string]string{
		"192.0.2.7": "remote=192.0.2.7", "2001:db8::7": "remote=2001:db8::7", "": "remote=10.0.0.1:4711",
		"192.0.2.7, 10.0.0.9": "remote=10.0.0.1:4711",
	} {
		log := &testkit.Buffer{}
		logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		h, _ := newHandler(t, memchain.New(), chaingql.Options{
			Authorizer: chaingql.StaticProjects{}, Logger: logger,
		})
		r := httptest.NewRequest("GET", "/demo/graphql?query={__typename}", nil)
		r.RemoteAddr = "10.0.0.1:4711"
		r.Header.Set("X-Forwarded-For", header)
		behindProxy(h).ServeHTTP(httptest.NewRecorder(), r)
		if !strings.Contains(log.String(), want) {
			t.Errorf("with the header %q, the log lacks %s: %s", header, want, log)
		}
	}
}
