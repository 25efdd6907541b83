// Command drain is a host that leaves well: it is told by SIGTERM, as Kubernetes
// does, lets queries finish, tells each subscriber where to go on, and ends in
// time. deployment.yaml is the other half.
package main

import (
	"context"
	"errors"
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

// drain is how long clients are given to leave. With the seconds of preStop it
// must be shorter than terminationGracePeriodSeconds, at the end of which the
// process is killed.
const drain = 20 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	listener, err := net.Listen("tcp", ":8080")
	if err != nil {
		log.Fatal(err)
	}
	if err := run(ctx, listener, memchain.New()); err != nil { // your Backend in its place
		log.Fatal(err)
	}
}

// run serves until ctx is done, and returns when everybody has left.
func run(ctx context.Context, listener net.Listener, backend chaingql.Backend) error {
	handler := chaingql.New(backend, nil)
	mux := http.NewServeMux()
	mux.Handle("/{project}/graphql", handler)
	mux.Handle("/{project}/graphql/{$}", handler) // so that neither form is redirected
	mux.Handle("/graphql", handler)               // of clients whose URL names no project
	mux.Handle("/graphql/{$}", handler)
	// Ready until the listener is closed.
	mux.HandleFunc("GET /ready", func(http.ResponseWriter, *http.Request) {})
	server := &http.Server{
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second, // of bodies; sockets and event streams outlive it
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 100, WriteByteTimeout: 10 * time.Second},
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }() // returns in server.Shutdown

	var failed error
	select {
	case <-ctx.Done():
	case failed = <-served:
	}
	leave, done := context.WithTimeout(context.Background(), drain)
	defer done()
	// The server runs this when it has closed the listener: new clients go to another pod. The Handler ends sockets,
	// which server.Shutdown leaves alone, and event streams, for which it waits.
	drained := make(chan error, 1)
	server.RegisterOnShutdown(func() { drained <- handler.Shutdown(leave) })
	return errors.Join(failed, server.Shutdown(leave), <-drained)
}
