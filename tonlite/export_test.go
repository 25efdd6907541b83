package tonlite

import (
	"context"
	"net"
	"time"
)

// Hurry sets the timeout of all further queries and attempts to connect. Do not call Hurry while
// the Backend connects to a server.
func (b *Backend) Hurry(timeout time.Duration) {
	b.opts.Timeout, b.servers.opts.Timeout = timeout, timeout
	for _, s := range b.servers.all {
		s.timeout = timeout
	}
}

// Prefer makes the server with the given index the preferred one, which is queried first.
func (b *Backend) Prefer(index uint32) { b.servers.preferred.Store(index) }

// Latency returns how long the server with the given index usually takes to respond.
func (b *Backend) Latency(index uint32) time.Duration { return b.servers.all[index].usualLatency() }

// With returns a copy of o with which a Backend connects by calling dial.
func (o *Options) With(dial func(ctx context.Context, network, addr string) (net.Conn, error)) *Options {
	in := o.withDefaults()
	in.dial = dial
	return &in
}
