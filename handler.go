package chaingql

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/graphql-go/graphql"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/chaingql/chaingql/internal/blocklog"
	"github.com/chaingql/chaingql/internal/gqlhttp"
	"github.com/chaingql/chaingql/internal/gqlws"
	"github.com/chaingql/chaingql/internal/plan"
	"github.com/chaingql/chaingql/internal/xsync"
)

// Timeouts of sockets and event streams.
const (
	initTimeout        = 10 * time.Second
	unusedTimeout      = time.Minute // of graphql-ws: a person may paste a start by hand
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
	blocks               *blocklog.Log[Block]
	sockets              *gqlws.Server
	requests             *xsync.Gate // in progress, from body to response
	slots                *xsync.Gate // of Limits.Requests
	bodies, responses    *budget
	streams, hostStreams *xsync.Gate // event streams; subscriptions to a host's fields, with their goroutines
	edition              string      // version, schema and options, on which responses depend
	id                   string      // in the cursors that it marks
	subscriptionQuota    subscriptionQuota
	trusted              trusted
	events               events
	states               sync.Pool // of *requestState
	preparing            preparations
}

// New returns a Handler that serves b. It starts nothing until the first request that needs it. opts may be nil; New
// copies it. New panics if b is nil or an option is invalid, as that is a mistake in the host's code.
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
	h := &Handler{opts: opts.withDefaults(), auth: opts.Authorizer, origins: slices.Clone(opts.AllowedOrigins)}
	h.opts.Endpoints = slices.Clone(opts.Endpoints)
	h.opts.Schema = h.opts.Schema.clone()
	switch auth := opts.Authorizer.(type) {
	case nil:
		h.auth = allowAll{}
		h.opts.Logger.Warn("chaingql: no Authorizer: every project is open to everyone")
	case StaticProjects:
		known, err := auth.digest()
		if err != nil {
			panic(err.Error())
		}
		h.auth = known
	}
	l := &h.opts.Limits
	h.events = events{h.opts.Hooks, h.opts.Logger}
	resolve := &resolvers{backend: b, endpoints: h.opts.Endpoints, timeout: l.BackendTimeout}
	resolve.batcher, _ = b.(BalanceBatcher)
	if l.InFlight > 0 {
		resolve.slots = make(chan struct{}, l.InFlight)
	}
	resolve.reads.JoinWithin = l.BackendTimeout / 2
	resolve.limit, resolve.reading = h.events.limit, h.events.reading
	h.blocks = blocklog.New(source(resolve), h.logOptions(resolve))
	resolve.recent = h.blocks
	table, err := h.opts.Schema.addTo(schemaTable(resolve), resolve)
	if err != nil {
		panic("chaingql: New: " + err.Error())
	}
	schema, err := plan.NewSchema(table)
	if err != nil {
		panic("chaingql: New: " + err.Error()) // of the host's types: every test would say if it were of ours
	}
	h.schema = schema
	h.id = strings.ToLower(rand.Text()[:handlerSize])
	h.edition = fmt.Sprint(Version, " ", plan.Hash(schema.SDL()), " ", opts.ShowCost, " ")
	h.plans = plan.NewCache(schema, h.opts.forPlans(), h.mask, h.events.limit)
	h.bodies, h.responses = newBudget(l.PendingBodyBytes), newBudget(l.PendingResponseBytes)
	h.sockets = gqlws.NewServer(gqlws.Options{
		KeepAliveInterval: h.opts.KeepAliveInterval, InitTimeout: initTimeout, UnusedTimeout: unusedTimeout,
		FrameTimeout: frameTimeout, WriteTimeout: socketWriteTimeout, QueryWait: l.BackendTimeout + l.WriteTimeout,
		Logger: h.opts.Logger, MaxMessage: int64(l.MessageBytes), MessageRate: l.MessageRate, MaxID: l.IDBytes,
		MaxSockets: l.Connections, MaxSubscriptions: l.SocketSubscriptions, MaxQueries: l.SocketQueries,
		MaxUnsent: l.PendingSocketBytes, Account: h.account,
	})
	h.requests, h.streams, h.hostStreams = xsync.NewGate(0), xsync.NewGate(l.Connections), xsync.NewGate(0)
	h.slots = xsync.NewGate(l.Requests)
	h.subscriptionQuota = subscriptionQuota{most: *l, plans: map[uint64]int{}}
	if h.trusted, err = h.trust(opts.TrustedDocuments); err != nil {
		panic(err.Error())
	}
	h.states.New, h.preparing = func() any { return new(requestState) }, newPreparations(l.Requests)
	return h
}

// trusted has the texts of the only documents that are served, by their SHA-256 in lower-case hex. If it is nil,
// every document is served.
type trusted map[string]string

// trust checks the documents of the host: otherwise only a client would notice an invalid one.
func (h *Handler) trust(documents []string) (trusted, error) {
	if documents == nil {
		return nil, nil
	}
	t := trusted{}
	for i, text := range documents {
		if errs := h.plans.Check(text); errs != nil {
			return nil, fmt.Errorf("chaingql: TrustedDocuments[%d]: %w", i, errs)
		}
		t[plan.Hash(text)] = text
	}
	return t, nil
}

// Schema returns the schema as a graphql-go schema, for reading. Its resolvers work, but never pass text of clients
// to graphql-go's own parser or executor.
func (h *Handler) Schema() graphql.Schema { return h.schema.GraphQL() }

// SDL returns the schema in GraphQL's schema definition language.
func (h *Handler) SDL() string { return h.schema.SDL() }

// ServeHTTP serves queries by GET and POST, WebSockets and event streams. It never redirects, and every response,
// errors included, is JSON.
//
// Responses to GET have cache headers. A page that is proven complete may be kept forever, the newest data for the
// interval of blocks; shared caches may keep them only if the project is known to have no secret. If the client
// already has the response, ServeHTTP responds 304 without a call of the Backend.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer h.recover(w, r)
	gqlhttp.SetVary(w.Header())
	h.origins.SetHeader(w.Header(), r)
	h.boundBody(w, r)
	switch r.Method {
	case http.MethodOptions:
		gqlhttp.ServeOptions(w, r)
		return
	case http.MethodGet, http.MethodHead, http.MethodPost:
	default:
		h.writeError(w, r, newHTTPError(http.StatusMethodNotAllowed, codeMethod, "Only GET and POST are served."))
		return
	}
	if gqlhttp.IsUpgrade(r) {
		h.serveSocket(w, r)
		return
	}
	media, events := gqlhttp.Negotiate(r.Header["Accept"])
	if media == "" && !events {
		h.writeErrorUnread(w, r, newHTTPError(http.StatusNotAcceptable, codeNotAcceptable,
			"Answers are application/json, application/graphql-response+json or text/event-stream."))
		return
	}
	if ok, _ := h.requests.Enter(); !ok {
		h.writeErrorUnread(w, r, shuttingDown())
		return
	}
	inside := true // a stream leaves early
	defer func() {
		if inside {
			h.requests.Leave()
		}
	}()
	work := slot{h: h}
	defer work.leave()
	ctx, project, refused := h.authorize(r, &work)
	if refused != nil {
		h.writeErrorUnread(w, r, refused)
		return
	}
	x := h.states.Get().(*requestState)
	if refused := h.receive(w, r, x, &work); refused != nil {
		h.writeError(w, r, refused)
		return
	}
	size := max(len(x.body), len(r.URL.RawQuery))
	p, refused := h.preparing.run(size, true, func(compiled bool) (prepared, *httpError) {
		return h.prepareHTTP(ctx, r, x, compiled)
	})
	if refused != nil {
		work.leave() // the client may take its time to read
		h.writeError(w, r, refused)
		return
	}
	x.forgetBody() // with variables that the operation does not have
	op, errs, by := p.op, p.errs, caller{TransportHTTP, project, p.trace, r.Header}
	if media == "" {
		by.transport = TransportSSE
	}
	if errs == nil && op.Kind() == ast.Query {
		h.execute(ctx, w, r, op, by, cmp.Or(media, gqlhttp.EventStream), x, &work)
		return
	}
	work.leave()
	switch {
	case errs != nil && media == "":
		h.serveEvents(w, r, &singleEvent{appendErrors(nil, errs)})
	case errs != nil:
		h.writeDocumentErrors(w, r, media, errs)
	case events:
		inside = false
		h.requests.Leave()
		by.transport = TransportSSE
		h.serveStream(ctx, w, r, op, by)
	default:
		h.writeError(w, r, newHTTPError(http.StatusNotAcceptable, codeNotAcceptable,
			"Subscriptions are served over WebSocket, and as text/event-stream."))
	}
}

// Shutdown ends the Handler for good, in two steps. First it refuses new sockets and event streams with 503, and ends
// those that are open: each receives the reason and the cursor to resume from. Queries over HTTP are still answered.
// When the last socket and stream has ended, or when ctx ends, it refuses queries with 503, waits for the running ones,
// and ends the Backend's Follow.
//
// So that clients do not all reconnect at once, their ends are spread over time: about 100 sockets and 100 streams per
// second. The rate is higher if the ends would otherwise take longer than half of the time until ctx's deadline, or
// than 10 s if ctx has none. Until its end, each client receives blocks as before.
//
// Shutdown returns nil when everything has ended. If ctx ends first, it cuts the remaining sockets and streams and
// returns an error that wraps ctx's. A second call waits for everything that still runs.
//
// Some clients do not retry a 503, but all retry a refused connection. So close the listener first: register Shutdown
// with [http.Server.RegisterOnShutdown], call the server's own Shutdown, which neither ends sockets nor waits for them,
// and wait until both have returned.
func (h *Handler) Shutdown(ctx context.Context) error {
	// Sockets and streams at the same time: each of them may take until ctx ends.
	streams := make(chan error, 1)
	go func() { streams <- h.streams.Close(ctx) }()
	ended := []error{h.sockets.Shutdown(ctx), <-streams} // before queries are refused
	for _, err := range append(ended, h.requests.Close(ctx), h.hostStreams.Close(ctx), h.blocks.Close(ctx)) {
		if err != nil {
			return fmt.Errorf("chaingql: Shutdown: %w", err) // all have the same reason
		}
	}
	return nil
}
