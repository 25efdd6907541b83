package tonlite

import (
	"cmp"
	"context"
	"slices"
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
	limit   int   // of concurrent queries: 1, or 2 after late
	running int
	queued  atomic.Int32 // queries that wait for a slot in queryGate
	delay   time.Duration
	late    <-chan time.Time
	replies chan reply
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
	h.ctx, h.cancel = context.WithCancel(ctx)
	if len(order) > 1 {
		h.delay = min(max(minHedgeDelay, hedgeFactor*set.all[order[1]].usualLatency()), set.opts.Timeout/4)
		h.late = time.After(h.delay)
	}
	return h
}

// next returns the next reply. ok is false if all servers have replied.
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
			if h.queued.Load() > 0 { // the server is not responsible for this wait
				h.late = time.After(h.delay)
			} else {
				h.limit = 2
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
