package chaingql

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"runtime/debug"
	"sync/atomic"

	"github.com/graphql-go/graphql"

	"github.com/chaingql/chaingql/internal/gqlws"
	"github.com/chaingql/chaingql/internal/plan"
)

// A SubscriptionField is a field of Subscription that a host adds.
type SubscriptionField struct {
	// Field is its type, arguments and description. Its Resolve makes the
	// field's value of an event, which is its Source; where it is nil, the event
	// is the value. Its own Subscribe is not used. What is resolved of one event
	// has Limits.BackendTimeout.
	*graphql.Field

	// Subscribe yields the events of one subscription. It is called once for each,
	// with the field's Args as a resolver would get them, and with a context that
	// has what the Authorizer put there and is done when the client has stopped,
	// left, or been told to go. It must return promptly then: until it does, the
	// subscription counts against Limits.Subscriptions, and Shutdown waits for it.
	//
	// The sequence runs on a goroutine of its own, which waits for a client that
	// reads slowly: nothing is left out. Answers that wait count among
	// Limits.SubscriptionBytes: where they are more than that, the subscription is
	// ended with LIMIT_EXCEEDED. A source that may not wait must keep its
	// own, bounded, queue. Nothing is repeated for a client that comes back, either:
	// what it missed, it has to ask for, with an argument, say.
	//
	// An error ends the subscription, and the client is told of it as of a
	// resolver's ([Options].QueryFields); so does the end of the sequence, which
	// the client is told as the end.
	Subscribe func(ctx context.Context, p graphql.ResolveParams) iter.Seq2[any, error]
}

// A Cost is what a field that a host adds costs at most, each time that a query
// asks for it. The sums over a query are bounded by [Limits].Calls and Blocks; it
// is refused with LIMIT_EXCEEDED before anything of it runs. Numbers below zero
// count as zero.
type Cost struct {
	Calls  int // of what the host's data come from, a database, say; each alias is one more
	Blocks int // or what else is of their size
	// Items is how many items a list has at most: what is asked for beneath it
	// costs that often. Zero is one.
	Items int
}

// extend adds the host's fields to the table.
func (o *Options) extend(table []plan.Type, r *resolvers) ([]plan.Type, error) {
	x := plan.Extension{Query: o.QueryFields, Subscription: graphql.Fields{}, Types: o.Types, Enter: r.enter,
		Costs: map[string]func(map[string]any) plan.Cost{}}
	for name, f := range o.SubscriptionFields {
		if f.Subscribe == nil {
			return nil, fmt.Errorf("Subscription.%s has no Subscribe", name)
		}
		x.Subscription[name] = f.Field
	}
	for name, price := range o.Costs {
		if x.Costs[name] = nil; price == nil {
			continue // which is told
		}
		x.Costs[name] = func(args map[string]any) plan.Cost { return plan.Cost(price(args)) }
	}
	return plan.Extend(table, x)
}

// ownFields keeps what is the host's map from being changed under us.
func (o *Options) ownFields() {
	o.QueryFields, o.SubscriptionFields, o.Costs = maps.Clone(o.QueryFields), maps.Clone(o.SubscriptionFields), maps.Clone(o.Costs)
}

// enter gives a field of the host's what a call of the Backend has: a turn, and
// a time. What is made of an event waits for no turn, as blocks do not.
func (r *resolvers) enter(ctx context.Context, src any) (within context.Context, leave func(), err error) {
	c, isQuery := src.(*call)
	if !isQuery {
		within, cancel := r.deadline(ctx)
		return within, cancel, nil
	}
	if c.refuses() {
		return nil, nil, errBusy
	}
	if err := r.turn(ctx); err != nil {
		return nil, nil, c.note(err)
	}
	within, cancel := r.deadline(ctx)
	return within, func() { cancel(); r.done() }, nil
}

// A feed is a subscription to a field of the host's. One goroutine reads what
// the host yields, at the speed at which the client takes it.
type feed struct {
	told    *observed
	cancel  context.CancelFunc
	forget  func()       // what it kept
	keeps   *retained    // which answers count among, until they are taken
	parties atomic.Int32 // the goroutine and the client: the last to leave forgets
	answers chan []byte  // closed at the end
	failed  *plan.Error  // before answers is closed: why; nil is the end of the sequence
	over    error        // why it ended by itself
}

// feed begins a subscription to a field of the host's.
func (h *Handler) feed(ctx context.Context, op *plan.Bound, by subscriber, field SubscriptionField) (stream, *plan.Error) {
	copies := 2 * op.Holding().Variables // in ResolveParams, as Args and as Info.VariableValues
	forget, err := h.retained.keep(op, feedBytes+copies)
	if err != nil {
		h.events.limit(ctx, err.Limit)
		return nil, err
	}
	if ok, _ := h.feeds.Enter(); !ok {
		forget()
		return nil, shuttingDown().Error
	}
	ctx, told := h.events.begin(ctx, op, by.asker)
	f := &feed{told: told, forget: forget, keeps: &h.retained, answers: make(chan []byte, 1)}
	// It is close that ends it, when the client knows why: not the credentials.
	ctx, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
	f.parties.Store(2)
	go func() {
		defer h.feeds.Leave()
		defer f.leave()
		defer by.wake()
		defer close(f.answers)
		err := errNoReturn // where the host ends the goroutine
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

var errNoReturn = errors.New("Subscribe ended its goroutine")

// read runs the operation on each event that the host yields.
func (f *feed) read(ctx context.Context, op *plan.Bound, wake func(), field SubscriptionField) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	params, refused := op.RootParams(ctx)
	if refused != nil {
		return refused
	}
	for event, err := range field.Subscribe(ctx, params) {
		if err != nil {
			return err
		}
		answer := op.Run(ctx, event, nil)
		if full := f.keeps.hold(cap(answer)); full != nil {
			return full
		}
		select {
		case f.answers <- answer:
			wake()
		case <-ctx.Done():
			f.keeps.release(cap(answer))
			return ctx.Err()
		}
	}
	return nil
}

func (f *feed) next() (id string, answer []byte, err error) {
	select {
	case answer, ok := <-f.answers:
		switch {
		case ok:
			f.keeps.release(cap(answer))
			f.told.handed()
			return "", answer, nil
		case f.failed == nil:
			return "", nil, io.EOF
		}
		if f.over = errors.New(f.failed.Message); f.failed.Limit != "" {
			f.over = fmt.Errorf("%w: %w", gqlws.ErrRefused, f.over)
		}
		return "", nil, &ending{told: f.failed}
	default:
		return "", nil, nil
	}
}

func (f *feed) cursor() string { return "" }

func (f *feed) pending() *ending { return nil }

// close does not wait for the host's function, which may take its time: Shutdown
// does.
func (f *feed) close(why error) {
	if f.over != nil {
		why = f.over
	}
	f.cancel()
	f.told.ended("", why)
	f.leave()
}

func (f *feed) leave() {
	if f.parties.Add(-1) == 0 {
		for answer := range f.answers { // that nobody took
			f.keeps.release(cap(answer))
		}
		f.forget()
	}
}
