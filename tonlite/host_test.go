package tonlite_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite/liteservertest"
	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
)

// serve puts a Handler over a backend on 127.0.0.1 until the test ends.
func serve(t testing.TB, b chaingql.Backend) (url string) {
	t.Helper()
	h := chaingql.New(b, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: h}}
	server.Start()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := h.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		server.Close()
	})
	return server.URL + "/demo/graphql"
}

// subscribe opens a socket and subscribes to all blocks after a cursor. The
// func that it returns reads the next one.
func subscribe(ctx context.Context, t testing.TB, url string, after chaingql.Cursor) (next func() (chaingql.Cursor, error)) {
	t.Helper()
	conn, res, err := websocket.Dial(ctx, strings.Replace(url, "http", "ws", 1), &websocket.DialOptions{Subprotocols: []string{"graphql-transport-ws"}})
	if err != nil {
		t.Fatal(err, res)
	}
	t.Cleanup(func() { _ = conn.CloseNow() })
	type message struct {
		ID      string          `json:"id,omitempty"`
		Type    string          `json:"type"`
		Payload json.RawMessage `json:"payload,omitempty"`
	}
	if err := wsjson.Write(ctx, conn, message{Type: "connection_init"}); err != nil {
		t.Fatal(err)
	}
	query := fmt.Sprintf(`{"query":"subscription{blocks(after:%q){chain_order}}"}`, after)
	query = strings.ReplaceAll(query, `after:"`, `after:\"`)
	query = strings.ReplaceAll(query, `"){`, `\"){`)
	if err := wsjson.Write(ctx, conn, message{ID: "1", Type: "subscribe", Payload: json.RawMessage(query)}); err != nil {
		t.Fatal(err)
	}
	return func() (chaingql.Cursor, error) {
		for {
			var m message
			if err := wsjson.Read(ctx, conn, &m); err != nil {
				return "", err
			}
			switch m.Type {
			case "connection_ack", "ping", "pong":
			case "next":
				var payload struct {
					Data struct {
						Blocks struct {
							ChainOrder chaingql.Cursor `json:"chain_order"`
						}
					}
				}
				if err := json.Unmarshal(m.Payload, &payload); err != nil {
					return "", err
				}
				return payload.Data.Blocks.ChainOrder, nil
			default:
				return "", fmt.Errorf("%s: %s", m.Type, m.Payload)
			}
		}
	}
}

// TestSubscriberMissesNothingThroughARestart has one client on one socket, while
// the lite server is stopped and started again under the Handler.
func TestSubscriberMissesNothingThroughARestart(t *testing.T) {
	chain := liteservertest.Made(40)
	s := start(t, chain, nil)
	s.Advance(5)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	next := subscribe(ctx, t, serve(t, open(t, s.Config(), nil)), "")
	for i, want := range chain.Blocks() {
		got, err := next()
		if err != nil {
			t.Fatalf("after %d blocks: %v", i, err)
		}
		if got != want.Cursor {
			t.Fatalf("block %d is %q, want %q", i, got, want.Cursor)
		}
		if want.Workchain != -1 || want.SeqNo < 5 || want.SeqNo == chain.Last() {
			continue
		}
		if want.SeqNo%15 == 0 {
			s.Stop()
			if err := s.Restart(); err != nil {
				t.Fatal(err)
			}
		}
		s.Advance(want.SeqNo + 1)
	}
}
