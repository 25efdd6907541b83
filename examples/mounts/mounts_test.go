package mounts_test

import (
	"bufio"
	"context"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/examples/mounts"
	"github.com/chaingql/chaingql/memchain"
)

func TestMain(m *testing.M) {
	middleware.DefaultLogger = middleware.RequestLogger(&middleware.DefaultLogFormatter{Logger: log.New(io.Discard, "", 0)})
	os.Exit(m.Run())
}

func TestQueriesStreamsAndSocketsWorkUnderARouter(t *testing.T) {
	for name, mount := range map[string]func(http.Handler) http.Handler{"chi": mounts.Chi} {
		t.Run(name, func(t *testing.T) {
			chain := memchain.New()
			if err := chain.Append(chaingql.Block{Workchain: -1, SeqNo: 7, Cursor: chaingql.ChainOrder(-1, 1<<63, 7, 0)}); err != nil {
				t.Fatal(err)
			}
			h := chaingql.New(chain, &chaingql.Options{
				Authorizer: chaingql.StaticProjects{"demo": {}}, // shows that {project} came through
				Logger:     slog.New(slog.DiscardHandler),
			})
			srv := httptest.NewServer(mount(h))
			defer srv.Close()
			defer func() {
				ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
				defer cancel()
				if err := h.Shutdown(ctx); err != nil {
					t.Error(err)
				}
			}()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			query(t, srv.URL+"/demo/graphql")
			query(t, srv.URL+"/demo/graphql/")
			stream(ctx, t, srv.URL+"/demo/graphql")
			socket(ctx, t, srv.URL+"/demo/graphql")
		})
	}
}

func query(t *testing.T, to string) {
	t.Helper()
	res, err := http.Post(to, "application/json", strings.NewReader(`{"query":"{blockchain{blocks(last:1){edges{node{seq_no}}}}}"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"data":{"blockchain":{"blocks":{"edges":[{"node":{"seq_no":7}}]}}}}`
	if string(body) != want || res.Request.URL.String() != to {
		t.Errorf("%s: %s, want %s without a redirect", res.Request.URL, body, want)
	}
}

const subscription = `subscription{blocks(after:""){seq_no}}`

func stream(ctx context.Context, t *testing.T, to string) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, "GET", to+"?query="+url.QueryEscape(subscription), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	for sc := bufio.NewScanner(res.Body); sc.Scan(); {
		if sc.Text() == `data: {"data":{"blocks":{"seq_no":7}}}` {
			return
		}
	}
	t.Error("the stream had no block")
}

func socket(ctx context.Context, t *testing.T, to string) {
	t.Helper()
	conn, _, err := websocket.Dial(ctx, strings.Replace(to, "http", "ws", 1), &websocket.DialOptions{Subprotocols: []string{"graphql-transport-ws"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.CloseNow() }()
	for _, frame := range []string{`{"type":"connection_init"}`, `{"id":"1","type":"subscribe","payload":{"query":"` + strings.ReplaceAll(subscription, `"`, `\"`) + `"}}`} {
		if err := conn.Write(ctx, websocket.MessageText, []byte(frame)); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{`{"type":"connection_ack"}`, `{"type":"next","id":"1","payload":{"data":{"blocks":{"seq_no":7}}}}`} {
		_, frame, err := conn.Read(ctx)
		if err != nil || string(frame) != want {
			t.Fatalf("heard %s, %v, want %s", frame, err, want)
		}
	}
}
