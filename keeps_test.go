package chaingql_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/coder/websocket"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// A doorman remembers the requests it has seen, and does not keep them alive.
type doorman struct {
	mu   sync.Mutex
	seen []weak.Pointer[http.Request]
}

func (d *doorman) Authorize(ctx context.Context, c chaingql.Credentials) (context.Context, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seen = append(d.seen, weak.Make(c.Request))
	return ctx, nil
}

func (d *doorman) kept() (seen, alive int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.seen {
		if p.Value() != nil {
			alive++
		}
	}
	return len(d.seen), alive
}

// There may be very many sockets, and a request is a good part of what one needs.
func TestSocketDoesNotKeepTheRequestItCameWith(t *testing.T) {
	d := new(doorman)
	h, _ := newHandler(t, memchain.New(), chaingql.Options{Authorizer: d})
	mux := http.NewServeMux()
	mux.Handle("/{project}/graphql", h)
	srv := httptest.NewServer(mux)
	defer srv.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c, _, err := websocket.Dial(ctx, srv.URL+"/demo/graphql", &websocket.DialOptions{Subprotocols: []string{"graphql-transport-ws"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	if err := c.Write(ctx, websocket.MessageText, []byte(`{"type":"connection_init"}`)); err != nil {
		t.Fatal(err)
	}
	if _, frame, err := c.Read(ctx); err != nil || string(frame) != `{"type":"connection_ack"}` {
		t.Fatalf("%s, %v", frame, err)
	}
	for {
		runtime.GC()
		seen, alive := d.kept()
		if seen == 1 && alive == 0 {
			break
		}
		if seen != 1 || ctx.Err() != nil {
			t.Fatalf("%d requests were judged, %d are kept", seen, alive)
		}
		runtime.Gosched()
	}
	if err := c.Write(ctx, websocket.MessageText, []byte(`{"id":"1","type":"subscribe","payload":{"query":"{info{version}}"}}`)); err != nil {
		t.Fatal(err)
	}
	if _, frame, err := c.Read(ctx); err != nil {
		t.Errorf("%s, %v", frame, err)
	}
}

// Without an Authorizer nobody asks for the request, which is not kept even until
// the client says something.
func TestAnonymousSocketKeepsNoRequest(t *testing.T) {
	h, _ := newHandler(t, memchain.New(), chaingql.Options{})
	requests := make(chan weak.Pointer[http.Request], 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests <- weak.Make(r)
		h.ServeHTTP(w, r)
	}))
	defer srv.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c, _, err := websocket.Dial(ctx, srv.URL+"/demo/graphql", &websocket.DialOptions{Subprotocols: []string{"graphql-ws"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	for request := <-requests; request.Value() != nil; runtime.GC() {
		if ctx.Err() != nil {
			t.Fatal("the request is kept")
		}
		runtime.Gosched()
	}
}
