package natschain

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"
)

// Connected tells whether the connection stands.
func (b *Backend) Connected() bool { return b.nc.IsConnected() }

// Need lets tests meet a server that is too old.
func Need(major, minor int) (restore func()) {
	was := oldest
	oldest = [2]int{major, minor}
	return func() { oldest = was }
}

// Forget has the Backend search for every cursor, and read the index again.
func (b *Backend) Forget() { b.forget() }

// WriteWithin sets the deadline of a Writer's calls to come.
func (b *Backend) WriteWithin(limit time.Duration) (restore func()) {
	was := b.opts.WriteTimeout
	b.opts.WriteTimeout = limit
	return func() { b.opts.WriteTimeout = was }
}

// CatchUp sets for how long a new leader may have fewer blocks than were seen.
func (w *Writer) CatchUp(within time.Duration) { w.catchUp = within }

// Bare is a Backend on servers that nobody has looked at.
func Bare(nc *nats.Conn, opts *Options) *Backend {
	o, _ := opts.withDefaults()
	return &Backend{nc: nc, opts: o, names: namesOf(o.Chain), sparse: newQueue()}
}

// Search waits as a page does that has to be searched for.
func (b *Backend) Search(ctx context.Context) (end func(), err error) {
	return b.sparse.release, b.sparse.take(ctx)
}
