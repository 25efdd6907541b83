package chaingql_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/chaingql/chaingql"
)

// A network is an in-memory listener for tests in a synctest bubble. The bubble's clock would not advance while a
// goroutine is blocked on a real connection.
type network struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// serve serves h on a new network until the test ends.
func serve(t *testing.T, h http.Handler) *network { return serveBy(t, &http.Server{Handler: h}) }

// serveBy is like serve, but uses the handler and the settings of srv.
func serveBy(t *testing.T, srv *http.Server) *network {
	n := &network{conns: make(chan net.Conn), closed: make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(n)
	}()
	t.Cleanup(func() {
		_ = srv.Close()
		<-done
	})
	return n
}

func (n *network) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

func (n *network) Close() error {
	n.once.Do(func() { close(n.closed) })
	return nil
}

func (n *network) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "memory"} }

func (n *network) dial() (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case n.conns <- far:
		return near, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

// client returns an HTTP client that opens a connection for each request.
func (n *network) client() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return n.dial() },
		DisableKeepAlives: true,
	}}
}

// A wire is a connection on which a test writes raw bytes.
type wire struct {
	net.Conn
	t  *testing.T
	in *bufio.Reader
}

func (n *network) wire(t *testing.T) *wire {
	c, err := n.dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &wire{c, t, bufio.NewReader(c)}
}

// post sends a request with a JSON body. If length is larger than the body, the rest is never sent.
func (w *wire) post(path, body string, length int, header ...string) {
	w.t.Helper()
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n", path, length)
	if _, err := io.WriteString(w, head+strings.Join(append(header, ""), "\r\n")+"\r\n"+body); err != nil {
		w.t.Fatal(err)
	}
}

func (w *wire) response() (status int, body string) {
	w.t.Helper()
	res, err := http.ReadResponse(w.in, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	text, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// A stubBackend is a Backend. Its Balance and Blocks can be replaced. If a function is nil, the method of Backend is
// used.
type stubBackend struct {
	chaingql.Backend
	balance func(context.Context, chaingql.Address) (*big.Int, error)
	blocks  func(context.Context, chaingql.BlocksQuery) ([]chaingql.Block, error)
}

func (a stubBackend) Balance(ctx context.Context, addr chaingql.Address) (*big.Int, error) {
	if a.balance == nil {
		return a.Backend.Balance(ctx, addr)
	}
	return a.balance(ctx, addr)
}

func (a stubBackend) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	if a.blocks == nil {
		return a.Backend.Blocks(ctx, q)
	}
	return a.blocks(ctx, q)
}

// askBalance is the body of a query for one balance, and askBlocks that of a query for the newest block.
const (
	askBalance = `{"query":"{blockchain{account(` +
		`address:\"0:abababababababababababababababababababababababababababababababab\"` +
		`){info{balance(format:DEC)}}}}"}`
	askBlocks = `{"query":"{blockchain{blocks(last:1){edges{cursor}}}}"}`
)

func balanceResponse(nano string) string {
	return `{"data":{"blockchain":{"account":{"info":{"balance":"` + nano + `"}}}}}`
}

// socketRequest is the request that opens a graphql-ws socket.
const socketRequest = "GET /demo/graphql HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
	"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n" +
	"Sec-WebSocket-Protocol: graphql-ws\r\n\r\n"

// maskedFrame returns a text frame with a mask of zeros. text must have 126 to 65,535 bytes.
func maskedFrame(text string) []byte {
	return append([]byte{0x81, 0x80 | 126, byte(len(text) >> 8), byte(len(text)), 0, 0, 0, 0}, text...)
}
