package natschain

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
)

// Connected reports whether the Backend is connected.
func (b *Backend) Connected() bool { return b.nc.IsConnected() }

// Need sets the oldest supported server, so that tests can run with one that is too old.
func Need(major, minor int) (restore func()) {
	was := oldestServer
	oldestServer = [2]int{major, minor}
	return func() { oldestServer = was }
}

// Forget drops caches: the Backend searches for every cursor and reads the index again.
func (b *Backend) Forget() { b.forget() }

// WriteWithin sets the deadline of further calls of a Writer.
func (b *Backend) WriteWithin(limit time.Duration) (restore func()) {
	was := b.opts.WriteTimeout
	b.opts.WriteTimeout = limit
	return func() { b.opts.WriteTimeout = was }
}

// CatchUp sets how long a new leader may have fewer blocks than were seen.
func (w *Writer) CatchUp(within time.Duration) { w.catchUp = within }

// Bare returns a Backend without the checks of Open.
func Bare(nc *nats.Conn, opts *Options) *Backend {
	o, _ := opts.withDefaults()
	return newBackend(nc, o)
}

// Search occupies the queue of searches, like a page that needs one.
func (b *Backend) Search(ctx context.Context) (end func(), err error) {
	return b.searches.release, b.searches.acquire(ctx)
}
