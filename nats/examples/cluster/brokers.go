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

// brokers are the servers of one NATS cluster. Each can be stopped and started again
// with its data.
type brokers struct {
	opts   []*server.Options
	launch launch

	mu      sync.Mutex
	running []broker // nil if stopped
}

// A broker is one server. stop returns after it has ended.
type broker interface{ stop() }

// A launch starts a broker.
type launch func(*server.Options) (broker, error)

// newBrokers starts a cluster on 127.0.0.1.
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

// stablePorts is the first port of servers that restart on the same port.
const stablePorts = 10_000

// freePorts returns unused ports in [from, from+10,000). They are outside the range of
// outgoing connections: such a connection could take the port of a stopped broker, which
// then could not restart.
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

// urls returns the URLs of the cluster for clients.
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

// local is a broker in this process.
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
		return nil, errors.New("a NATS server is not ready for connections")
	}
	return local{s}, nil
}

// stop hands the streams that the server leads over to the others first.
func (l local) stop() {
	l.Shutdown()
	l.WaitForShutdown()
}
