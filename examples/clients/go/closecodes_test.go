package chain_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/coder/websocket"

	client "github.com/chaingql/chaingql/examples/clients/go"
)

// TestConnectionClosedByServerIsReplaced closes the first connection with codes that mean that another attempt may
// succeed.
func TestConnectionClosedByServerIsReplaced(t *testing.T) {
	s := serve(t)
	s.grow(1)
	for _, code := range []websocket.StatusCode{
		websocket.StatusNormalClosure, websocket.StatusGoingAway, websocket.StatusServiceRestart,
		websocket.StatusTryAgainLater, websocket.StatusBadGateway,
		4408, // connection_init arrived too late
	} {
		t.Run(fmt.Sprint(int(code)), func(t *testing.T) {
			var connections atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if connections.Add(1) > 1 {
					r.SetPathValue("project", "shop")
					s.handler.Load().ServeHTTP(w, r)
					return
				}
				conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{
					Subprotocols: []string{"graphql-transport-ws"}})
				if err == nil {
					_ = conn.Close(code, "")
				}
			}))
			defer server.Close()
			for _, err := range client.New(server.URL, "shop", "s3cret").Blocks(soon(t), "", nil) {
				if err != nil {
					t.Errorf("Blocks ended with %v, want another connection", err)
				}
				break
			}
			if n := connections.Load(); n != 2 {
				t.Errorf("the client opened %d connections, want 2", n)
			}
		})
	}
}
