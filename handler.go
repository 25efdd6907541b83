package chaingql

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/graphql-go/graphql"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/chaingql/chaingql/internal/blocklog"
	"github.com/chaingql/chaingql/internal/gqlhttp"
	"github.com/chaingql/chaingql/internal/gqlws"
	"github.com/chaingql/chaingql/internal/guard"
	"github.com/chaingql/chaingql/internal/plan"
	"github.com/chaingql/chaingql/internal/xsync"
)

// These are the timeouts of sockets and event streams.
const (
	initTimeout        = 10 * time.Second
	unusedTimeout      = time.Minute // for graphql-ws, because a person may type a start message by hand
	frameTimeout       = 5 * time.Second
	socketWriteTimeout = 10 * time.Second
	streamWriteTimeout = 10 * time.Second
)

// A Handler serves the API of one chain. Create it with [New]. It is safe for concurrent use and may be mounted under
// any number of patterns.
type Handler struct {
	opts                 Options
	auth                 Authorizer
	origins              gqlhttp.Origins
	schema               *plan.Schema
	plans                *plan.Cache
	chains               *chains
	sockets              *gqlws.Server
	requests             *xsync.ShardedGate // HTTP requests in progress, from the body to the response
	slots                *places            // the slots of Limits.Requests
	eventTurns           eventTurns         // of event streams that catch up
	peers                peers
	hostRuns             *xsync.FairSemaphore[*peer] // events of hosts' fields; nil means no limit
	many                 *places                     // of queries for many blocks
	inits                *xsync.Lane                 // calls of Authorize for connection_init; nil means no limit
	bodies, responses    *xsync.Budget
	streams, hostStreams *xsync.Gate // event streams; goroutines of subscriptions to a host's fields
	edition              string      // the version, schema and options on which responses depend
	subscriptionQuota    subscriptionQuota
	trusted              trusted
	events               events
	failures             *guard.FailureLog
	draftStatuses        bool      // a copy of the constant draftStatuses, which tests change
	states               sync.Pool // of *requestState
	responseStates       sync.Pool // of *responseState
	preparing            preparations
	backendCheck         *backendCheck
	draining             atomic.Pointer[time.Time] // when Drain or Shutdown was called first; nil before that
}

// New returns a Handler that serves b. Except for Epoch and CallLimit, the Handler calls no method of b until the first
// request that needs data. opts may be nil. New copies the options. It panics if b is nil or an option is invalid,
// because that is a mistake in the host's code.
func New(b Backend, opts *Options) *Handler {
	if b == nil {
		panic("chaingql: New: Backend is nil")
	}
	if opts == nil {
		opts = &Options{}
	}
	for _, origin := range opts.AllowedOrigins {
		if !gqlhttp.ValidOrigin(origin) {
			panic(fmt.Sprintf("chaingql: New: AllowedOrigins: %q is not scheme://host[:port]", origin))
		}
	}
	h := &Handler{
		opts: opts.withDefaults(), auth: opts.Authorizer, origins: slices.Clone(opts.AllowedOrigins),
		draftStatuses: draftStatuses,
	}
	h.opts.Endpoints = slices.Clone(opts.Endpoints)
	h.opts.Schema = h.opts.Schema.clone()
	switch auth := opts.Authorizer.(type) {
	case nil:
		h.auth = allowAll{}
		h.opts.Logger.Warn("chaingql: no Authorizer: every project is open to everyone")
	case StaticProjects:
		known, err := auth.digests()
		if err != nil {
			panic(err.Error())
		}
		h.auth = known
	}
	l := &h.opts.Limits
	if files, usable := guard.FileLimit(); l.Connections > 0 && usable < uint64(l.Connections) {
		h.opts.Logger.Warn("chaingql: the file limit is too small for Limits.Connections; connections will be refused",
			slog.Uint64("files", files), slog.Int("connections", l.Connections))
	}
	h.failures = guard.NewFailureLog(h.opts.Logger)
	h.events = events{h.opts.Hooks, h.opts.Logger, h.failures}
	resolve := &resolvers{backend: b, endpoints: h.opts.Endpoints, timeout: l.BackendTimeout}
	resolve.batcher, _ = b.(BalanceBatcher)
	resolve.hashes, _ = b.(HashIndex)
	resolve.numbers, _ = b.(SeqNoIndex)
	resolve.times, _ = b.(TimeIndex)
	calls := l.InFlight
	if limiter, ok := b.(CallLimiter); ok && calls == DefaultLimits().InFlight {
		if limit := limiter.CallLimit(); limit > 0 {
			calls = min(calls, limit)
		}
	}
	if resolve.slots = newInFlight(calls, l.InFlight); l.InFlight > 0 {
		resolve.waiting = newPlaces(shareOf(l.Requests, backendShare))
		h.hostRuns = xsync.NewSharedSemaphore[*peer](l.InFlight)
	}
	resolve.held = xsync.NewBudget(l.PendingResponseBytes / waitingDivisor)
	resolve.limit, resolve.reading = h.events.limit, h.events.reading
	open := func(c *chain, down time.Time) *blocklog.Log[Block] {
		c.reads.JoinWithin, c.lookups.JoinWithin = l.BackendTimeout/2, l.BackendTimeout/2
		c.reads.Wait, c.lookups.Wait = l.BackendTimeout, l.BackendTimeout
		return blocklog.New(source(resolve, c), h.logOptions(c, down))
	}
	h.chains = newChains(b, h.opts.Logger, h.events.failed, open)
	resolve.chains = h.chains
	table, err := h.opts.Schema.addTo(schemaTable(resolve), resolve)
	if err != nil {
		panic("chaingql: New: " + err.Error())
	}
	schema, err := plan.NewSchema(table)
	if err != nil {
		panic("chaingql: New: " + err.Error()) // the host's types are invalid: tests check the built-in ones
	}
	h.schema = schema
	h.edition = fmt.Sprint(Version, " ", plan.Hash(schema.SDL()), " ", opts.ShowCost, " ")
	h.plans = plan.NewCache(schema, h.opts.forPlans(), h.maskIn, h.events.limit)
	shared := *l
	h.requests = xsync.NewShardedGate(shared.takeReserve())
	h.bodies, h.responses = xsync.NewBudget(shared.PendingBodyBytes), xsync.NewBudget(shared.PendingResponseBytes)
	sockets := gqlws.Options{
		KeepAliveInterval: h.opts.KeepAliveInterval, InitTimeout: initTimeout, UnusedTimeout: unusedTimeout,
		FrameTimeout: frameTimeout, WriteTimeout: socketWriteTimeout, QueryWait: l.BackendTimeout + l.WriteTimeout,
		Logger: h.opts.Logger, MaxMessage: int64(l.MessageBytes), MessageRate: l.MessageRate, MaxID: l.IDBytes,
		MaxSockets: l.Connections, MaxSubscriptions: l.SocketSubscriptions, MaxQueries: l.SocketQueries,
		MaxUnsent: l.PendingSocketBytes, Account: h.account,
		Usage: func(s gqlws.Session) *xsync.Usage { return &s.(*session).peer.turns },
	}
	if h.opts.ConnectionLifetime > 0 {
		sockets.Lifetime = h.lifetime
	}
	h.sockets = gqlws.NewServer(sockets)
	h.eventTurns = newEventTurns()
	h.streams, h.hostStreams = xsync.NewGate(l.Connections), xsync.NewGate(0)
	h.slots = newPlaces(shared.Requests)
	if l.Requests > 0 {
		h.inits = xsync.NewLane(l.Requests, 0, l.BackendTimeout)
	}
	h.many = newPlaces(shareOf(l.Requests, manyShare))
	h.subscriptionQuota = subscriptionQuota{most: *l, plans: map[keptPlan]int{}}
	if h.trusted, err = h.trust(opts.TrustedDocuments); err != nil {
		panic(err.Error())
	}
	h.backendCheck = newBackendCheck(b, h.opts.Logger)
	var states atomic.Uint32
	h.states.New = func() any { return &requestState{number: states.Add(1)} }
	h.responseStates.New = func() any { return new(responseState) }
	h.preparing = newPreparations(l.Requests)
	return h
}

// Schema returns the schema as a graphql-go schema. The caller must not change it. Its resolvers work, but the caller
// must not pass a client's text to graphql-go's own parser or executor, because some documents make these end the
// process.
func (h *Handler) Schema() graphql.Schema { return h.schema.GraphQL() }

// SDL returns the schema in GraphQL's schema definition language.
func (h *Handler) SDL() string { return h.schema.SDL() }

// ServeHTTP serves queries by GET, POST and QUERY, WebSockets and event streams. It never redirects. Every response,
// including an error, is JSON, or an event stream with JSON data.
//
// Responses to GET and QUERY have cache headers. A page of blocks that is known to be complete may be cached forever.
// Other responses may be cached for the usual interval between blocks. Shared caches may store responses only if the
// project is known to have no secret. If the client already has the current response, ServeHTTP sends status 304 and
// does not call the Backend.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer h.recover(w, r)
	gqlhttp.SetVary(w.Header())
	h.origins.SetHeader(w.Header(), r)
	began := xsync.Clock(0)
	h.boundBody(w, r, began)
	if media, stream := h.negotiate(w, r); media != "" || stream != "" {
		h.serveOperation(w, r, began, media, stream)
	}
}

// negotiate returns the media types of [gqlhttp.Negotiate]. It serves requests that are not for an operation in one of
// them, and then returns none.
func (h *Handler) negotiate(w http.ResponseWriter, r *http.Request) (media, stream string) {
	switch r.Method {
	case http.MethodOptions:
		gqlhttp.SetOptions(w.Header(), r.Header)
		h.writeHeader(w, r, h.statusCode(statusOptions, ""))
		return "", ""
	case http.MethodGet, http.MethodHead, http.MethodPost, gqlhttp.MethodQuery:
	default:
		h.writeError(w, r, newHTTPError(statusMethod, codeMethod, "Only GET, POST and QUERY are served."))
		return "", ""
	}
	if len(gqlhttp.Path(r))+len(r.Host) > maxPath {
		h.writeErrorUnread(w, r, overLimit(statusURLTooLarge, "",
			fmt.Sprintf("Path and host exceed the limit of %d bytes.", maxPath)))
		return "", ""
	}
	if gqlhttp.IsUpgrade(r) {
		h.serveSocket(w, r)
		return "", ""
	}
	media, stream = gqlhttp.Negotiate(r.Header["Accept"])
	if media == "" && stream == "" {
		h.writeErrorUnread(w, r, newHTTPError(statusNotAcceptable, codeNotAcceptable,
			"Answers are application/json, application/graphql-response+json, text/event-stream "+
				"or multipart/mixed;subscriptionSpec=1.0."))
	}
	return media, stream
}

// serveOperation serves a query, or a subscription as an event stream. media and stream are the results of
// [gqlhttp.Negotiate]. It is separate from ServeHTTP because the compiler inlines the deferred calls of a function only
// if it has few of them and few returns.
func (h *Handler) serveOperation(w http.ResponseWriter, r *http.Request, began time.Duration, media, stream string) {
	x := h.states.Get().(*requestState)
	gate, reserved := h.requests.Enter(x.number)
	if gate == nil {
		h.writeErrorUnread(w, r, shuttingDown())
		return
	}
	inside := true // an event stream leaves the gate before it is served
	defer func() {
		if inside {
			gate.Leave()
		}
	}()
	work := slot{h: h, remote: r.RemoteAddr, reserved: reserved}
	defer work.leave()
	ctx, op := h.accept(w, r, began, cmp.Or(media, stream), x, &work)
	switch {
	case op == nil:
		return
	case op.Kind() == ast.Query:
		h.execute(ctx, w, r, op, cmp.Or(media, stream), x, &work)
		return
	}
	work.leave()
	if stream != "" {
		inside = false
		gate.Leave()
		x.call.by.transport = transportOf[stream]
		h.serveStream(ctx, w, r, stream, op, &x.call.by)
	} else {
		h.writeError(w, r, newHTTPError(statusNotAcceptable, codeNotAcceptable,
			"Subscriptions are served over WebSocket, as text/event-stream, and as "+
				"multipart/mixed;subscriptionSpec=1.0."))
	}
}

// lifetime returns a random lifetime for a new socket or event stream: see Options.ConnectionLifetime.
func (h *Handler) lifetime() time.Duration {
	return h.opts.ConnectionLifetime - mathrand.N(h.opts.ConnectionLifetime/2+1)
}

// Drain announces that this instance is about to shut down, and blocks for lead or until ctx is done. As soon as it is
// called, Health and ServeReady report that h is not ready. Everything is still served, so that load balancers can
// take the instance out of service before any request is refused. lead must be longer than they need to notice: the
// interval of their probes times the number of probes that must fail. Then call [Handler.Shutdown].
//
//	h.Drain(ctx, 5*time.Second)
//	ended := make(chan error, 1)
//	server.RegisterOnShutdown(func() { ended <- h.Shutdown(ctx) })
//	return errors.Join(server.Shutdown(ctx), <-ended)
func (h *Handler) Drain(ctx context.Context, lead time.Duration) {
	h.announceDrain()
	timer := time.NewTimer(lead)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (h *Handler) announceDrain() {
	now := time.Now()
	h.draining.CompareAndSwap(nil, &now)
}

// Shutdown ends the Handler permanently, in two steps:
//
//  1. It refuses new sockets and event streams with status 503, and ends the open ones. Each client receives the reason
//     and the cursor to resume from. Queries over HTTP are still answered.
//  2. When the last socket and the last stream have ended, or ctx is done, it refuses queries with status 503, waits
//     for the running queries, and ends the Backend's Follow.
//
// Shutdown ends about 100 sockets and 100 streams per second, so that clients do not all reconnect at once. If that
// would take longer than half of the time until ctx's deadline, or than 10 s if ctx has no deadline, Shutdown ends them
// faster. A client receives blocks as before until its connection ends.
//
// Shutdown returns nil when everything has ended. If ctx is done first, Shutdown cuts the remaining sockets and streams
// and returns an error that wraps the error of ctx. A second call waits for everything that still runs.
//
// Some clients do not retry after status 503, but all of them retry after a refused connection. So call [Handler.Drain]
// first, so that load balancers take the instance out of service, and then close the listener: register Shutdown with
// [http.Server.RegisterOnShutdown], call [http.Server.Shutdown], which neither ends sockets nor waits for them, and
// wait until both Shutdowns have returned.
func (h *Handler) Shutdown(ctx context.Context) error {
	h.announceDrain()
	defer h.failures.Flush()
	// End sockets and streams at the same time, because each may take until ctx is done.
	streams := make(chan error, 1)
	go func() { streams <- h.streams.Close(ctx) }()
	ended := []error{h.sockets.Shutdown(ctx), <-streams} // before queries are refused
	for _, err := range append(ended, h.requests.Close(ctx), h.hostStreams.Close(ctx), h.chains.close(ctx)) {
		if err != nil {
			return fmt.Errorf("chaingql: Shutdown: %w", err) // all errors have the same cause
		}
	}
	return nil
}
