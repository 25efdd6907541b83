// Command example serves a simulated chain with telemetry: Prometheus metrics on an address of their own,
// and traces if they are enabled.
//
//	go run . -traces stdout
//	OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 go run . -traces otlp
//
// It shuts down gracefully on SIGTERM and SIGINT.
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

	"github.com/chaingql/chaingql/memchain"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	context.AfterFunc(ctx, stop) // a second signal kills the program
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// drain is the maximum time for clients to disconnect and for exporters to finish when the program ends.
const drain = 10 * time.Second

func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("example", flag.ContinueOnError)
	addr := flags.String("addr", "127.0.0.1:8080", "`address` to listen on")
	metricsAddr := flags.String("metrics-addr", "127.0.0.1:9464",
		"`address` to serve /metrics on, which clients of the API must not be able to reach")
	traces := flags.String("traces", "none",
		"`exporter` for spans: none, stdout or otlp (configured by OTEL_EXPORTER_OTLP_ENDPOINT and similar variables)")
	rate := flags.Float64("rate", 1, "simulated `blocks` per second")
	trouble := flags.Duration("trouble", 0, "`interval` of simulated source failures; 0 means none")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if !(*rate > 0 && *rate <= 1000) {
		return fmt.Errorf("-rate must be greater than 0 and at most 1,000 blocks per second, not %v", *rate)
	}
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		return err
	}
	metricsListener, err := net.Listen("tcp", *metricsAddr)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	t, err := openTelemetry(ctx, *traces, stdout)
	if err != nil {
		return errors.Join(err, listener.Close(), metricsListener.Close())
	}
	chain := memchain.New()
	h := newHost(t, chain, chain)
	serverOf := func(h http.Handler) *http.Server {
		return &http.Server{
			Handler:           h,
			ReadHeaderTimeout: 5 * time.Second,
			ReadTimeout:       10 * time.Second, // limits reading of a request; does not end sockets and event streams
			IdleTimeout:       2 * time.Minute,
			MaxHeaderBytes:    16 << 10,
			HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 100, WriteByteTimeout: 10 * time.Second},
		}
	}
	server, metrics := serverOf(h.mux), serverOf(h.metrics)
	fmt.Fprintf(stdout, `serving on http://%[1]s/demo/graphql

# the latest block
curl http://%[1]s/demo/graphql -H 'Content-Type: application/json' `+
		`-d '{"query":"{blockchain{blocks(last:1){edges{node{hash seq_no}}}}}"}'

# each new block
curl -N http://%[1]s/demo/graphql -H 'Accept: text/event-stream' -H 'Content-Type: application/json' `+
		`-d '{"query":"subscription{blocks{seq_no cursor}}"}'

# the metrics that Prometheus scrapes
curl http://%[2]s/metrics

`, listener.Addr(), metricsListener.Addr())

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, 3)
	var running sync.WaitGroup
	running.Go(func() {
		if err := h.simulate(ctx, time.Duration(float64(time.Second) / *rate), *trouble); err != nil {
			failed <- err
		}
	})
	running.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			failed <- err
		}
	})
	running.Go(func() {
		if err := metrics.Serve(metricsListener); !errors.Is(err, http.ErrServerClosed) {
			failed <- err
		}
	})
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	cancel()
	leave, done := context.WithTimeout(context.Background(), drain)
	defer done()
	drained := make(chan error, 1)
	server.RegisterOnShutdown(func() { drained <- h.handler.Shutdown(leave) })
	err = errors.Join(err, server.Shutdown(leave), <-drained, metrics.Close())
	running.Wait()
	return errors.Join(err, t.shutdown(leave)) // last, so that it exports the final spans
}
