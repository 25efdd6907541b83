package mounts_test

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/examples/mounts"
	"github.com/chaingql/chaingql/memchain"
)

// A site is a host with a chain of 70 masterchain blocks, one second apart. It counts the requests to its Handler, and
// the probes.
type site struct {
	*httptest.Server
	chain    *counted
	requests atomic.Int64
	probes   atomic.Int64 // of readiness
	unready  atomic.Bool
	seqNo    uint32
}

// A counted chain is a Backend that counts its Balance and Blocks calls.
type counted struct {
	*memchain.Chain
	calls atomic.Int64
}

func (c *counted) Balance(ctx context.Context, a chaingql.Address) (*big.Int, error) {
	c.calls.Add(1)
	return c.Chain.Balance(ctx, a)
}

func (c *counted) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	c.calls.Add(1)
	return c.Chain.Blocks(ctx, q)
}

func newSite(t *testing.T) *site { return newSiteBehind(t, mounts.NetHTTP, 0) }

func newSiteBehind(t *testing.T, mount func(http.Handler) http.Handler, keepAlive time.Duration) *site {
	s := &site{chain: &counted{Chain: memchain.New()}}
	for range 70 {
		s.commit(t)
	}
	h := chaingql.New(s.chain, &chaingql.Options{
		// The Authorizer refuses unknown projects, so a successful request shows that the Handler has received
		// {project}.
		Authorizer:        chaingql.StaticProjects{"demo": {}, "shop": {Secret: "s3cret", RequireSecret: true}},
		AllowedOrigins:    []string{"https://app.example"},
		Logger:            slog.New(slog.DiscardHandler),
		KeepAliveInterval: keepAlive,
	})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		s.probes.Add(1)
		if s.unready.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		h.ServeReady(w, r)
	})
	mux.Handle("/", mount(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		h.ServeHTTP(w, r)
	})))
	s.Server = httptest.NewUnstartedServer(mux)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true) // h2c
	s.Start()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := h.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		s.Close()
	})
	return s
}

// commit appends the next block and returns its sequence number.
func (s *site) commit(t *testing.T) uint32 {
	t.Helper()
	if err := s.add(); err != nil {
		t.Fatal(err)
	}
	return s.seqNo
}

func (s *site) add() error {
	s.seqNo++
	return s.chain.Append(chaingql.Block{
		Workchain: -1, Shard: 1 << 63, SeqNo: s.seqNo, Time: time.Unix(1e9+int64(s.seqNo), 0), Cursor: s.newest(),
	})
}

func (s *site) newest() chaingql.Cursor { return chaingql.ChainOrder(-1, 1<<63, s.seqNo, 0) }

// query sends a query to the URL to and checks the response.
func query(t *testing.T, to string) {
	t.Helper()
	res, body := exchange(t, "POST", to, `{"query":"{blockchain{blocks(last:1){edges{node{seq_no}}}}}"}`,
		"Content-Type", "application/json")
	const want = `{"data":{"blockchain":{"blocks":{"edges":[{"node":{"seq_no":70}}]}}}}`
	if body != want || res.Request.URL.String() != to {
		t.Errorf("%s returned %s, want %s without a redirect", res.Request.URL, body, want)
	}
}

// listenToStream subscribes with an event stream. next returns the data of the next event.
func listenToStream(ctx context.Context, t *testing.T, to, subscription string) (next func() string) {
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
	t.Cleanup(func() { _ = res.Body.Close() })
	lines := bufio.NewScanner(res.Body)
	return func() string {
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				return data
			}
		}
		t.Fatalf("the stream ended: %v", lines.Err())
		return ""
	}
}

// listenOnSocket subscribes over a WebSocket, as a page of the same site would. next returns the next message.
func listenOnSocket(ctx context.Context, t *testing.T, to, subscription string) (next func() string) {
	t.Helper()
	at, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	conn, res, err := websocket.Dial(ctx, to, &websocket.DialOptions{
		Subprotocols: []string{"graphql-transport-ws"}, HTTPHeader: http.Header{"Origin": {"https://" + at.Host}},
	})
	if err != nil {
		var body []byte
		if res != nil {
			body, _ = io.ReadAll(res.Body)
		}
		t.Fatalf("the handshake failed: %v: %s", err, body)
	}
	t.Cleanup(func() { _ = conn.CloseNow() })
	next = func() string {
		_, frame, err := conn.Read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return string(frame)
	}
	for _, frame := range []string{`{"type":"connection_init"}`,
		`{"id":"1","type":"subscribe","payload":{"query":"` + strings.ReplaceAll(subscription, `"`, `\"`) + `"}}`} {
		if err := conn.Write(ctx, websocket.MessageText, []byte(frame)); err != nil {
			t.Fatal(err)
		}
	}
	if got := next(); got != `{"type":"connection_ack"}` {
		t.Fatalf("received %s, want connection_ack", got)
	}
	return next
}
