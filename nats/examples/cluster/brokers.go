package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/nats-io/nats-server/v2/server"
)

// brokers holds the servers of one NATS cluster. Each server can be stopped and started
// again with the same data.
type brokers struct {
	opts   []*server.Options
	launch launch

	mu      sync.Mutex
	running []broker // the element of a stopped broker is nil
}

// A broker is one NATS server. Its stop method returns after the server has stopped.
type broker interface{ stop() }

// A launch is a function that starts a broker.
type launch func(*server.Options) (broker, error)

// newBrokers starts a NATS cluster on 127.0.0.1. It uses l to start each server.
func newBrokers(dir string, l launch) (*brokers, error) {
	b := &brokers{launch: l, running: make([]broker, machines)}
	ports, err := freePorts(2*machines, stablePorts)
	if err != nil {
		return nil, err
	}
	var routes []*url.URL
	for i := range machines {
		routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", ports[i])})
	}
	for i := range machines {
		name := fmt.Sprintf("broker%d", i+1)
		b.opts = append(b.opts, &server.Options{
			ServerName: name, Host: "127.0.0.1", Port: ports[machines+i], NoLog: true, NoSigs: true,
			JetStream: true, StoreDir: filepath.Join(dir, name), Routes: routes,
			Cluster: server.ClusterOpts{Name: "chain", Host: "127.0.0.1", Port: ports[i]},
		})
	}
	for i := range machines {
		if err := b.start(i); err != nil {
			b.close()
			return nil, err
		}
	}
	return b, nil
}

// stablePorts is the lowest port for servers that must restart on the same port.
const stablePorts = 10_000

// freePorts returns n unused ports in [from, from+10,000). This range must not contain ports
// that the system assigns to outgoing connections. Otherwise such a connection could take
// the port of a stopped broker, which could then not restart.
func freePorts(n, from int) (ports []int, err error) {
	for len(ports) < n {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", from+rand.IntN(10_000)))
		switch {
		case err == nil:
			defer func() { _ = l.Close() }()
			ports = append(ports, l.Addr().(*net.TCPAddr).Port)
		case !errors.Is(err, syscall.EADDRINUSE):
			return nil, err
		}
	}
	return ports, nil
}

// urls returns the URLs of all brokers for clients, separated by commas.
func (b *brokers) urls() string {
	var urls []string
	for _, o := range b.opts {
		urls = append(urls, fmt.Sprintf("nats://127.0.0.1:%d", o.Port))
	}
	return strings.Join(urls, ",")
}

func (b *brokers) start(i int) error {
	s, err := b.launch(b.opts[i].Clone())
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running[i] = s
	return nil
}

func (b *brokers) stop(i int) {
	b.mu.Lock()
	s := b.running[i]
	b.running[i] = nil
	b.mu.Unlock()
	if s != nil {
		s.stop()
	}
}

func (b *brokers) close() {
	var stopping sync.WaitGroup
	for i := range b.opts {
		stopping.Go(func() { b.stop(i) })
	}
	stopping.Wait()
}

// local is a broker that runs in this process.
type local struct{ *server.Server }

func inProcess(opts *server.Options) (broker, error) {
	s, err := server.NewServer(opts)
	if err != nil {
		return nil, err
	}
	s.ConfigureLogger()
	s.Start()
	if !s.ReadyForConnections(startTimeout / 2) {
		s.Shutdown()
		return nil, errors.New("the NATS server did not become ready for connections in time")
	}
	return local{s}, nil
}

// stop stops the server. Before that, the server hands the streams that it leads over to
// other servers.
func (l local) stop() {
	l.Shutdown()
	l.WaitForShutdown()
}
