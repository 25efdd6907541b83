package gqlws

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
)

// A Session may still wait for its turn to process one message when the peer has left behind several.
func TestSessionCanSeeThatPeerHasLeftBeforeItsMessagesAreRead(t *testing.T) {
	unix, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	for name, listener := range map[string]net.Listener{"TCP": nil, "TLS": nil, "Unix": unix} {
		t.Run(name, func(t *testing.T) {
			s, ss := NewServer(withoutPings()), newCloseSession(t)
			srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_ = s.Accept(w, r, ss)
			}))
			if listener != nil {
				srv.Listener.Close()
				srv.Listener = listener
			}
			if name == "TLS" {
				srv.StartTLS()
			} else {
				srv.Start()
			}
			defer srv.Close()
			at := srv.Listener.Addr()
			nc, err := net.Dial(at.Network(), at.String())
			if name == "TLS" {
				config := srv.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
				config.ServerName = "example.com"
				nc = tls.Client(nc, config)
			}
			c := dialSubscribed(t, nc, err)
			ctx := testContext(t)
			st := ss.waitStream(ctx, 1)
			st.mu.Lock()
			st.blockClose = make(chan struct{})
			st.mu.Unlock()
			c.send(`{"id":"a","type":"stop"}`) // while Close waits, nothing is read
			for range 10 {
				c.send(startA)
			}
			left := func() bool {
				ss.mu.Lock()
				defer ss.mu.Unlock()
				return ss.left()
			}
			if left() {
				t.Error("the peer has left before it has closed the connection")
			}
			c.nc.Close()
			eventually(ctx, t, left)
			close(st.blockClose)
			<-ss.closed
			shutdown(t, s)
		})
	}
}
