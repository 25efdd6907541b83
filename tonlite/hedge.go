package tonlite

import (
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

// A hedgedQuery sends one query to one server after another, and checks each response. It queries the next server if a
// server fails or does not have the block. If a query or a check is late, it starts one more at the same time, so that
// a slow server does not delay every call. It gives up no check for another one, because a check may take several
// round trips to an honest server.
type hedgedQuery struct {
	set    *servers
	ctx    context.Context
	cancel context.CancelFunc
	query  lite.Message
	check  checkFunc

	rest     []int   // indexes of the servers that are not queried yet
	awaited  []int   // indexes of the servers that have not responded yet, queried or not
	answers  []reply // responses that are not checked yet
	querying int
	checking int
	limit    int          // of queries and checks at the same time: 1, and one more whenever one is late
	lacked   bool         // whether a server does not have the block, or lags: see askAll
	all      bool         // whether limit does not apply to queries
	queued   atomic.Int32 // queries that wait for a slot in queryGate
	begin    time.Time    // of the first query, without the wait for a slot
	delay    time.Duration
	late     <-chan time.Time
	replies  chan reply
	verdicts chan verdict
	haste    *haste    // nil if all servers may take their time
	since    time.Time // when askAll was called in haste
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

// askAll is called when a server does not have the block, or lags. Then all other servers are queried at the same time,
// because one after the other, those that do not respond would use up the time of the call. Unless in haste, next does
// so only if no other response is awaited, or if that is late. In haste, next waits for them for a limited time only.
func (h *hedgedQuery) askAll() {
	h.lacked = true
	if h.haste != nil && h.since.IsZero() {
		h.all, h.since = true, time.Now()
		h.hurry()
	}
}

// hurry sets how long next waits in haste for the nearest server that has not responded yet. It is called again after
// each response, because nearer servers may lack the block too, or be down.
func (h *hedgedQuery) hurry() {
	nearest := h.set.opts.Timeout / 12
	for _, place := range h.awaited {
		nearest = min(nearest, h.set.hedgeDelay(h.set.all[place]))
	}
	h.delay = max(minHedgeDelay, nearest)
	h.late = time.After(h.delay + h.haste.spend(0) - time.Since(h.since))
}

// A reply is a server's response to a query, or the error if there is none.
type reply struct {
	place   int // index of the server
	answer  lite.Message
	release func() // nil if err is set
	err     error
}

// A verdict is the result of a query to a server: nil if its response has passed the check, or see servers.judge.
type verdict struct {
	place int  // index of the server
	lags  bool // whether the server responded that it lags
	err   error
}

// hedge starts a hedgedQuery to the servers in the given order. Call stop when no verdict is needed any more.
func (set *servers) hedge(ctx context.Context, q lite.Message, order []int, check checkFunc) *hedgedQuery {
	h := &hedgedQuery{set: set, query: q, check: check, rest: order, limit: 1, begin: time.Now()}
	h.awaited = slices.Clone(order)
	h.replies, h.verdicts = make(chan reply, len(order)), make(chan verdict, len(order))
	h.haste, _ = ctx.Value(hasteKey{}).(*haste)
	h.ctx, h.cancel = context.WithCancel(ctx)
	if len(order) > 1 {
		h.delay = set.hedgeDelay(set.all[order[1]])
	}
	return h
}

// hedgeDelay returns how long a query waits if server s would usually have responded long before.
func (set *servers) hedgeDelay(s *server) time.Duration {
	return min(max(minHedgeDelay, hedgeFactor*s.usualLatency()), set.opts.Timeout/4)
}

// next returns the next verdict. ok is false if there are no more, or if time is up in haste.
func (h *hedgedQuery) next() (v verdict, ok bool) {
	for {
		for len(h.answers) > 0 && h.checking < h.limit {
			h.judge(h.answers[0])
			h.answers = h.answers[1:]
		}
		h.all = h.all || h.lacked && h.querying+h.checking == 0
		for len(h.rest) > 0 && (h.all || h.querying < 2 && h.querying+h.checking < h.limit) {
			h.send(h.rest[0])
			h.rest = h.rest[1:]
		}
		if h.querying+h.checking == 0 {
			return v, false
		}
		select {
		case r := <-h.replies:
			h.querying--
			h.awaited = slices.DeleteFunc(h.awaited, func(place int) bool { return place == r.place })
			if !h.since.IsZero() {
				h.hurry()
			}
			if r.err != nil {
				return h.verdict(r), true
			}
			h.answers = append(h.answers, r)
		case v = <-h.verdicts:
			h.checking--
			return v, true
		case <-h.late:
			switch hasty := !h.since.IsZero(); {
			case h.queued.Load() > 0 || hasty && h.checking > 0: // no server is responsible for this wait
				h.late, h.begin = time.After(h.delay), time.Now()
			case hasty:
				return v, false
			default:
				h.limit++
				h.all = h.lacked
			}
		}
	}
}

func (h *hedgedQuery) send(place int) {
	h.querying++
	if h.delay > 0 && h.since.IsZero() {
		h.late = time.After(h.delay)
	}
	go func() {
		r := reply{place: place}
		r.err = recoverPanics(func() (err error) {
			r.answer, r.release, err = h.set.fetch(h.ctx, h.set.all[place], h.query, &h.queued)
			return err
		})
		h.replies <- r
	}()
}

func (h *hedgedQuery) judge(r reply) {
	h.checking++
	if h.since.IsZero() {
		h.late = nil
		if deadline, found := h.ctx.Deadline(); found { // a check may query servers several times
			h.late = time.After(time.Until(deadline) / 2)
		}
	}
	go func() { h.verdicts <- h.verdict(r) }()
}

func (h *hedgedQuery) verdict(r reply) verdict {
	return verdict{r.place, isLag(r.err), h.set.judge(h.ctx, h.set.all[r.place], h.query, r, h.check)}
}

// stop cancels queries and checks that are in progress, and waits until they have ended.
func (h *hedgedQuery) stop() {
	h.cancel()
	if !h.since.IsZero() {
		h.haste.spend(time.Since(h.since) - h.delay)
	}
	for ; h.querying > 0; h.querying-- {
		h.answers = append(h.answers, <-h.replies)
	}
	for _, r := range h.answers {
		if r.release != nil {
			r.release()
		}
	}
	for ; h.checking > 0; h.checking-- {
		<-h.verdicts
	}
}
