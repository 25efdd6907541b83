package chaingql_test

import (
	"bufio"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// goneWriter is the ResponseWriter of a client that has disconnected.
type goneWriter struct{ http.ResponseWriter }

func (goneWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	here, there := net.Pipe()
	here.Close()
	return there, bufio.NewReadWriter(bufio.NewReader(there), bufio.NewWriter(there)), nil
}

func TestPeerLeavesIfItDisconnectsDuringTheHandshake(t *testing.T) {
	h, _ := newHandler(t, memchain.New(), chaingql.Options{})
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "/demo/graphql", nil)
	for name, value := range map[string]string{
		"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
		"Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Protocol": "graphql-ws",
	} {
		r.Header.Set(name, value)
	}
	h.ServeHTTP(goneWriter{w}, r)
	if w.Body.Len() > 0 || h.Peers() > 0 {
		t.Errorf("got response %q, and %d peers are kept", w.Body, h.Peers())
	}
}
