// Command example serves a chain from a PostgreSQL database. With -simulate it also
// appends simulated blocks:
//
//	createdb chain
//	go run ./example -dsn 'postgres://localhost/chain' -simulate 4
//
// Run it a second time with another -addr and without -simulate: both processes serve
// the same blocks. docs/hosting.md shows proxies for two processes. On SIGTERM, SIGINT and
// SIGHUP, the program reports for the time -drain-lead that it is not ready, and then stops
// cleanly. A second signal ends it at once.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/postgres"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt, syscall.SIGHUP)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// drain is the maximum time that the program waits for clients to disconnect when it stops.
const drain = 10 * time.Second

func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("example", flag.ContinueOnError)
	dsn := flags.String("dsn", "", "`URL` or key=value pairs of the database; defaults come from PGHOST, PGUSER, ...")
	addr := flags.String("addr", "127.0.0.1:8080", "`address` to listen on")
	schema := flags.String("schema", postgres.DefaultSchema, "`name` of the schema that contains the chain")
	poll := flags.Duration("poll", 0, "read new blocks at this interval instead of using LISTEN: for PgBouncer")
	lead := flags.Duration("drain-lead", 3*time.Second, "`time` from a signal, when readiness ends, to the shutdown")
	rate := flags.Float64("simulate", 0,
		"simulate a chain with this number of `rounds` per second (up to 1000); a round is a block of each of 3 shards")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if !(*rate >= 0 && *rate <= 1000) {
		return errors.New("-simulate must be between 0 and 1000 rounds per second")
	}
	backend, err := postgres.Open(ctx, *dsn, &postgres.Options{Schema: *schema, PollInterval: *poll})
	if err != nil {
		return err
	}
	defer backend.Close()
	// If the program listened before, clients would wait until Open returns instead of trying another process.
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		return err
	}
	defer listener.Close() // the server closes it too

	handler := chaingql.New(backend, &chaingql.Options{AllowedOrigins: []string{"*"}})
	mux := http.NewServeMux()
	chaingql.Mount(mux, "/{project}/graphql", handler)
	chaingql.Mount(mux, "/graphql", handler) // for clients that send no project in the URL
	mux.HandleFunc("GET /readyz", handler.ServeReady)
	mux.HandleFunc("GET /livez", func(http.ResponseWriter, *http.Request) {}) // the process responds
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second, // for request bodies; sockets and event streams are not limited
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 100, WriteByteTimeout: 10 * time.Second},
	}
	fmt.Fprintf(stdout, `serving on http://%[1]s/demo/graphql

# the latest block
curl http://%[1]s/demo/graphql -H 'Content-Type: application/json' `+
		`-d '{"query":"{blockchain{blocks(workchain:-1,last:1){edges{node{hash seq_no}}}}}"}'

# each new block
curl -N http://%[1]s/demo/graphql -H 'Accept: text/event-stream' -H 'Content-Type: application/json' `+
		`-d '{"query":"subscription{blocks{workchain_id seq_no cursor}}"}'

# a balance
curl http://%[1]s/demo/graphql -H 'Content-Type: application/json' `+
		`-d '{"query":"{blockchain{account(address:\"%[2]v\"){info{balance(format:DEC)}}}}"}'

`, listener.Addr(), miner)

	simulating, stop := context.WithCancel(context.Background())
	defer stop()
	failed := make(chan error, 2)
	var running sync.WaitGroup
	if *rate > 0 {
		running.Go(func() {
			if err := simulate(simulating, backend, time.Duration(float64(time.Second) / *rate)); err != nil &&
				simulating.Err() == nil {
				failed <- err
			}
		})
	}
	running.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			failed <- err
		}
	})
	select {
	case <-ctx.Done():
		signal.Reset() // a second signal ends the process at once
		handler.Drain(context.Background(), *lead)
	case err = <-failed:
	}
	leave, done := context.WithTimeout(context.Background(), drain)
	defer done()
	drained := make(chan error, 1)
	server.RegisterOnShutdown(func() { drained <- handler.Shutdown(leave) })
	err = errors.Join(err, server.Shutdown(leave), <-drained)
	stop() // until now, subscribers received blocks
	running.Wait()
	return err
}
