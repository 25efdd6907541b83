package natschain

import (
	"context"
	"net"
	"sync"

	"github.com/nats-io/nats.go"
)

// A dialer lets the context of Open interrupt nats.Connect, which has no context of its own:
// while Open runs, the end of the context cancels a dial and closes a connection whose server
// does not answer. Later connections, after one was lost, are not affected.
type dialer struct {
	host net.Dialer        // of Options.Connect, or the default
	own  nats.CustomDialer // of Options.Connect; nil means host

	mu      sync.Mutex
	opening context.Context // nil after opened
	stops   []func() bool   // detach the connections from opening
}

// install is a [nats.Option]. It must be the last one, because it wraps the dialer of the others.
func (d *dialer) install(o *nats.Options) error {
	d.host.Timeout = o.Timeout
	if o.Dialer != nil {
		d.host = *o.Dialer
	}
	if o.AllowMultipathTCP != nil {
		d.host.SetMultipathTCP(*o.AllowMultipathTCP)
	}
	d.own, o.CustomDialer = o.CustomDialer, d
	return nil
}

// Dial implements [nats.CustomDialer].
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	d.mu.Lock()
	ctx := d.opening
	d.mu.Unlock()
	if ctx == nil {
		return d.dial(context.Background(), network, address)
	}
	c, err := d.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	d.stops = append(d.stops, context.AfterFunc(ctx, func() { c.Close() }))
	d.mu.Unlock()
	return c, nil
}

func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if d.own != nil {
		return d.own.Dial(network, address)
	}
	return d.host.DialContext(ctx, network, address)
}

// SkipTLSHandshake reports whether the dialer of Options.Connect makes the TLS handshake itself.
func (d *dialer) SkipTLSHandshake() bool {
	own, ok := d.own.(interface{ SkipTLSHandshake() bool })
	return ok && own.SkipTLSHandshake()
}

// opened detaches the connections from the context of Open and reports whether that context has
// interrupted nats.Connect.
func (d *dialer) opened() (interrupted bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	interrupted = d.opening.Err() != nil
	for _, stop := range d.stops {
		interrupted = !stop() || interrupted
	}
	d.opening, d.stops = nil, nil
	return interrupted
}
