// Command transactions adds two fields to the schema: a list of transactions, and a subscription to new transactions.
//
//	go run ./examples/transactions
//
// It prints example commands, and it shuts down gracefully on SIGTERM and SIGINT.
package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	context.AfterFunc(ctx, stop) // a second signal kills the program
	listener, err := net.Listen("tcp", *addr)
	if err == nil {
		fmt.Printf(`serving on http://%[1]s/demo/graphql

# the newest transactions, and the newest transactions of their senders
curl http://%[1]s/demo/graphql -H 'Content-Type: application/json' `+
			`-d '{"query":"{transactions(first:3){id amount(unit:COIN) from{address transactions(first:2){id}}}}"}'

# each new transaction
curl -N http://%[1]s/demo/graphql -H 'Accept: text/event-stream' -H 'Content-Type: application/json' `+
			`-d '{"query":"subscription{transactions{id block to{address}}}"}'

# each new transaction, over a WebSocket
npx wscat -c ws://%[1]s/demo/graphql -s graphql-ws -w -1 -x '{"id":"1","type":"start","payload":`+
			`{"query":"subscription{transactions{id block to{address}}}"}}'

`, listener.Addr())
		err = serve(ctx, listener, time.Second)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "transactions:", err)
		os.Exit(1)
	}
}

// serve runs the server until ctx is done. At each interval of length pace, it appends a block with two transactions.
func serve(ctx context.Context, listener net.Listener, pace time.Duration) error {
	chain, book := memchain.New(), newLedger()
	handler := chaingql.New(chain, options(book))
	mux := http.NewServeMux()
	chaingql.Mount(mux, "/{project}/graphql", handler)
	chaingql.Mount(mux, "/graphql", handler) // for clients that send no project
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second, // limits reading of a request; does not end sockets and event streams
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 100, WriteByteTimeout: 10 * time.Second},
	}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, 2)
	var running sync.WaitGroup
	running.Go(func() {
		for n := uint32(1); ctx.Err() == nil; n++ {
			if err := grow(chain, book, n); err != nil {
				failed <- err
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(pace):
			}
		}
	})
	running.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			failed <- err
		}
	})

	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	cancel()
	leave, done := context.WithTimeout(context.Background(), 10*time.Second)
	defer done()
	drained := make(chan error, 1)
	server.RegisterOnShutdown(func() { drained <- handler.Shutdown(leave) })
	err = errors.Join(err, server.Shutdown(leave), <-drained)
	running.Wait()
	return err
}

// perBlock is the number of transactions in a block.
const perBlock = 2

// grow appends the masterchain block with the sequence number n and adds its transactions to the ledger. It removes
// blocks whose transactions the ledger no longer keeps.
func grow(chain *memchain.Chain, book *ledger, n uint32) error {
	const wholeShard = 1 << 63
	if n > kept/perBlock {
		chain.Prune(chaingql.ChainOrder(-1, wholeShard, n-kept/perBlock, 0))
	}
	block := chaingql.Block{Workchain: -1, Shard: wholeShard, SeqNo: n, Hash: sha256.Sum256(fmt.Append(nil, n)),
		Time:   time.Now(),
		Cursor: chaingql.ChainOrder(-1, wholeShard, n, 0)}
	if err := chain.Append(block); err != nil {
		return err
	}
	for i := range uint32(perBlock) {
		book.add(transaction{ID: fmt.Sprintf("tx%d", perBlock*n+i), Block: block.Cursor, From: wallet(n + i),
			To: wallet(n + i + 1), Amount: int64(n) * 1_500_000_000})
	}
	return nil
}

func wallet(n uint32) string { return fmt.Sprintf("0:%064x", n%3) }
