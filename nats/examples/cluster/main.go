// Command cluster shows a deployment on several machines, but runs it in one process. It
// starts three NATS servers that store three replicas of a chain, one producer that appends
// blocks to the chain, three chaingql hosts that serve it, and a proxy that distributes
// requests among the hosts.
//
//	cd nats && go run ./examples/cluster
//
// A subscriber may resume from its cursor at any host, for example if its own host stops.
// The command stops cleanly when it receives SIGTERM or SIGINT.
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
	machines     = 3                // number of brokers, and number of hosts
	drain        = 10 * time.Second // how long a stopping host waits for its clients to disconnect
	startTimeout = time.Minute      // how long the brokers may take to form a cluster
)

func run(ctx context.Context, args []string, stdout io.Writer) (err error) {
	flags := flag.NewFlagSet("cluster", flag.ContinueOnError)
	addr := flags.String("addr", "127.0.0.1:8080", "`address` of the proxy")
	rate := flags.Float64("rate", 4,
		"`rounds` per second, each with one block of the masterchain and one of each of two shards")
	dir := flags.String("dir", "", "`directory` for the brokers' files; default: a temporary directory")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if !(*rate > 0) || *rate > 1000 {
		return fmt.Errorf("cluster: invalid -rate %v: it must be above 0 and at most 1000 rounds per second", *rate)
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
curl http://%[1]s/demo/graphql -H 'Content-Type: application/json' `+
		`-d '{"query":"{blockchain{blocks(workchain:-1,last:1){edges{node{hash seq_no}}}}}"}'

# each new block, with the cursor to resume from at any host
curl -N http://%[1]s/demo/graphql -H 'Accept: text/event-stream' -H 'Content-Type: application/json' `+
		`-d '{"query":"subscription{blocks{workchain_id seq_no cursor}}"}'

# a balance
curl http://%[1]s/demo/graphql -H 'Content-Type: application/json' `+
		`-d '{"query":"{blockchain{account(address:\"%[2]v\"){info{balance(format:DEC)}}}}"}'

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

// A cluster contains all parts of the deployment except the producer.
type cluster struct {
	brokers *brokers
	hosts   []*host
	proxy   *proxy
}

// newCluster starts a cluster and waits until it serves requests.
func newCluster(ctx context.Context, dir, addr string, l launch, logger *slog.Logger) (c *cluster, err error) {
	listener, err := net.Listen("tcp", addr) // first, because all other steps take seconds
	if err != nil {
		return nil, err
	}
	c = &cluster{}
	defer func() {
		if err != nil {
			_ = listener.Close()
			err = errors.Join(err, c.close())
		}
	}()
	if c.brokers, err = newBrokers(dir, l); err != nil {
		return c, err
	}
	if err := c.createChain(ctx); err != nil {
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
	c.proxy = newProxy(listener, c.hosts, logger)
	return c, nil
}

// createChain creates the streams and the bucket. It retries until the brokers have formed a
// cluster.
func (c *cluster) createChain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		storage := &natschain.Storage{Replicas: machines}
		b, err := natschain.Open(ctx, c.brokers.urls(), &natschain.Options{Create: storage})
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

// mount returns an HTTP handler that serves h at the paths that clients and probes use.
func mount(h *chaingql.Handler) http.Handler {
	mux := http.NewServeMux()
	chaingql.Mount(mux, "/{project}/graphql", h)
	chaingql.Mount(mux, "/graphql", h) // for clients that send no project in the URL
	mux.HandleFunc("GET /readyz", h.ServeReady)
	mux.HandleFunc("GET /livez", func(http.ResponseWriter, *http.Request) {}) // the process responds
	return mux
}
