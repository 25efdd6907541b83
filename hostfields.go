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
)

// A SchemaExtension adds fields and types of the host to the schema, with graphql-go's types, arguments and resolvers.
// They are served over the same transports and within the same limits as the built-in fields. Responses with such a
// field must not be cached.
//
// New copies the maps. Their values must not be changed afterwards. New panics if a name is taken (type names too, for
// example Block), if types are invalid, and if a type is called Mutation. The host's types cannot refer to built-in
// types. The fields of a type are listed by name.
type SchemaExtension struct {
	// Queries adds fields to Query, by name. Default: none.
	//
	// A resolver receives the same ResolveParams as from graphql-go: Source (nil or a map for a field of Query), Args
	// with defaults and internal enum values, Info, and the Authorizer's Context. It must not change them, except Args;
	// the resolvers of one request share the lists and objects in Args. It returns a value or a thunk
	// (func() (any, error)). Thunks are called after all fields nested in the same field of Query that need no thunk
	// have been resolved, so that a loader can read many values at once. The resolvers of one query run one after the
	// other on one goroutine; different queries run concurrently.
	//
	// Each field of Query holds one of Limits.InFlight until everything nested in it has been resolved, for at most
	// Limits.BackendTimeout. Then Context is done, resolvers must return, and the client receives TIMEOUT.
	// Limits.ResponseBytes counts 32 additional bytes per value.
	//
	// If an error has a method Extensions() map[string]any, like graphql-go's ExtendedError, the client receives its
	// text, cut at 300 bytes, and its extensions; a "code" that is not a string becomes INTERNAL_SERVER_ERROR. Every
	// other error is masked and logged: a panic, an error of a built-in field, and a value that its type cannot
	// represent, such as 1<<40 as an Int or an unknown value of an enum, which graphql-go would change or replace by
	// null.
	Queries graphql.Fields

	// Subscriptions adds fields to Subscription, by name. Default: none.
	Subscriptions map[string]SubscriptionField

	// Types adds object types to which no field refers but which a value of an interface may have. Default: none.
	Types []graphql.Type

	// Costs prices the fields that the host added to Query or to its own objects. Keys are type and field, such as
	// "Query.transactions" or "Wallet.transactions". A function is called before a query runs, with the arguments
	// that the resolver will receive, concurrently and possibly several times per query; it must neither block nor
	// change lists and objects in the arguments. New panics if a key is not a field of the host, or is one of an
	// interface: price the fields of its objects. Default: one call for a field of Query, nothing for others.
	Costs map[string]func(args map[string]any) Cost
}

// A SubscriptionField is a field of Subscription that a host adds.
type SubscriptionField struct {
	// Field has the type, arguments and description. Its Resolve computes the value of the field from an event (its
	// Source); if it is nil, the event is the value. Its Subscribe is not used. Resolving one event may take
	// Limits.BackendTimeout.
	*graphql.Field

	// Subscribe yields the events of one subscription. It is called once for each, with Args as for a resolver. Its
	// context has the values of the Authorizer's and is done when the client has stopped the subscription, has left,
	// or was disconnected. Then Subscribe must return promptly: until it does, the subscription counts against
	// Limits.Subscriptions, and Shutdown waits for it.
	//
	// The sequence runs on a goroutine of its own. If the client reads slowly, the sequence waits: nothing is skipped.
	// Waiting responses count against Limits.SubscriptionBytes; beyond it the subscription ends with LIMIT_EXCEEDED. A
	// source that cannot wait must have its own bounded queue. Nothing is repeated for a client that reconnects: let it
	// request missed events by an argument.
	//
	// An error ends the subscription, and the client receives it like an error of a resolver (see
	// [SchemaExtension].Queries). The end of the sequence completes the subscription.
	Subscribe func(ctx context.Context, p graphql.ResolveParams) iter.Seq2[any, error]
}

// A Cost is the maximum cost of a field that a host adds, for each time that a query selects it.
// [Limits].BackendCalls and QueryBlocks bound the sums over a query. If they are exceeded, nothing of the query runs,
// and it is refused with LIMIT_EXCEEDED. Negative numbers count as zero.
type Cost struct {
	// Calls is the number of calls of the host's data source, such as a database. Each alias costs them again.
	Calls int
	// Blocks is the number of blocks, or of other items of that size.
	Blocks int
	// Items is the maximum length of a list: fields nested in it cost that many times as much. Zero means one.
	Items int
}

// addTo adds the host's fields to the table.
func (s *SchemaExtension) addTo(table []plan.Type, r *resolvers) ([]plan.Type, error) {
	x := plan.Extension{Query: s.Queries, Subscription: graphql.Fields{}, Types: s.Types, Enter: r.enter,
		Costs: map[string]func(map[string]any) plan.Cost{}}
	for name, f := range s.Subscriptions {
		if f.Subscribe == nil {
			return nil, fmt.Errorf("Subscription.%s has no Subscribe", name)
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

// clone copies the maps, which the host may change later.
func (s SchemaExtension) clone() SchemaExtension {
	s.Queries, s.Subscriptions, s.Costs = maps.Clone(s.Queries), maps.Clone(s.Subscriptions), maps.Clone(s.Costs)
	return s
}

// enter applies the rules of Backend calls to a field of the host: a slot and a timeout. Events of subscriptions have
// only the timeout, like blocks.
func (r *resolvers) enter(ctx context.Context, src any) (within context.Context, leave func(), err error) {
	c, isQuery := src.(*call)
	if !isQuery {
		within, cancel := r.deadline(ctx)
		return within, cancel, nil
	}
	if c.isBusy() {
		return nil, nil, errBusy
	}
	if err := r.acquire(ctx); err != nil {
		return nil, nil, c.noteBusy(err)
	}
	within, cancel := r.deadline(ctx)
	return within, func() { cancel(); r.release() }, nil
}

// A hostStream is a subscription to a field of the host. One goroutine reads the host's sequence, as fast as the
// client takes the responses.
type hostStream struct {
	observed  *observed
	cancel    context.CancelFunc
	forget    func()             // releases its quota
	quota     *subscriptionQuota // counts responses until the client takes them
	users     atomic.Int32       // the goroutine and the client; the last one to leave calls forget
	responses chan []byte        // closed at the end
	failed    *plan.Error        // the reason for the end, set before responses is closed; nil after the last event
	cause     error              // argument for observed.ended if the stream ended by itself
}

// openHostStream opens a subscription to a field of the host.
func (h *Handler) openHostStream(
	ctx context.Context, op *plan.Bound, by subscriber, field SubscriptionField,
) (stream, *plan.Error) {
	copies := 2 * op.MemoryUse().Variables // in ResolveParams, as Args and as Info.VariableValues
	forget, err := h.subscriptionQuota.acquire(op, hostStreamBytes+copies)
	if err != nil {
		h.events.limit(ctx, err.Limit)
		return nil, err
	}
	if ok, _ := h.hostStreams.Enter(); !ok {
		forget()
		return nil, shuttingDown().Error
	}
	ctx, observed := h.events.begin(ctx, op, by.caller)
	f := &hostStream{observed: observed, forget: forget, quota: &h.subscriptionQuota, responses: make(chan []byte, 1)}
	// The end of the credentials does not end it: close does, after the client was informed.
	ctx, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
	f.users.Store(2)
	go func() {
		defer h.hostStreams.Leave()
		defer f.leave()
		defer by.wake()
		defer close(f.responses)
		err := errNoReturn // remains if the host ends the goroutine
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
func (f *hostStream) read(ctx context.Context, op *plan.Bound, wake func(), field SubscriptionField) (err error) {
	defer guard.Recover(&err)
	params, refused := op.RootParams(ctx)
	if refused != nil {
		return refused
	}
	for event, err := range field.Subscribe(ctx, params) {
		if err != nil {
			return err
		}
		response, _ := op.Run(ctx, event, nil)
		if full := f.quota.reserve(cap(response)); full != nil {
			return full
		}
		select {
		case f.responses <- response:
			wake()
		case <-ctx.Done():
			f.quota.release(cap(response))
			return ctx.Err()
		}
	}
	return nil
}

func (f *hostStream) next() (id string, response []byte, err error) {
	select {
	case response, ok := <-f.responses:
		switch {
		case ok:
			f.quota.release(cap(response))
			f.observed.handed()
			return "", response, nil
		case f.failed == nil:
			return "", nil, io.EOF
		}
		if f.cause = errors.New(f.failed.Message); f.failed.Limit != "" {
			f.cause = fmt.Errorf("%w: %w", gqlws.ErrRefused, f.cause)
		}
		return "", nil, &ending{err: f.failed}
	default:
		return "", nil, nil
	}
}

func (f *hostStream) cursor() string { return "" }

func (f *hostStream) pending() *ending { return nil }

// close does not wait for the host's function. Shutdown does.
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
		for response := range f.responses { // not taken
			f.quota.release(cap(response))
		}
		f.forget()
	}
}
