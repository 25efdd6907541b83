package natschain

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/chaingql/chaingql"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A Backend implements [chaingql.Backend] for a chain in NATS JetStream: it reads
// blocks from a stream and balances from a key-value bucket. [Open] returns a Backend.
// Its methods may be called concurrently.
type Backend struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	opts   Options // with defaults applied
	names  names
	places placeCache
	nodes  nodeCache
	leaves leafCache

	strays   strays
	survey   survey
	epoch    atomic.Pointer[string]
	opened   atomic.Bool // whether Open has surveyed the newest messages
	searches searchQueue
	pages    pageQueue
	balances semaphore    // held by each request for a balance
	batched  semaphore    // held by those of them that belong to a call of Balances
	slow     atomic.Int32 // number of slow pages in progress; see isSlow
	mirrored atomic.Bool  // whether a mirror has responded to a read
}

// A semaphore admits as many calls at a time as its capacity. A waiting call gives up when its context is done.
type semaphore chan struct{}

func (s semaphore) acquire(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tryAcquire reports whether a place was free, and takes it. It does not wait.
func (s semaphore) tryAcquire() bool {
	select {
	case s <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s semaphore) release() { <-s }

// maxWaitingSearches is the maximum number of searches that may wait while another search
// runs. By default, a Handler has at most 64 Backend calls in flight (Limits.InFlight).
// Searches must not occupy all of them.
const maxWaitingSearches = 16

var errTooManySearches = errors.New("too many searches by shard or other slow reads are in progress: " +
	"retry later, or let a Writer create the block index")

// A searchQueue admits one search at a time. While maxWaitingSearches searches wait, it
// rejects further ones.
type searchQueue struct {
	running  semaphore
	admitted semaphore
}

func newSearchQueue() searchQueue {
	return searchQueue{make(semaphore, 1), make(semaphore, 1+maxWaitingSearches)}
}

func (q searchQueue) acquire(ctx context.Context) error {
	if !q.admitted.tryAcquire() {
		return failed("read blocks", errTooManySearches)
	}
	err := q.running.acquire(ctx)
	if err != nil {
		q.admitted.release()
	}
	return failed("read blocks", err)
}

func (q searchQueue) release() {
	q.running.release()
	q.admitted.release()
}

// maxSlowPages is the maximum number of slow pages that may be read at the same time while
// a search runs. It exists because a search delays every request for blocks. It is about
// half of the 64 Backend calls that a Handler may have in flight by default.
const maxSlowPages = 2 * (1 + maxWaitingSearches)

// admitSlow counts a slow page as in progress until leave is called. It returns an error
// if a search is running and maxSlowPages slow pages are already in progress.
func (b *Backend) admitSlow() (leave func(), err error) {
	leave = func() { b.slow.Add(-1) }
	if b.slow.Add(1) > maxSlowPages && len(b.searches.admitted) > 0 {
		leave()
		return nil, failed("read blocks", errTooManySearches)
	}
	return leave, nil
}

// isSlow reports whether the page that q asks for may need many requests. It may if q has
// a cursor whose place is not cached, or if q has a filter but no cursor.
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
	_ chaingql.Epocher        = (*Backend)(nil)
	_ chaingql.HashIndex      = (*Backend)(nil)
	_ chaingql.SeqNoIndex     = (*Backend)(nil)
	_ chaingql.TimeIndex      = (*Backend)(nil)
)

// Open connects to a NATS server and returns a Backend. The url may list several servers,
// separated by commas; Open uses one that responds. An empty url means [nats.DefaultURL].
//
// Open returns an error if the server is too old or does not have JetStream enabled, if
// the stream or the bucket does not exist (see [Options].Create) or has unsuitable
// settings, or if a permission to read them is missing. The error text has one line and
// does not contain the URL. The context limits only the call of Open. The Backend has its
// own connection: call Close when you no longer need the Backend.
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
	d := &dialer{opening: ctx}
	nc, err := nats.Connect(url, append(o.connect(), d.install)...)
	if interrupted := d.opened(); interrupted {
		if err == nil {
			nc.Close()
		}
		return nil, failed("connect", context.Cause(ctx))
	}
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
		nc: nc, opts: o, names: namesOf(o.Chain), searches: newSearchQueue(), pages: newPageQueue(),
		survey: survey{sem: make(semaphore, 1)}, balances: make(semaphore, maxBalances),
		batched: make(semaphore, maxBalances),
	}
}

// Close closes the connection. All running calls, including Follow, end with an error.
// Shut down the Handler before you call Close. A second call does nothing.
func (b *Backend) Close() { b.nc.Close() }

// reset drops everything that is cached about the stream. It is called if the stream was
// replaced with another one or may have lost messages.
func (b *Backend) reset() {
	b.forget()
	b.survey.forget()
	b.strays.forget()
}

// forget drops the cached places of cursors, the cached index nodes, and the hashes of
// messages without such a node.
func (b *Backend) forget() {
	b.places.forget()
	b.leaves.forget()
	b.nodes.forget("")
}

// info requests the state of a stream from the stream's leader.
func (b *Backend) info(ctx context.Context, stream string) (info *jetstream.StreamInfo, err error) {
	since := b.nc.LastError()
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
	return info, b.permissionError(since, err)
}
