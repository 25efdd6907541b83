// Command drain is a host that shuts down gracefully on SIGTERM, which Kubernetes and systemd send before they kill a
// process. At first it only reports that it is not ready, so that load balancers send new requests to other instances.
// Then queries finish, subscribers receive the cursor from which they can resume, and the process exits in time.
// SIGINT and SIGHUP have the same effect. A second signal ends the process at once. deployment.yaml contains the
// matching settings.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

const (
	// usualLead is the time between the signal and the shutdown. In this time, load balancers must notice that the
	// instance is not ready.
	usualLead = 5 * time.Second
	// drain is the timeout of the shutdown that follows. Together with the lead it must be shorter than
	// terminationGracePeriodSeconds, because the process is killed then.
	drain = 20 * time.Second
)

func main() {
	addr := flag.String("addr", "127.0.0.1:8080", "`address` to listen on")
	lead := flag.Duration("drain-lead", usualLead, "`time` from the signal, when readiness ends, to the shutdown")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt, syscall.SIGHUP)
	defer stop()
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf(`serving on http://%[1]s/demo/graphql

# a query
curl http://%[1]s/demo/graphql -H 'Content-Type: application/json' -d '{"query":"{info{version}}"}'

# a subscription, which receives an error with the reason when the process shuts down
curl -N http://%[1]s/demo/graphql -H 'Accept: text/event-stream' -H 'Content-Type: application/json' `+
		`-d '{"query":"subscription{blocks{seq_no cursor}}"}'

`, listener.Addr())
	if err := run(ctx, listener, memchain.New(), *lead); err != nil { // replace with your Backend
		log.Fatal(err)
	}
}

// run serves until ctx is done. Then it is not ready for the time lead, but still serves everything, and shuts down. It
// returns after all clients have been disconnected or the drain timeout has expired.
func run(ctx context.Context, listener net.Listener, backend chaingql.Backend, lead time.Duration) error {
	handler := chaingql.New(backend, nil)
	mux := http.NewServeMux()
	chaingql.Mount(mux, "/{project}/graphql", handler)
	chaingql.Mount(mux, "/graphql", handler) // for clients that send no project
	mux.HandleFunc("GET /readyz", handler.ServeReady)
	mux.HandleFunc("GET /livez", func(http.ResponseWriter, *http.Request) {}) // the process responds
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second, // limits reading a body; does not end sockets and event streams
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 100, WriteByteTimeout: 10 * time.Second},
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }() // returns during server.Shutdown

	var failed error
	select {
	case <-ctx.Done():
		signal.Reset() // a second signal ends the process at once
		handler.Drain(context.Background(), lead)
	case failed = <-served:
	}
	leave, done := context.WithTimeout(context.Background(), drain)
	defer done()
	// The server calls this after it has closed the listener, so that new clients connect to
	// another instance. The Handler ends sockets, which server.Shutdown ignores, and event streams,
	// for which it would wait.
	drained := make(chan error, 1)
	server.RegisterOnShutdown(func() { drained <- handler.Shutdown(leave) })
	return errors.Join(failed, server.Shutdown(leave), <-drained)
}
