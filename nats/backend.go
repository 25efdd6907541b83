package natschain

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/chaingql/chaingql"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A Backend serves the chain that is kept in one stream and one bucket. Make one
// with [Open]; its methods may be called concurrently.
type Backend struct {
	nc    *nats.Conn
	js    jetstream.JetStream
	opts  Options // in force
	names names
	marks marks
	nodes nodes

	strays strays
	survey survey
	opened atomic.Bool // Open has surveyed the newest messages
	sparse queue
}

// A semaphore admits one call at a time.
type semaphore chan struct{}

func (s semaphore) take(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return failed("read blocks", ctx.Err())
	}
}

func (s semaphore) release() { <-s }

// mostSearches is how many searches may wait for the one that runs. A Handler has 64
// calls under way by default (InFlight), of which most must be left to others.
const mostSearches = 16

var errSearches = errors.New("too many searches for blocks of few: ask again, or have a Writer make the index")

// A queue admits one call at a time, and refuses more than a few that wait.
type queue struct {
	turn semaphore
	all  chan struct{}
}

func newQueue() queue { return queue{make(semaphore, 1), make(chan struct{}, 1+mostSearches)} }

func (q queue) take(ctx context.Context) error {
	select {
	case q.all <- struct{}{}:
	default:
		return failed("read blocks", errSearches)
	}
	err := q.turn.take(ctx)
	if err != nil {
		<-q.all
	}
	return err
}

func (q queue) release() {
	q.turn.release()
	<-q.all
}

var (
	_ chaingql.Backend        = (*Backend)(nil)
	_ chaingql.BalanceBatcher = (*Backend)(nil)
)

// Open connects to a server, or to the first that answers of several with commas
// between them, or to [nats.DefaultURL] where there is none, and sees that they
// will do: that there are JetStream, the stream and the bucket (see
// [Options].Create), as they have to be, and the permission to read them. What is
// wrong is one error here, in which the URL does not appear. The context is for
// opening alone. The Backend has a connection of its own; close it when it is no
// longer used.
func Open(ctx context.Context, url string, opts *Options) (*Backend, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := checkURL(url); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, failed("connect", err)
	}
	nc, err := nats.Connect(url, o.connect()...)
	if err != nil {
		return nil, failed("connect", err)
	}
	b := &Backend{nc: nc, opts: o, names: namesOf(o.Chain), sparse: newQueue()}
	if b.js, err = jetstream.New(nc); err == nil {
		err = b.prepare(ctx)
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	return b, nil
}

// Close ends every Follow and every call that is under way, and closes the
// connection. Shut the Handler down before. A second Close does nothing.
func (b *Backend) Close() { b.nc.Close() }

// replaced is for when the stream turns out to be another.
func (b *Backend) replaced() {
	b.forget()
	b.survey.forget()
	b.strays.forget()
}

// forget drops the places of cursors, and the index.
func (b *Backend) forget() {
	b.marks.forget()
	b.nodes.forget("")
}

// info is what the leader of a stream tells of it.
func (b *Backend) info(ctx context.Context, stream string) (info *jetstream.StreamInfo, err error) {
	err = b.try(ctx, func(ctx context.Context) error {
		s, err := b.js.Stream(ctx, stream)
		if err != nil {
			return err
		}
		info = s.CachedInfo()
		return nil
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, err
	}
	return info, b.denied(err)
}
