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

// A network is a listener in memory, for tests in a bubble of testing/synctest,
// where a socket of the system would stop the clock.
type network struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// serve lets h be reached over a network of its own until the test ends.
func serve(t *testing.T, h http.Handler) *network { return serveBy(t, &http.Server{Handler: h}) }

// serveBy is serve with a host's own settings.
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

// client speaks HTTP over the network, one connection for each request.
func (n *network) client() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return n.dial() },
		DisableKeepAlives: true,
	}}
}

// A wire is one connection whose bytes the test writes itself.
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

// say sends a request with a JSON body; of one that is declared longer than
// body, the rest never comes.
func (w *wire) say(path, body string, length int, header ...string) {
	w.t.Helper()
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", path, length)
	if _, err := io.WriteString(w, head+strings.Join(append(header, ""), "\r\n")+"\r\n"+body); err != nil {
		w.t.Fatal(err)
	}
}

func (w *wire) hear() (status int, body string) {
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

// altered is a Backend some of whose calls are the test's own.
type altered struct {
	chaingql.Backend
	balance func(context.Context, chaingql.Address) (*big.Int, error)
	blocks  func(context.Context, chaingql.BlocksQuery) ([]chaingql.Block, error)
}

func (a altered) Balance(ctx context.Context, addr chaingql.Address) (*big.Int, error) {
	if a.balance == nil {
		return a.Backend.Balance(ctx, addr)
	}
	return a.balance(ctx, addr)
}

func (a altered) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	if a.blocks == nil {
		return a.Backend.Blocks(ctx, q)
	}
	return a.blocks(ctx, q)
}

// askBalance is a request for one balance and blocks for the page of the newest.
const (
	askBalance = `{"query":"{blockchain{account(address:\"0:abababababababababababababababababababababababababababababababab\"){info{balance(format:DEC)}}}}"}`
	askBlocks  = `{"query":"{blockchain{blocks(last:1){edges{cursor}}}}"}`
)

func balanceAnswer(nano string) string {
	return `{"data":{"blockchain":{"account":{"info":{"balance":"` + nano + `"}}}}}`
}
