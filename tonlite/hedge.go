package tonlite

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chaingql/chaingql/tonlite/internal/lite"
)

// If a server takes hedgeFactor times as long as the next one usually does, but at least
// minHedgeDelay, that one is queried in addition.
const (
	hedgeFactor   = 4
	minHedgeDelay = 50 * time.Millisecond
)

// A hedgedQuery sends one query to one server after another. It queries the next server if a
// response is an error. If a response is late, it queries one more server at the same time, so that
// a slow server does not delay every call.
type hedgedQuery struct {
	set     *servers
	ctx     context.Context
	cancel  context.CancelFunc
	query   lite.Message
	rest    []int // indexes of the servers that are not queried yet
	limit   int   // of concurrent queries: 1, 2 after late, or all after askAll
	running int
	queued  atomic.Int32 // queries that wait for a slot in queryGate
	delay   time.Duration
	late    <-chan time.Time
	replies chan reply
	haste   *haste    // nil if all servers may take their time
	since   time.Time // when askAll was called in haste
}

// A haste limits how long queries wait for servers that are slow to say that they do not have a block, after another
// server said so. Each query may also wait for the usual time of a response.
type haste struct {
	mu   sync.Mutex
	left time.Duration // for all queries together
}

type hasteKey struct{}

// withHaste returns a context for queries that wait at most for limit, together, for slow servers.
func withHaste(ctx context.Context, limit time.Duration) context.Context {
	return context.WithValue(ctx, hasteKey{}, &haste{left: limit})
}

// withoutHaste returns a context for queries that wait for slow servers again.
func withoutHaste(ctx context.Context) context.Context {
	return context.WithValue(ctx, hasteKey{}, nil)
}

// inHaste reports whether queries with ctx do not wait for slow servers.
func inHaste(ctx context.Context) bool { return ctx.Value(hasteKey{}) != nil }

// spend reduces the time that is left by d, and returns the rest.
func (h *haste) spend(d time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.left = max(0, h.left-max(0, d))
	return h.left
}

// askAll is called when server s does not have the block, or lags. It queries all other servers at the same time,
// because one after the other, those that do not respond would use up the time of the call. In haste, next waits for
// them for a limited time only.
func (h *hedgedQuery) askAll(s *server) {
	h.limit = cap(h.replies)
	if h.haste == nil || !h.since.IsZero() {
		return
	}
	h.since, h.delay = time.Now(), h.set.hedgeDelay(s)
	h.late = time.After(h.delay + h.haste.spend(0))
}

// A reply is a server's response to a query, or the error if there is none.
type reply struct {
	place   int // index of the server
	answer  lite.Message
	release func() // nil if err is set
	err     error
}

// hedge starts a hedgedQuery to the servers in the given order. Call stop when the response is not
// needed any more.
func (set *servers) hedge(ctx context.Context, q lite.Message, order []int) *hedgedQuery {
	h := &hedgedQuery{set: set, query: q, rest: order, limit: 1, replies: make(chan reply, len(order))}
	h.haste, _ = ctx.Value(hasteKey{}).(*haste)
	h.ctx, h.cancel = context.WithCancel(ctx)
	if len(order) > 1 {
		h.delay = set.hedgeDelay(set.all[order[1]])
		h.late = time.After(h.delay)
	}
	return h
}

// hedgeDelay returns how long a query waits if server s would usually have responded long before.
func (set *servers) hedgeDelay(s *server) time.Duration {
	return min(max(minHedgeDelay, hedgeFactor*s.usualLatency()), set.opts.Timeout/4)
}

// next returns the next reply. ok is false if all servers have replied, or if time is up in haste.
func (h *hedgedQuery) next() (r reply, ok bool) {
	for {
		for h.running < h.limit && len(h.rest) > 0 {
			h.send(h.rest[0])
			h.rest = h.rest[1:]
		}
		if h.running == 0 {
			return r, false
		}
		select {
		case r = <-h.replies:
			h.running--
			return r, true
		case <-h.late:
			switch {
			case h.queued.Load() > 0: // the server is not responsible for this wait
				h.late = time.After(h.delay)
			case !h.since.IsZero():
				return r, false
			default:
				h.limit = max(2, h.limit)
			}
		}
	}
}

func (h *hedgedQuery) send(place int) {
	h.running++
	go func() {
		r := reply{place: place}
		r.err = recoverPanics(func() (err error) {
			r.answer, r.release, err = h.set.fetch(h.ctx, h.set.all[place], h.query, &h.queued)
			return err
		})
		h.replies <- r
	}()
}

// stop cancels queries in flight and waits until they have ended.
func (h *hedgedQuery) stop() {
	h.cancel()
	if !h.since.IsZero() {
		h.haste.spend(time.Since(h.since) - h.delay)
	}
	for ; h.running > 0; h.running-- {
		if r := <-h.replies; r.release != nil {
			r.release()
		}
	}
}

// order returns the indexes of the servers in the order in which a call queries them: first the
// preferred server, and then those that usually respond faster before the others.
func (set *servers) order() []int {
	first := int(set.preferred.Load())
	order := make([]int, len(set.all))
	for i := range order {
		order[i] = (first + i) % len(order)
	}
	slices.SortStableFunc(order[1:], func(x, y int) int {
		return cmp.Compare(set.all[x].usualLatency(), set.all[y].usualLatency())
	})
	return order
}

// preferNext makes the server after the preferred one the preferred one.
func (set *servers) preferNext() {
	set.preferred.Store((set.preferred.Load() + 1) % uint32(len(set.all)))
}
