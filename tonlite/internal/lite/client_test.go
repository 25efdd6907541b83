package lite

import (
	"context"
	"crypto/ed25519"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// pair connects a client and a server.
func pair(t *testing.T, serve func(net.Conn, ed25519.PrivateKey)) *Client {
	t.Helper()
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	near, far := net.Pipe()
	go serve(far, key)
	ch, err := clientHandshake(near, public)
	if err != nil {
		t.Fatal(err)
	}
	return newClient(ch)
}

func TestIdleConnectionIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := pair(t, func(conn net.Conn, key ed25519.PrivateKey) {
			_ = Serve(conn, key, func(context.Context, Message) Message { return Error{Code: 1} })
		})
		defer c.Close()
		time.Sleep(10 * time.Minute)
		if _, err := c.Ask(t.Context(), GetMasterchainInfo{}); err != (Error{Code: 1}) {
			t.Errorf("after ten minutes: got error %v", err)
		}
	})
}

// TestFailedQueryMarksConnectionLost sends a query just after the peer has closed the connection. The next
// caller must not use the same connection.
func TestFailedQueryMarksConnectionLost(t *testing.T) {
	for range 300 {
		peers := make(chan net.Conn, 1)
		c := pair(t, func(conn net.Conn, key ed25519.PrivateKey) {
			_, _ = serverHandshake(conn, key)
			peers <- conn
		})
		_ = (<-peers).Close()
		_, err := c.Ask(t.Context(), GetMasterchainInfo{})
		select {
		case <-c.Lost():
		default:
			t.Errorf("the connection is not lost after %v", err)
		}
		if c.Close(); !errors.Is(err, ErrLost) {
			t.Fatalf("Ask: got error %v", err)
		}
	}
}

func TestDeadConnectionIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := pair(t, func(conn net.Conn, key ed25519.PrivateKey) {
			ch, err := serverHandshake(conn, key)
			for err == nil { // reads, but never responds
				_, err = ch.read()
			}
		})
		begin := time.Now()
		_, err := c.Ask(t.Context(), GetMasterchainInfo{})
		if took := time.Since(begin); !errors.Is(err, ErrLost) || took > time.Minute {
			t.Errorf("after %v: got error %v", took, err)
		}
		c.Close()
	})
}
