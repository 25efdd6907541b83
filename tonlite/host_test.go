package tonlite_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
)

// serve runs a Handler for the Backend on 127.0.0.1 until the test ends, and returns the URL.
func serve(t testing.TB, b chaingql.Backend) (url string) {
	t.Helper()
	h := chaingql.New(b, nil)
	server := httptest.NewServer(h)
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

// subscribe opens a WebSocket and subscribes to all blocks after a cursor. Each call of next
// returns the cursor of the next block.
func subscribe(
	ctx context.Context, t testing.TB, url string, after chaingql.Cursor,
) (next func() (chaingql.Cursor, error)) {
	t.Helper()
	conn, res, err := websocket.Dial(ctx, strings.Replace(url, "http", "ws", 1),
		&websocket.DialOptions{Subprotocols: []string{"graphql-transport-ws"}})
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
	query := fmt.Sprintf(`subscription{blocks(after:%q){chain_order}}`, after)
	payload, err := json.Marshal(map[string]string{"query": query})
	if err != nil {
		t.Fatal(err)
	}
	if err := wsjson.Write(ctx, conn, message{ID: "1", Type: "subscribe", Payload: payload}); err != nil {
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
				return "", fmt.Errorf("got message %s with payload %s", m.Type, m.Payload)
			}
		}
	}
}

// TestSubscriptionSurvivesServerRestart keeps one client on one WebSocket while the lite server
// restarts. The client must receive every block.
func TestSubscriptionSurvivesServerRestart(t *testing.T) {
	chain := generate(40)
	s := start(t, chain, nil)
	s.Advance(5)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	next := subscribe(ctx, t, serve(t, open(t, s.Config(), nil)), "")
	for i, want := range chain.Blocks() {
		got, err := next()
		if err != nil {
			t.Fatalf("subscription after %d blocks: got error %v", i, err)
		}
		if got != want.Cursor {
			t.Fatalf("block %d: got %q, want %q", i, got, want.Cursor)
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

// TestHandlerReportsOldestCursor resumes after a block that the lite server has deleted, once
// with a subscription and once with a page. Both errors must contain the oldest cursor, after
// which a subscription must work.
func TestHandlerReportsOldestCursor(t *testing.T) {
	chain := generate(40)
	s := start(t, chain, nil)
	s.Forget(20)
	kept := chaingql.PageOf(chain.Blocks(), chaingql.BlocksQuery{
		After: chaingql.ChainOrder(-1, 1<<63, 20, 0), First: 2,
	})
	oldest := fmt.Sprintf(`"oldest":%q`, kept[0].Cursor)
	gone := chain.Blocks()[3].Cursor
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	url := serve(t, open(t, s.Config(), nil))
	got, err := subscribe(ctx, t, url, gone)()
	if err == nil || !strings.Contains(err.Error(), `"CURSOR_TOO_OLD"`) || !strings.Contains(err.Error(), oldest) {
		t.Errorf("subscription: got %q and error %v, want %s", got, err, oldest)
	}
	query := fmt.Sprintf(`{"query":"{blockchain{blocks(first:3,after:\"%s\"){edges{cursor}}}}"}`, gone)
	res, err := http.Post(url, "application/json", strings.NewReader(query))
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer func() { _ = res.Body.Close() }()
	page, err := io.ReadAll(res.Body)
	if err != nil || !strings.Contains(string(page), `"CURSOR_TOO_OLD"`) || !strings.Contains(string(page), oldest) {
		t.Errorf("page: got %s and error %v, want %s", page, err, oldest)
	}
	if got, err := subscribe(ctx, t, url, kept[0].Cursor)(); err != nil || got != kept[1].Cursor {
		t.Errorf("subscription after the oldest cursor: got %q and error %v, want %q", got, err, kept[1].Cursor)
	}
}
