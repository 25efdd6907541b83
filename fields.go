package chaingql

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"runtime/debug"

	"github.com/graphql-go/graphql"

	"github.com/chaingql/chaingql/internal/plan"
)

// A SubscriptionField is a field of Subscription that a host adds.
type SubscriptionField struct {
	// Field is its type, arguments and description. Its Resolve makes the
	// field's value of an event, which is its Source; where it is nil, the event
	// is the value. Its own Subscribe is not used.
	*graphql.Field

	// Subscribe yields the events of one subscription until ctx is done: it is
	// called with the field's arguments, on a goroutine of its own that waits
	// for a client that reads slowly, so nothing is left out, and a source that
	// may not wait must keep its own, bounded, queue. An error ends the
	// subscription, and so does the end of the sequence. It must return
	// promptly when ctx is done, or Shutdown waits for it.
	Subscribe func(ctx context.Context, p graphql.ResolveParams) iter.Seq2[any, error]
}

// A Cost is what a field that a host adds costs, against [Limits].Calls and
// Blocks, each time that a query asks for it.
type Cost struct {
	Calls, Blocks int
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
		x.Costs[name] = func(args map[string]any) plan.Cost { return plan.Cost(price(args)) }
	}
	return plan.Extend(table, x)
}

// ownFields keeps what is the host's map from being changed under us.
func (o *Options) ownFields() {
	o.QueryFields, o.SubscriptionFields, o.Costs = maps.Clone(o.QueryFields), maps.Clone(o.SubscriptionFields), maps.Clone(o.Costs)
}

// enter gives a field of the host's what a call of the Backend has: a turn, and
// a time.
func (r *resolvers) enter(ctx context.Context, src any) (within context.Context, leave func(), err error) {
	c, _ := src.(*call)
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
	forget  func()
	cancel  context.CancelFunc
	answers chan []byte // closed at the end
	failed  *plan.Error // before answers is closed: why; nil is the end of the sequence
	over    error       // why it ended by itself
}

// feed begins a subscription to a field of the host's.
func (h *Handler) feed(ctx context.Context, op *plan.Bound, by subscriber, field SubscriptionField) (stream, *plan.Error) {
	forget, err := h.retained.keep(op)
	if err != nil {
		h.events.limit(ctx, err.Limit)
		return nil, err
	}
	if ok, _ := h.feeds.enter(); !ok {
		forget()
		return nil, shuttingDown().Error
	}
	ctx, told := h.events.begin(ctx, op, by.asker)
	f := &feed{told: told, forget: forget, answers: make(chan []byte, 1)}
	ctx, f.cancel = context.WithCancel(ctx)
	go func() {
		defer h.feeds.leave()
		defer by.wake()
		defer close(f.answers)
		if err := f.read(ctx, op, by.wake, field); err != nil && ctx.Err() == nil {
			f.failed = op.Mask(ctx, err)
		}
	}()
	return f, nil
}

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
		select {
		case f.answers <- op.Run(ctx, event, nil):
			wake()
		case <-ctx.Done():
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
			f.told.handed()
			return "", answer, nil
		case f.failed == nil:
			return "", nil, io.EOF
		}
		f.over = errors.New(f.failed.Message)
		return "", nil, &ending{f.failed, false}
	default:
		return "", nil, nil
	}
}

func (f *feed) cursor() string { return "" }

// close does not wait for the host's function, which may take its time: Shutdown
// does.
func (f *feed) close(why error) {
	if f.over != nil {
		why = f.over
	}
	f.cancel()
	defer f.forget()
	f.told.ended("", why)
}
