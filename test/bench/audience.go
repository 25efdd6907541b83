package main

import (
	"context"
	"fmt"
	"time"
)

// An audience is a server and its subscribers, each in a separate process.
type audience struct {
	*server
	crowd *process
	size  int
}

// gather starts a server and a client process without subscribers.
func gather(ctx context.Context, peer, streams string) (*audience, error) {
	s, err := launch(ctx, peer)
	if err != nil {
		return nil, err
	}
	crowd, err := startSelf(ctx, "client", s.addr, peer, streams)
	if err != nil {
		s.stop()
		return nil, err
	}
	return &audience{server: s, crowd: crowd}, nil
}

func (a *audience) stop() {
	a.crowd.stop()
	a.server.stop()
}

// grow adds n subscribers and waits until all receive blocks. Only a received block proves that a
// stream has started.
func (a *audience) grow(n int) error {
	if err := a.crowd.ask(fmt.Sprintf("connect %d", n), &a.size); err != nil {
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
	return fmt.Errorf("%s: not all of %d subscribers receive blocks", a.peer, a.size)
}

// A sent holds the cost of sending blocks.
type sent struct {
	cpu      float64       // server CPU per message, in microseconds
	crowd    float64       // client CPU per message, in microseconds
	p99      time.Duration // from append to arrival
	last     time.Duration
	messages int
	bytes    int // per message
}

// send appends blocks at once and fails unless every subscriber receives all of them.
func (a *audience) send(blocks int) (sent, error) {
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
		return sent{}, fmt.Errorf("%s: %d of %d messages arrived", a.peer, d.Count, blocks*a.size)
	}
	return sent{
		cpu:   float64((after.CPU - before.CPU).Nanoseconds()) / 1e3 / float64(d.Count),
		crowd: float64(d.CPU) / 1e3 / float64(d.Count),
		p99:   time.Duration(d.P99 - at), last: time.Duration(d.Last - at), messages: d.Count, bytes: d.Bytes / d.Count,
	}, nil
}

// deliver appends blocks and waits for their delivery.
func (a *audience) deliver(blocks int, limit time.Duration) (at int64, d delivery, err error) {
	var expecting int
	if err := a.crowd.ask(fmt.Sprintf("expect %d %d", blocks*a.size, limit.Milliseconds()), &expecting); err != nil {
		return 0, d, err
	}
	then, err := a.do(fmt.Sprintf("append %d", blocks))
	if err != nil {
		return 0, d, err
	}
	return then.At, d, a.crowd.receive(&d)
}
