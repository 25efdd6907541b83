package natschain

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/chaingql/chaingql"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A Backend serves a chain that is stored in one stream and one bucket. [Open]
// creates one. Its methods may be called concurrently.
type Backend struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	opts   Options // in force
	names  names
	places placeCache
	nodes  nodeCache

	strays   strays
	survey   survey
	opened   atomic.Bool // Open has surveyed the newest messages
	searches searchQueue
	slow     atomic.Int32 // slow pages in progress
}

// A semaphore admits one call at a time.
type semaphore chan struct{}

func (s semaphore) acquire(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return failed("read blocks", ctx.Err())
	}
}

func (s semaphore) release() { <-s }

// maxWaitingSearches is the number of searches that may wait for the running one. A
// Handler has 64 calls in flight by default (InFlight); searches may take a part of
// them only.
const maxWaitingSearches = 16

var errTooManySearches = errors.New("too many searches for blocks of a shard: retry later, " +
	"or let a Writer create the index")

// A searchQueue admits one call at a time and rejects calls if maxWaitingSearches wait.
type searchQueue struct {
	running  semaphore
	admitted chan struct{}
}

func newSearchQueue() searchQueue {
	return searchQueue{make(semaphore, 1), make(chan struct{}, 1+maxWaitingSearches)}
}

func (q searchQueue) acquire(ctx context.Context) error {
	select {
	case q.admitted <- struct{}{}:
	default:
		return failed("read blocks", errTooManySearches)
	}
	err := q.running.acquire(ctx)
	if err != nil {
		<-q.admitted
	}
	return err
}

func (q searchQueue) release() {
	q.running.release()
	<-q.admitted
}

// maxSlowPages is the number of slow pages that may be read during a search, which
// delays every request for blocks. It is about half of a Handler's calls in flight.
const maxSlowPages = 2 * (1 + maxWaitingSearches)

// admitSlow counts a slow page until leave is called. It returns an error if a search
// runs and there are too many.
func (b *Backend) admitSlow() (leave func(), err error) {
	leave = func() { b.slow.Add(-1) }
	if b.slow.Add(1) > maxSlowPages && len(b.searches.admitted) > 0 {
		leave()
		return nil, failed("read blocks", errTooManySearches)
	}
	return leave, nil
}

// isSlow reports whether a page may need many requests: it has a cursor whose place is
// not cached, or a filter without a cursor.
func (b *Backend) isSlow(q chaingql.BlocksQuery) bool {
	cursors := 0
	for _, c := range []chaingql.Cursor{q.After, q.Before} {
		if c == "" {
			continue
		}
		if _, known := b.places.get(c); !known {
			return true
		}
		cursors++
	}
	return cursors == 0 && b.names.filter(q) != b.names.all()
}

var (
	_ chaingql.Backend        = (*Backend)(nil)
	_ chaingql.BalanceBatcher = (*Backend)(nil)
)

// Open connects to the server at url. The url may list several servers, separated by
// commas: the first that responds is used. An empty url means [nats.DefaultURL].
//
// Open returns an error of one line, without the URL, if the server is too old or has
// no JetStream, if the stream or the bucket does not exist (see [Options].Create) or
// has unsuitable settings, or if a permission to read them is missing. The context
// applies to Open only. The Backend has its own connection: call Close if it is no
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
	b := newBackend(nc, o)
	if b.js, err = jetstream.New(nc); err == nil {
		err = b.prepare(ctx)
	}
	if err != nil {
		nc.Close()
		return nil, err
	}
	return b, nil
}

func newBackend(nc *nats.Conn, o Options) *Backend {
	return &Backend{
		nc: nc, opts: o, names: namesOf(o.Chain), searches: newSearchQueue(), survey: survey{sem: make(semaphore, 1)},
	}
}

// Close ends every Follow and every running call, and closes the connection. Shut
// down the Handler first. A second Close does nothing.
func (b *Backend) Close() { b.nc.Close() }

// reset drops everything that was learned about the stream. It is called if the
// stream was replaced by another one.
func (b *Backend) reset() {
	b.forget()
	b.survey.forget()
	b.strays.forget()
}

// forget drops the cached places of cursors and nodes of the index.
func (b *Backend) forget() {
	b.places.forget()
	b.nodes.forget("")
}

// info returns the state of a stream, from its leader.
func (b *Backend) info(ctx context.Context, stream string) (info *jetstream.StreamInfo, err error) {
	err = b.retry(ctx, func(ctx context.Context) error {
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
	return info, b.permissionError(err)
}
