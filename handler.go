package chaingql

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/graphql-go/graphql"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/chaingql/chaingql/internal/blocklog"
	"github.com/chaingql/chaingql/internal/gqlws"
	"github.com/chaingql/chaingql/internal/plan"
	"github.com/chaingql/chaingql/internal/xsync"
)

// Time that a socket of a client is given.
const (
	initTimeout        = 10 * time.Second
	unusedTimeout      = time.Minute // of the legacy protocol: somebody may be pasting a start by hand
	frameTimeout       = 5 * time.Second
	socketWriteTimeout = 10 * time.Second
	streamWriteTimeout = 10 * time.Second
)

// A Handler serves the API of one chain. Make it with [New]. It is safe for
// concurrent use and may be mounted under any number of patterns.
type Handler struct {
	opts            Options
	auth            Authorizer
	origins         origins
	schema          *plan.Schema
	plans           *plan.Cache
	blocks          *blocklog.Log[Block]
	sockets         *gqlws.Server
	requests        *xsync.Gate // in progress, bodies and answers included
	slots           *xsync.Gate // of Limits.Requests
	bodies, answers *budget
	streams, feeds  *xsync.Gate // event streams; subscriptions to a host's fields, with their goroutines
	edition         string      // what answers depend on beside requests and chain
	id              string      // marks its cursors, to be known again
	retained        retained
	trusted         trusted
	events          events
	exchanges       sync.Pool // of *exchange
	preparing       preparing
}

// New returns a Handler that serves b. It is ready at once and starts nothing
// until the first request that needs it. opts may be nil and is copied. New
// panics where b is nil or an option makes no sense: that is a mistake in the
// host's code.
func New(b Backend, opts *Options) *Handler {
	if b == nil {
		panic("chaingql: New: Backend is nil")
	}
	if opts == nil {
		opts = &Options{}
	}
	for _, origin := range opts.AllowedOrigins {
		if !wellFormed(origin) {
			panic(fmt.Sprintf("chaingql: New: AllowedOrigins: %q is not scheme://host[:port]", origin))
		}
	}
	h := &Handler{opts: opts.withDefaults(), auth: opts.Authorizer, origins: slices.Clone(opts.AllowedOrigins)}
	h.opts.Endpoints = slices.Clone(opts.Endpoints)
	h.opts.ownFields()
	switch auth := opts.Authorizer.(type) {
	case nil:
		h.auth = everybody{}
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
		resolve.turns = make(turns, l.InFlight)
	}
	resolve.reads.JoinWithin = l.BackendTimeout / 2
	resolve.limit, resolve.reading = h.events.limit, h.events.reading
	h.blocks = blocklog.New(source(resolve), h.logOptions(resolve))
	resolve.recent = h.blocks
	table, err := h.opts.extend(schemaTable(resolve), resolve)
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
	h.bodies, h.answers = newBudget(l.PendingBodyBytes), newBudget(l.PendingAnswerBytes)
	h.sockets = gqlws.NewServer(gqlws.Options{
		KeepAlive: h.opts.KeepAlive, InitTimeout: initTimeout, UnusedTimeout: unusedTimeout, FrameTimeout: frameTimeout, WriteTimeout: socketWriteTimeout,
		MaxMessage: int64(l.MessageBytes), MessageRate: l.MessageRate, MaxID: l.IDBytes, MaxSockets: l.Sockets, Logger: h.opts.Logger,
		MaxSubscriptions: l.SocketSubscriptions, MaxQueries: l.SocketQueries, QueryWait: l.BackendTimeout + l.WriteTimeout,
		MaxUnsent: l.PendingSocketBytes, Account: h.account,
	})
	h.requests, h.streams, h.feeds = xsync.NewGate(0), xsync.NewGate(l.Sockets), xsync.NewGate(0)
	h.slots = xsync.NewGate(l.Requests)
	h.retained = retained{most: *l, plans: map[uint64]int{}}
	if h.trusted, err = h.trust(opts.TrustedDocuments); err != nil {
		panic(err.Error())
	}
	h.exchanges.New, h.preparing = func() any { return new(exchange) }, newPreparing()
	return h
}

// Schema returns the schema as graphql-go's, for reading. Its resolvers work,
// but graphql-go's own parser and executor must not be given text of strangers.
func (h *Handler) Schema() graphql.Schema { return h.schema.GraphQL() }

// SDL returns the schema in GraphQL's schema definition language.
func (h *Handler) SDL() string { return h.schema.SDL() }

// ServeHTTP answers queries by GET and POST, and opens sockets and event
// streams. It never redirects, and answers every request, refused ones too, in
// JSON. Answers to GET say how long they may be kept and by whom: a page that is
// proven complete for ever, what is newest for as long as blocks are apart, and by
// proxies only where the project is known to have no secret. One that the client
// has already is answered 304, without a call of the Backend.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer h.recover(w, r)
	vary(w.Header())
	h.origins.setCORS(w, r)
	h.boundBody(w, r)
	switch r.Method {
	case http.MethodOptions:
		h.origins.preflight(w, r)
		return
	case http.MethodGet, http.MethodHead, http.MethodPost:
	default:
		h.refuse(w, r, refuse(http.StatusMethodNotAllowed, codeMethod, "Only GET and POST are served."))
		return
	}
	if isUpgrade(r) {
		h.serveSocket(w, r)
		return
	}
	media, events := negotiate(r.Header["Accept"])
	if media == "" && !events {
		h.turnAway(w, r, refuse(http.StatusNotAcceptable, codeNotAcceptable, "Answers are application/json, application/graphql-response+json or text/event-stream."))
		return
	}
	if ok, _ := h.requests.Enter(); !ok {
		h.turnAway(w, r, shuttingDown())
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
		h.turnAway(w, r, refused)
		return
	}
	x := h.exchanges.Get().(*exchange)
	turn := preparation{of: &h.preparing}
	defer turn.end()
	asked, refused := h.readRequest(w, r, x, &work, &turn)
	if refused != nil {
		h.refuse(w, r, refused)
		return
	}
	op, errs := h.prepare(ctx, asked)
	x.forgetBody() // with variables that the operation does not have
	turn.end()
	by := asker{overHTTP, project, asked.trace, r.Header}
	if media == "" {
		by.transport = overSSE
	}
	switch {
	case errs != nil && media == "":
		work.leave()
		h.serveEvents(w, r, &oneAnswer{appendErrors(nil, errs)})
	case errs != nil:
		work.leave()
		h.writeErrors(w, r, media, errs)
	case op.Kind() == ast.Subscription && events:
		work.leave()
		inside = false
		h.requests.Leave()
		by.transport = overSSE
		h.serveStream(ctx, w, r, op, by)
	case op.Kind() == ast.Subscription:
		work.leave()
		h.refuse(w, r, refuse(http.StatusNotAcceptable, codeNotAcceptable, "Subscriptions are served over WebSocket, and as text/event-stream."))
	default:
		h.answerTo(ctx, w, r, op, by, cmp.Or(media, typeEvents), x, &work)
	}
}

// run appends a query's answer to dst.
func (h *Handler) run(ctx context.Context, c *call, by asker, dst []byte, out *outgoing) []byte {
	ctx, told := h.events.begin(ctx, c.op, by)
	c.op.Room = out
	dst = c.op.Run(ctx, c, dst)
	c.failed = failed(dst)
	told.answered(dst, c.failed)
	if h.opts.ShowCost {
		dst = appendCost(dst, c.op.Cost())
	}
	return dst
}

func shuttingDown() *refusal {
	no := refuse(http.StatusServiceUnavailable, codeUnavailable, "Service is shutting down")
	no.retry = 1
	return no
}

// unavailable is for who is not admitted: too many are inside, or the door is
// shut for good.
func unavailable(closed bool, limit, what string) *refusal {
	if closed {
		return shuttingDown()
	}
	no := refuse(http.StatusServiceUnavailable, codeUnavailable, "Too many "+what+" at once.")
	no.Limit, no.retry = limit, 1
	return no
}

// Shutdown ends the Handler for good, in two steps. First it refuses new sockets and event streams with 503, and ends
// those that are open: each receives the reason and the cursor to resume from. Queries over HTTP are still answered.
// When the last socket and stream has ended, or when ctx ends, it refuses queries with 503, waits for the running ones,
// and ends the Backend's Follow.
//
// So that clients do not all reconnect at once, sockets and streams end one after the other: a hundred a second, or
// more so that all of them end within half of the time until ctx's deadline (10 s without a deadline). Until then they
// receive blocks as before.
//
// Shutdown returns nil when everything has ended. If ctx ends before, the remaining sockets are cut and Shutdown
// returns an error that wraps ctx's. It may be called again, and then waits for the rest.
//
// Some clients do not retry a 503, but all retry a refused connection. So close the listener first: register Shutdown
// with [http.Server.RegisterOnShutdown], call the server's own Shutdown, which neither ends sockets nor waits for them,
// and wait for both.
func (h *Handler) Shutdown(ctx context.Context) error {
	// Sockets and streams at the same time: each of them may take until ctx ends.
	streams := make(chan error, 1)
	go func() { streams <- h.streams.Close(ctx) }()
	ended := []error{h.sockets.Shutdown(ctx), <-streams} // before queries are refused
	for _, err := range append(ended, h.requests.Close(ctx), h.feeds.Close(ctx), h.blocks.Close(ctx)) {
		if err != nil {
			return fmt.Errorf("chaingql: Shutdown: %w", err) // all have the same reason
		}
	}
	return nil
}

// authorize asks who the request comes from and whether they may. The Authorizer
// runs in the slot, which is left again.
func (h *Handler) authorize(r *http.Request, work *slot) (ctx context.Context, project string, refused *refusal) {
	if h.auth == (everybody{}) {
		return r.Context(), projectOf(r), nil
	}
	c, err := h.credentials(r)
	if err == nil {
		if refused := work.take(); refused != nil {
			return nil, "", refused
		}
		defer work.leave()
		ctx, err = h.admit(r.Context(), c)
	}
	if err != nil {
		refused = h.refused(r.Context(), err)
		h.events.denied(r.Context(), denial(r, c.Project, err), refused)
		return nil, "", refused
	}
	return ctx, c.Project, nil
}

// refused is what a client is told of an Authorizer's error.
func (h *Handler) refused(ctx context.Context, err error) *refusal {
	var limited RateLimited
	var pointed *RateLimited
	switch {
	case errors.Is(err, ErrUnauthorized):
		return unauthorized()
	case errors.Is(err, errPayloadTooLarge):
		return overLimit(http.StatusRequestEntityTooLarge, "",
			fmt.Sprintf("The payload of connection_init exceeds the limit of %d bytes.", maxPayload))
	case errors.As(err, &limited):
		return limited.refusal()
	case errors.As(err, &pointed) && pointed != nil:
		return pointed.refusal()
	}
	// Trouble of the host's must not read as a wrong secret.
	return &refusal{status: http.StatusInternalServerError, Error: h.mask(ctx, fmt.Errorf("authorizer: %w", err))}
}

// admit asks the Authorizer, whose panic is an error like any other.
func (h *Handler) admit(ctx context.Context, c Credentials) (admitted context.Context, err error) {
	defer func() {
		switch p := recover(); p {
		case nil:
		case http.ErrAbortHandler:
			panic(p) // net/http's own way to say goodbye
		default:
			admitted, err = nil, fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	admitted, err = h.auth.Authorize(ctx, c)
	if err == nil && admitted == nil {
		err = errors.New("neither a context nor an error")
	}
	return admitted, err
}

func unauthorized() *refusal {
	return refuse(http.StatusUnauthorized, codeUnauthenticated, "Unauthorized access")
}
