package chaingql

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"sync/atomic"

	"github.com/graphql-go/graphql"

	"github.com/chaingql/chaingql/internal/gqlws"
	"github.com/chaingql/chaingql/internal/guard"
	"github.com/chaingql/chaingql/internal/plan"
	"github.com/chaingql/chaingql/internal/xsync"
)

// A SchemaExtension adds fields and types of the host to the schema, with graphql-go's types, arguments and resolvers.
// They are served over the same transports and within the same limits as the built-in fields. Responses that contain
// such a field are sent with Cache-Control: no-store.
//
// New copies the maps. Their values must not be changed afterwards. New panics if the name of a field or a type is
// already taken (for example, the type name Block), if a type is invalid, or if a type is called Mutation. The host's
// types cannot refer to built-in types. The fields of a type are sorted by name in the schema.
type SchemaExtension struct {
	// Queries adds fields to Query. The keys are the names of the fields. Default: none.
	//
	// A resolver receives the ResolveParams that graphql-go would pass. For a field of Query, Source is nil or a map.
	// Args has the default values and the internal values of enums. Context is derived from the Authorizer's. A
	// resolver may change the map Args, but nothing else in ResolveParams. In particular, it must not change the lists
	// and objects in Args, because the resolvers of one request share them.
	//
	// A resolver returns a value or a thunk (func() (any, error)). The thunks in a field of Query are called after all
	// nested fields that need no thunk have been resolved, so that a loader can read many values at once. The resolvers
	// of one query run one after the other on one goroutine. Different queries run concurrently. While thunks wait, all
	// values of the field stay in memory, so lists with thunks should have at most a few hundred items.
	//
	// At most Limits.InFlight fields of Query are resolved at once, in addition to the calls of the Backend. Each
	// counts until everything nested in it has been resolved. Further ones wait like calls of the Backend. After
	// Limits.BackendTimeout, Context is done, the resolvers must return, and the client receives TIMEOUT.
	// Limits.ResponseBytes counts 32 additional bytes for each value.
	//
	// If a resolver's error has a method Extensions() map[string]any, like graphql-go's ExtendedError, the client
	// receives the error's text, truncated to 300 bytes, and its extensions. If "code" in the extensions is not a
	// string, INTERNAL_SERVER_ERROR replaces it. Every other error is masked and logged. The same applies to a panic,
	// to an error of a built-in field, and to a value that its type cannot represent, such as 1<<40 as an Int or an
	// unknown enum value. graphql-go would change such a value or replace it with null.
	Queries graphql.Fields

	// Subscriptions adds fields to Subscription. The keys are the names of the fields. Default: none.
	Subscriptions map[string]SubscriptionField

	// Types adds object types to which no field refers, but which the value of an interface may have. Default: none.
	Types []graphql.Type

	// Costs sets the cost of fields that the host added to Query or to its own object types. A key consists of a type
	// and a field, such as "Query.transactions" or "Wallet.transactions". Default: one call for a field of Query, and
	// nothing for other fields.
	//
	// A function is called before a query runs, with the arguments that the resolver will receive. It may be called
	// concurrently and several times per query. It must not block, and must not change the lists and objects in the
	// arguments. New panics if a key does not name a field of the host. It also panics if a key names a field of an
	// interface: use the fields of the object types instead.
	Costs map[string]func(args map[string]any) Cost
}

// A SubscriptionField is a field of Subscription that a host adds.
type SubscriptionField struct {
	// Field has the type, the arguments and the description of the field. Its Resolve computes the value of the field
	// from an event, which is its Source. If Resolve is nil, the event is the value. Field.Subscribe is not used.
	// Resolving one event may take at most Limits.BackendTimeout. At most Limits.InFlight events are resolved at once,
	// and those of the clients' addresses take turns. If a large response does not fit into
	// Limits.PendingResponseBytes, the subscription ends with SERVICE_UNAVAILABLE.
	*graphql.Field

	// Subscribe returns the events of one subscription as a sequence. It is called once for each subscription, with
	// Args as for a resolver. ctx has the values of the Authorizer's context. It is done when the client has stopped
	// the subscription, has left, or was disconnected. Then the sequence must end promptly, because until then the
	// subscription counts against Limits.Subscriptions, and Shutdown waits for it.
	//
	// The sequence runs on its own goroutine. If the client reads slowly, the sequence is blocked and skips nothing. A
	// source that cannot wait must have its own bounded queue. Waiting responses count against
	// Limits.SubscriptionBytes; if they exceed it, the subscription ends with LIMIT_EXCEEDED. Events are not repeated
	// for a client that reconnects. If clients need the events that they missed, add an argument to request them.
	//
	// If the sequence yields an error, the subscription ends, and the client receives the error as it would receive
	// that of a resolver (see [SchemaExtension].Queries). If the sequence ends, the subscription is complete.
	Subscribe func(ctx context.Context, p graphql.ResolveParams) iter.Seq2[any, error]
}

// A Cost is the maximum cost of a field that a host adds. It is counted each time a query selects the field.
// [Limits].BackendCalls bounds the sum of all Calls in a query, and [Limits].QueryBlocks the sum of all Blocks. A query
// that exceeds one of them does not run and is refused with LIMIT_EXCEEDED. Negative numbers count as zero.
type Cost struct {
	// Calls is the number of calls to the host's data source, such as a database. If a query selects the field under
	// several aliases, each of them counts.
	Calls int
	// Blocks is the number of blocks, or of other items of that size.
	Blocks int
	// Items is the maximum length of a list. The costs of the fields nested in the list are multiplied by it. Zero
	// means one.
	Items int
}

// addTo adds the host's fields to the table.
func (s *SchemaExtension) addTo(table []plan.Type, r *resolvers) ([]plan.Type, error) {
	x := plan.Extension{Query: s.Queries, Subscription: graphql.Fields{}, Types: s.Types, Enter: r.enter,
		Costs: map[string]func(map[string]any) plan.Cost{}}
	for name, f := range s.Subscriptions {
		if f.Subscribe == nil {
			return nil, fmt.Errorf("Subscription.%s has no Subscribe function", name)
		}
		x.Subscription[name] = f.Field
	}
	for name, price := range s.Costs {
		if x.Costs[name] = nil; price == nil {
			continue // plan.Extend reports it
		}
		x.Costs[name] = func(args map[string]any) plan.Cost { return plan.Cost(price(args)) }
	}
	return plan.Extend(table, x)
}

// clone returns a copy of s with its own maps, because the host may change the maps later.
func (s SchemaExtension) clone() SchemaExtension {
	s.Queries, s.Subscriptions, s.Costs = maps.Clone(s.Queries), maps.Clone(s.Subscriptions), maps.Clone(s.Costs)
	return s
}

// enter is called before a field of the host is resolved. A field of Query takes a slot of its own kind and has a
// timeout, like a Backend call. An event of a subscription has only the timeout.
func (r *resolvers) enter(ctx context.Context, src any) (within context.Context, leave func(), err error) {
	c, isQuery := src.(*call)
	if !isQuery {
		within, cancel := r.deadline(ctx)
		return within, cancel, nil
	}
	if err := r.wait(ctx, c); err != nil {
		return nil, nil, err
	}
	slot := r.ownSlot(c)
	if err := slot.Acquire(ctx); err != nil {
		r.waited(c, &err)
		return nil, nil, err
	}
	within, cancel := r.deadline(ctx)
	return within, func() {
		err := within.Err()
		if cancel(); ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
			err = late()
		}
		slot.Release()
		r.waited(c, &err)
	}, nil
}

// A hostStream is a subscription to a field of the host. One goroutine reads the host's sequence, as fast as the
// client takes the responses.
type hostStream struct {
	observed  *observed
	cancel    context.CancelFunc
	forget    func() // releases its quota
	peer      *peer
	h         *Handler
	users     atomic.Int32 // the goroutine and the client; the last one to leave calls forget
	took      bool         // next has returned a response
	responses chan []byte  // closed at the end
	failed    *plan.Error  // the error that ended the stream, set before responses is closed; nil if none did
	cause     error        // argument for observed.ended if the stream ended by itself
}

// openHostStream opens a subscription to a field of the host.
func (h *Handler) openHostStream(
	ctx context.Context, op *plan.Bound, by subscriber, field SubscriptionField,
) (stream, *plan.Error) {
	copies := op.MemoryUse().Variables + op.RootArgsBytes() // in Info.VariableValues and in Args of ResolveParams
	forget, err := h.subscriptionQuota.acquire(op, hostStreamBytes+copies+by.ownTrace, by.peer)
	if err != nil {
		h.events.limit(ctx, err.Limit)
		return nil, err
	}
	if ok, _ := h.hostStreams.Enter(); !ok {
		forget()
		return nil, shuttingDown().Error
	}
	ctx, observed := h.events.begin(ctx, op, &by.caller)
	f := &hostStream{
		h: h, observed: observed, forget: forget, peer: by.peer, responses: make(chan []byte, 1),
	}
	// The expiry of the credentials does not cancel this context. close cancels it after the client has been informed.
	ctx, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
	f.users.Store(2)
	go func() {
		defer h.hostStreams.Leave()
		defer f.leave()
		defer by.wake.Wake()
		defer close(f.responses)
		err := errNoReturn // remains set if the host ends the goroutine
		defer func() {
			if err != nil && ctx.Err() == nil {
				f.failed = op.Mask(ctx, err)
				h.events.limit(ctx, f.failed.Limit)
			}
		}()
		err = f.read(ctx, op, by.wake, field)
	}()
	return f, nil
}

var errNoReturn = errors.New("Subscribe or a resolver called runtime.Goexit")

// read runs the operation for each event of the host.
func (f *hostStream) read(ctx context.Context, op *plan.Bound, wake xsync.Waker, field SubscriptionField) (err error) {
	defer guard.Recover(&err)
	params, refused := op.RootParams(ctx)
	if refused != nil {
		return refused
	}
	within, end := context.WithCancel(ctx)
	defer end()
	for event, err := range field.Subscribe(within, params) {
		if err != nil {
			return err
		}
		response, full := f.respond(ctx, op, event)
		if full != nil {
			end() // the loop waits until the sequence has returned, which may wait for its context
			return full
		}
		select {
		case f.responses <- response:
			wake.Wake()
		case <-ctx.Done():
			f.h.subscriptionQuota.release(cap(response), &f.peer.unsent)
			return ctx.Err()
		}
	}
	return nil
}

// respond runs the operation for an event. All subscribers may receive an event at the same time, and the values of a
// large response take many times its size. So only as many events as queries are resolved at once, those of clients in
// turns, and the memory of large ones is counted in the budget of responses.
func (f *hostStream) respond(ctx context.Context, op *plan.Bound, event any) (response []byte, full *plan.Error) {
	if !f.h.hostRuns.Acquire(ctx, f.peer, 0) {
		return nil, shuttingDown().Error // nobody receives it: the client has left
	}
	defer f.h.hostRuns.Release(f.peer)
	out := &responseShare{budget: f.h.responses, minLag: stalledAfter}
	defer f.h.responses.Free(&out.Reservation)
	op.Reservation = out
	response, _ = op.Run(ctx, event, nil)
	if out.refused {
		return nil, noRoom().Error
	}
	return response, f.h.subscriptionQuota.reserve(cap(response), &f.peer.unsent)
}

func (f *hostStream) next() (response []byte, err error) {
	defer func() { f.took = response != nil }()
	select {
	case response, ok := <-f.responses:
		switch {
		case ok:
			f.h.subscriptionQuota.release(cap(response), &f.peer.unsent)
			f.observed.handed()
			return response, nil
		case f.failed == nil:
			return nil, io.EOF
		}
		if f.cause = errors.New(f.failed.Message); f.failed.Limit != "" {
			f.cause = fmt.Errorf("%w: %w", gqlws.ErrRefused, f.cause)
		}
		return nil, &ending{err: f.failed}
	default:
		return nil, nil
	}
}

func (f *hostStream) more() bool { return f.took }

func (f *hostStream) behind() bool { return false }

func (f *hostStream) id() string { return "" }

func (f *hostStream) cursor() string { return "" }

func (f *hostStream) position() (cursor string, own *ending) { return "", nil }

// close does not wait until the host's sequence has ended; Shutdown does.
func (f *hostStream) close(why error) {
	if f.cause != nil {
		why = f.cause
	}
	f.cancel()
	f.observed.ended("", why)
	f.leave()
}

func (f *hostStream) leave() {
	if f.users.Add(-1) == 0 {
		for response := range f.responses { // the client has not taken these
			f.h.subscriptionQuota.release(cap(response), &f.peer.unsent)
		}
		f.forget()
	}
}
