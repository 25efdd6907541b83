package main

import (
	"context"
	"fmt"
	"time"
)

// A subscribedServer is a server with subscribers. The server and the subscribers are two separate
// processes.
type subscribedServer struct {
	*server
	clients *process // runs the subscribers
	size    int      // number of subscribers
}

// launchSubscribed starts a server with the function launch, and a client process, which has no subscribers yet.
func launchSubscribed(ctx context.Context, launch launcher, peer, streams string) (*subscribedServer, error) {
	s, err := launch(ctx, peer)
	if err != nil {
		return nil, err
	}
	clients, err := startSelf(ctx, "client", s.addr, peer, streams)
	if err != nil {
		s.stop()
		return nil, err
	}
	return &subscribedServer{server: s, clients: clients}, nil
}

func (a *subscribedServer) stop() {
	a.clients.stop()
	a.server.stop()
}

// grow adds n subscribers and waits until all of them receive blocks, because only a received block
// proves that a stream has started.
func (a *subscribedServer) grow(n int) error {
	if err := a.clients.ask(fmt.Sprintf("connect %d", n), &a.size); err != nil {
		return fmt.Errorf("%s: %w", a.peer, err)
	}
	for range 10 {
		time.Sleep(200 * time.Millisecond)
		_, d, err := a.deliver(1, 3*time.Second)
		if err != nil {
			return err
		}
		if d.Count == a.size {
			return nil
		}
	}
	return fmt.Errorf("%s: some of the %d subscribers receive no blocks", a.peer, a.size)
}

// A sent holds the measured costs of sending blocks to all subscribers.
type sent struct {
	serverCPU float64       // CPU time of the server per message, in microseconds
	clientCPU float64       // CPU time of the clients per message, in microseconds
	last      time.Duration // time from the append until the last message arrived
	messages  int
	bytes     int // size of one message
}

// send appends the given number of blocks at once. It returns an error unless every subscriber receives
// all of them.
func (a *subscribedServer) send(blocks int) (sent, error) {
	before, err := a.do("state")
	if err != nil {
		return sent{}, err
	}
	at, d, err := a.deliver(blocks, 10*time.Second)
	if err != nil {
		return sent{}, err
	}
	after, err := a.do("state")
	if err != nil {
		return sent{}, err
	}
	if d.Count != blocks*a.size {
		return sent{}, fmt.Errorf("%s: only %d of %d messages arrived", a.peer, d.Count, blocks*a.size)
	}
	return sent{
		serverCPU: float64((after.CPU - before.CPU).Nanoseconds()) / 1e3 / float64(d.Count),
		clientCPU: float64(d.CPU) / 1e3 / float64(d.Count),
		last:      time.Duration(d.Last - at), messages: d.Count, bytes: d.Bytes / d.Count,
	}, nil
}

// deliver appends the given number of blocks at once and waits until all messages have arrived, but not
// longer than limit. It also returns the time of the append, in nanoseconds of Unix time.
func (a *subscribedServer) deliver(blocks int, limit time.Duration) (at int64, d delivery, err error) {
	var expecting int
	if err := a.clients.ask(fmt.Sprintf("expect %d %d", blocks*a.size, limit.Milliseconds()), &expecting); err != nil {
		return 0, d, err
	}
	appended, err := a.do(fmt.Sprintf("append %d", blocks))
	if err != nil {
		return 0, d, err
	}
	return appended.At, d, a.clients.receive(&d)
}
