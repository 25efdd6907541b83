// Command cluster shows the way past one machine, on one: three NATS servers
// that keep a chain three times, one producer that appends to it, and three
// chaingql hosts behind a proxy that gives each request to the next of them.
//
//	cd nats && go run ./examples/cluster
//
// Whoever follows blocks with its cursor may do so at any host, and goes on at
// another where one goes away. It stops cleanly on SIGTERM and SIGINT.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/chaingql/chaingql"
	natschain "github.com/chaingql/chaingql/nats"
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
	machines = 3                // brokers, and hosts
	drain    = 10 * time.Second // that clients are given to leave at the end
	gather   = time.Minute      // that brokers are given to find each other
)

func run(ctx context.Context, args []string, stdout io.Writer) (err error) {
	flags := flag.NewFlagSet("cluster", flag.ContinueOnError)
	addr := flags.String("addr", "127.0.0.1:8080", "`address` of the proxy")
	rate := flags.Float64("rate", 4, "`rounds` a second, each a block of the masterchain and of two shards")
	dir := flags.String("dir", "", "`directory` that the brokers keep their files in; default: a temporary one")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if !(*rate > 0) || *rate > 1000 {
		return fmt.Errorf("cluster: -rate %v: say more than 0 rounds a second, and at most 1000", *rate)
	}
	if *dir == "" {
		if *dir, err = os.MkdirTemp("", "chaingql-cluster-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(*dir)) }()
	} else if err := os.MkdirAll(*dir, 0o700); err != nil {
		return err
	}
	c, err := newCluster(ctx, *dir, *addr, inProcess, slog.Default())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()

	fmt.Fprintf(stdout, "brokers  %s\nhosts    ", c.brokers.urls())
	for _, h := range c.hosts {
		fmt.Fprintf(stdout, "http://%s ", h.addr)
	}
	fmt.Fprintf(stdout, `
proxy    http://%[1]s/demo/graphql

# the latest block
curl http://%[1]s/demo/graphql -H 'Content-Type: application/json' -d '{"query":"{blockchain{blocks(workchain:-1,last:1){edges{node{hash seq_no}}}}}"}'

# each new block, with the cursor to go on from at any host
curl -N http://%[1]s/demo/graphql -H 'Accept: text/event-stream' -H 'Content-Type: application/json' -d '{"query":"subscription{blocks{workchain_id seq_no chain_order}}"}'

# a balance
curl http://%[1]s/demo/graphql -H 'Content-Type: application/json' -d '{"query":"{blockchain{account(address:\"%[2]v\"){info{balance(format:DEC)}}}}"}'

`, c.proxy.addr, miner)

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, 1)
	var producing sync.WaitGroup
	producing.Go(func() {
		if err := produce(ctx, c.brokers.urls(), *rate); err != nil && ctx.Err() == nil {
			failed <- err
		}
	})
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	cancel()
	producing.Wait()
	return err
}

// A cluster is everything but the producer.
type cluster struct {
	brokers *brokers
	hosts   []*host
	proxy   *proxy
}

// newCluster starts everything, and waits until it serves.
func newCluster(ctx context.Context, dir, addr string, l launch, logger *slog.Logger) (c *cluster, err error) {
	c = &cluster{}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	if c.brokers, err = newBrokers(dir, l); err != nil {
		return c, err
	}
	if err := c.makeChain(ctx); err != nil {
		return c, err
	}
	for range machines {
		h, err := newHost(c.brokers.urls(), logger)
		if err != nil {
			return c, err
		}
		c.hosts = append(c.hosts, h)
		if err := h.start(ctx); err != nil {
			return c, err
		}
	}
	c.proxy, err = newProxy(addr, c.hosts, logger)
	return c, err
}

// makeChain makes the stream and the bucket, as soon as the brokers have found
// each other.
func (c *cluster) makeChain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, gather)
	defer cancel()
	for {
		b, err := natschain.Open(ctx, c.brokers.urls(), &natschain.Options{Create: &natschain.Storage{Replicas: machines}})
		if err == nil {
			b.Close()
			return nil
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

func (c *cluster) close() error {
	var errs []error
	if c.proxy != nil {
		errs = append(errs, c.proxy.close())
	}
	for _, h := range c.hosts {
		errs = append(errs, h.stop(drain))
	}
	if c.brokers != nil {
		c.brokers.close()
	}
	return errors.Join(errs...)
}

// mount puts a Handler where clients look for it.
func mount(h *chaingql.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/{project}/graphql", h)
	mux.Handle("/{project}/graphql/{$}", h) // so that neither form is redirected
	mux.Handle("/graphql", h)               // of clients whose URL names no project
	mux.Handle("/graphql/{$}", h)
	return mux
}
