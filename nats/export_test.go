package natschain

import (
	"context"
	"fmt"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/nats-io/nats.go"
)

// Connected reports whether the Backend is connected.
func (b *Backend) Connected() bool { return b.nc.IsConnected() }

// Need sets the oldest supported NATS version, so that a test can make its server too old.
func Need(major, minor int) (restore func()) {
	was := oldestServer
	oldestServer = [2]int{major, minor}
	return func() { oldestServer = was }
}

// Forget drops the caches of b, so that it searches for every cursor and reads the index
// again.
func (b *Backend) Forget() { b.forget() }

// WriteWithin sets the WriteTimeout of later Writer calls until restore is called.
func (b *Backend) WriteWithin(limit time.Duration) (restore func()) {
	was := b.opts.WriteTimeout
	b.opts.WriteTimeout = limit
	return func() { b.opts.WriteTimeout = was }
}

// CatchUp sets how long w waits for a new leader that has fewer blocks than w has seen.
func (w *Writer) CatchUp(within time.Duration) { w.catchUp = within }

// Bare returns a Backend that uses nc. Unlike Open, it checks nothing.
func Bare(nc *nats.Conn, opts *Options) *Backend {
	o, _ := opts.withDefaults()
	b, epoch := newBackend(nc, o), epochOf(time.Time{}, nil)
	b.epoch.Store(&epoch)
	return b
}

// Search occupies the search queue until end is called, like a page that needs a search.
func (b *Backend) Search(ctx context.Context) (end func(), err error) {
	return b.searches.release, b.searches.acquire(ctx)
}

// Reset makes b forget which messages are blocks, as it does after messages were lost.
func (b *Backend) Reset() { b.reset() }

// Retry calls request as reads do, until it succeeds or Options.Timeout has passed.
func (b *Backend) Retry(ctx context.Context, request func(context.Context) error) error {
	return b.retry(ctx, request)
}

// Received makes b expect messages of the size in pages.
func (b *Backend) Received(size int) { b.pages.received(size) }

// EnterPage waits until a page of q may be read, as Blocks does.
func (b *Backend) EnterPage(ctx context.Context, q chaingql.BlocksQuery) (leave func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, b.opts.Timeout)
	defer cancel()
	_, leave, err = b.pages.enter(ctx, &q)
	return leave, err
}

// KeepUnacked lets a balance of a new account fail every interval, n times, and returns how many IDs are kept then.
func KeepUnacked(n int, interval time.Duration) int {
	var x unackedIDs
	for i := range n {
		x.add([]*nats.Msg{withNewID(&nats.Msg{Subject: fmt.Sprint(i), Header: nats.Header{}})})
		time.Sleep(interval)
	}
	return len(x.ids)
}
