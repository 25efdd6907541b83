package chaingql_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

func ask(h http.Handler, path, query string) string {
	r := httptest.NewRequest("POST", path, strings.NewReader(`{"query":`+fmt.Sprintf("%q", query)+`}`))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	body, _ := io.ReadAll(w.Result().Body)
	return string(body)
}

func Example() {
	_ = os.Setenv("SHOP_SECRET", "s3cret")
	backend := memchain.New()

	h := chaingql.New(backend, &chaingql.Options{
		Authorizer: chaingql.StaticProjects{
			"demo": {},
			"shop": {Secret: os.Getenv("SHOP_SECRET"), RequireSecret: true},
		},
	})
	mux := http.NewServeMux()
	chaingql.Mount(mux, "/{project}/graphql", h)

	defer h.Shutdown(context.Background())
	fmt.Println(ask(mux, "/demo/graphql", `{blockchain{blocks(last:1){edges{node{hash}}}}}`))
	// Output: {"data":{"blockchain":{"blocks":{"edges":[]}}}}
}

func ExampleNew() {
	chain := memchain.New()
	account, _ := chaingql.ParseAddress("0:" + strings.Repeat("ab", 32))
	chain.SetBalance(account, big.NewInt(1_000_000_000))

	handler := chaingql.New(chain, &chaingql.Options{Logger: slog.New(slog.DiscardHandler)})
	mux := http.NewServeMux()
	chaingql.Mount(mux, "/{project}/graphql", handler)

	query := `{blockchain{account(address:"` + account.String() + `"){info{balance(format:DEC)}}}}`
	fmt.Println(ask(mux, "/demo/graphql", query))
	// Output: {"data":{"blockchain":{"account":{"info":{"balance":"1000000000"}}}}}
}

func ExampleStaticProjects() {
	handler := chaingql.New(memchain.New(), &chaingql.Options{Authorizer: chaingql.StaticProjects{
		"demo": {},
		"shop": {Secret: "s3cret", RequireSecret: true},
	}})
	defer handler.Shutdown(context.Background())
	fmt.Println(ask(handler, "/demo/graphql", "{info{version}}"))
	fmt.Println(ask(handler, "/shop/graphql", "{info{version}}"))
	// Output:
	// {"data":{"info":{"version":"0.1.0"}}}
	// {"errors":[{"message":"Unauthorized access","extensions":{"code":"UNAUTHENTICATED"}}]}
}

// A bearer admits clients by a token in the header Authorization. Browsers cannot set headers of a
// WebSocket, so the token may also be in the field Authorization of connection_init's payload.
type bearer struct {
	valid func(project, token string) bool
}

func (b bearer) Authorize(ctx context.Context, c chaingql.Credentials) (context.Context, error) {
	header := c.Request.Header.Get("Authorization")
	var payload struct{ Authorization string }
	if json.Unmarshal(c.Payload, &payload) == nil && payload.Authorization != "" {
		header = payload.Authorization
	}
	token, ok := strings.CutPrefix(header, "Bearer ")
	if !ok || !b.valid(c.Project, token) {
		return nil, chaingql.ErrUnauthorized
	}
	return ctx, nil
}

func ExampleHandler_Shutdown() {
	handler := chaingql.New(memchain.New(), &chaingql.Options{Logger: slog.New(slog.DiscardHandler)})
	server := httptest.NewServer(handler).Config // an *http.Server

	// Do this at SIGTERM. Drain gives load balancers time to notice that the instance is not ready.
	handler.Drain(context.Background(), 50*time.Millisecond)
	// http.Server's Shutdown first closes the listener. It neither ends sockets nor waits for them, so the Handler must
	// end them.
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	drained := make(chan error, 1)
	server.RegisterOnShutdown(func() { drained <- handler.Shutdown(ctx) })
	if err := errors.Join(server.Shutdown(ctx), <-drained); err != nil {
		fmt.Println("cut short:", err)
	}
	fmt.Println(ask(handler, "/demo/graphql", "{info{version}}"))
	// Output: {"errors":[{"message":"Service is shutting down","extensions":{"code":"SERVICE_UNAVAILABLE"}}]}
}

// If the load balancer refuses all clients while no instance is ready, let it take out only instances that drain.
func ExampleHandler_Health() {
	handler := chaingql.New(memchain.New(), &chaingql.Options{Logger: slog.New(slog.DiscardHandler)})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if !handler.Health(r.Context()).Draining.IsZero() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	ready := func() int {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest("GET", "/readyz", nil))
		return w.Code
	}
	before := ready()
	handler.Shutdown(context.Background())
	fmt.Println(before, ready())
	// Output: 200 503
}

// Poll yields the blocks that another process writes to a table.
func ExamplePoll() {
	stored := []chaingql.Block{
		{Workchain: -1, SeqNo: 1, Cursor: chaingql.SeqCursor(1)},
		{Workchain: -1, SeqNo: 2, Cursor: chaingql.SeqCursor(2)},
	}
	table := func(_ context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
		return chaingql.PageOf(stored, q), nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for block, err := range chaingql.Poll(ctx, table, "", time.Second) {
		if err != nil {
			fmt.Println("ended:", err)
			break
		}
		fmt.Println("block", block.SeqNo)
		if block.SeqNo == 2 {
			cancel()
		}
	}
	// Output:
	// block 1
	// block 2
	// ended: context canceled
}

// The source sends its blocks on a channel and closes the channel when it fails.
func ExampleFromChannel() {
	blocks := make(chan chaingql.Block, 2)
	blocks <- chaingql.Block{Workchain: -1, SeqNo: 1, Cursor: chaingql.SeqCursor(1)}
	blocks <- chaingql.Block{Workchain: -1, SeqNo: 2, Cursor: chaingql.SeqCursor(2)}
	close(blocks)
	lost := func() error { return errors.New("connection lost") }
	for block, err := range chaingql.FromChannel(context.Background(), blocks, lost) {
		if err != nil {
			fmt.Println("ended:", err)
			break
		}
		fmt.Println("block", block.SeqNo)
	}
	// Output:
	// block 1
	// block 2
	// ended: connection lost
}

func ExampleChainOrder() {
	fmt.Println(chaingql.ChainOrder(-1, 0x8000000000000000, 802, 0))
	// Output: 2322m
}

// These settings are recommended for servers on the open internet; see SECURITY.md.
func Example_openInternet() {
	handler := chaingql.New(memchain.New(), &chaingql.Options{
		Authorizer: doorkeeper{chaingql.StaticProjects{"demo": {}}},
	})

	server := &http.Server{
		Addr:              "127.0.0.1:0",
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second, // of bodies; sockets and event streams outlive it
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 100, WriteByteTimeout: 10 * time.Second},
	}
	fmt.Println(ask(server.Handler, "/demo/graphql", "{__typename}"))

	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	drained := make(chan error, 1)
	server.RegisterOnShutdown(func() { drained <- handler.Shutdown(ctx) }) // ends sockets and event streams
	_ = server.Shutdown(ctx)
	<-drained
	// Output: {"data":{"__typename":"Query"}}
}

// A doorkeeper refuses addresses that send too many requests, and checks the projects of the others.
type doorkeeper struct{ chaingql.StaticProjects }

func (g doorkeeper) Authorize(ctx context.Context, c chaingql.Credentials) (context.Context, error) {
	if tooOften(c.Request.RemoteAddr) {
		return nil, chaingql.RateLimitError{RetryAfter: 10 * time.Second}
	}
	return g.StaticProjects.Authorize(ctx, c)
}

func tooOften(string) bool { return false } // for example with golang.org/x/time/rate
