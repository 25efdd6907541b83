// Command example serves a TON network from its lite servers:
//
//	curl -LO https://ton.org/global.config.json
//	go run ./example -config global.config.json
//
// Without network access, it starts a lite server of its own and replays a chain, one masterchain
// block per second. The chain is generated, or it is read from the archive packs of a node, which
// contain no balances.
//
//	go run ./example -replay generated
//	go run ./example -replay directory/of/packs
//
// On SIGTERM and SIGINT, the program reports for the time -drain-lead that it is not ready, and then
// stops cleanly. A second signal ends it at once.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const (
	drain   = 10 * time.Second // maximum duration of the shutdown
	opening = time.Minute      // maximum duration of Open; enough for a proof over years of key blocks
)

func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("example", flag.ContinueOnError)
	from := flags.String("config", "", "`file` or URL of the network's global.config.json")
	replayed := flags.String("replay", "", "replay a `chain` instead: generated, or a directory of archive packs")
	pace := flags.Duration("pace", time.Second, "`interval` at which masterchain blocks are replayed")
	unproven := flags.Bool("unproven", false,
		"accept masterchain blocks without proof; needed if the configuration has no init_block")
	addr := flags.String("addr", "127.0.0.1:8080", "`address` to listen on")
	lead := flags.Duration("drain-lead", 3*time.Second, "`time` from a signal, when readiness ends, to the shutdown")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *pace <= 0 {
		return fmt.Errorf("example: -pace must be positive, but is %v", *pace)
	}
	replaying, stop := context.WithCancel(context.WithoutCancel(ctx)) // until the shutdown, clients receive blocks
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	var config []byte
	switch {
	case *replayed != "":
		r, err := newReplay(*replayed)
		if err != nil {
			return err
		}
		defer r.server.Stop()
		running.Go(func() { r.run(replaying, *pace) })
		config, *unproven = r.server.Config(), *replayed != "generated" // packs contain no trusted block
	case *from != "":
		var err error
		if config, err = tonlite.ReadConfig(ctx, *from); err != nil {
			return err
		}
	default:
		return errors.New("example: set -config global.config.json or -replay generated")
	}
	opened, done := context.WithTimeout(ctx, opening)
	backend, err := tonlite.Open(opened, config, &tonlite.Options{Unproven: *unproven, Logger: slog.Default()})
	done()
	if err != nil {
		return err
	}
	defer backend.Close()
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		return err
	}
	states := *replayed == "" || *replayed == "generated" // packs contain no states, so there are no balances
	return serve(ctx, backend, listener, states, *lead, stdout)
}

// serve serves backend until ctx is done and the time lead has passed. If states is set, it prints how to request a
// balance.
func serve(
	ctx context.Context, backend *tonlite.Backend, listener net.Listener, states bool, lead time.Duration,
	stdout io.Writer,
) error {
	handler := chaingql.New(backend, &chaingql.Options{AllowedOrigins: []string{"*"}})
	mux := http.NewServeMux()
	chaingql.Mount(mux, "/{project}/graphql", handler)
	chaingql.Mount(mux, "/graphql", handler) // for clients that send no project in the URL
	mux.HandleFunc("GET /readyz", handler.ServeReady)
	mux.HandleFunc("GET /livez", func(http.ResponseWriter, *http.Request) {}) // the process responds
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second, // of bodies; sockets and event streams outlive it
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

`, listener.Addr())
	if states {
		fmt.Fprintf(stdout, `# the balance of the elector contract
curl http://%[1]s/demo/graphql -H 'Content-Type: application/json' `+
			`-d '{"query":"{blockchain{account(address:\"`+
			`-1:3333333333333333333333333333333333333333333333333333333333333333\"){info{balance(format:DEC)}}}}"}'

`, listener.Addr())
	}
	var running sync.WaitGroup
	failed := make(chan error, 1)
	running.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			failed <- err
		}
	})
	var err error
	select {
	case <-ctx.Done():
		handler.Drain(context.Background(), lead)
	case err = <-failed:
	}
	leave, done := context.WithTimeout(context.Background(), drain)
	defer done()
	drained := make(chan error, 1)
	server.RegisterOnShutdown(func() { drained <- handler.Shutdown(leave) })
	err = errors.Join(err, server.Shutdown(leave), <-drained)
	running.Wait()
	return err
}
