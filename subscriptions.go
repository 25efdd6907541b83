package chaingql

import (
	"context"
	"errors"
	"io"
	"iter"

	"github.com/chaingql/chaingql/internal/blocklog"
	"github.com/chaingql/chaingql/internal/plan"
	"github.com/chaingql/chaingql/internal/sse"
)

// source makes the block log's source of a Backend.
func source(r *resolvers) blocklog.Source[Block] {
	return blocklog.Source[Block]{
		Head: func(ctx context.Context) (string, error) {
			newest, err := r.page(ctx, BlocksQuery{Last: 1})
			if err != nil || len(newest) == 0 {
				return "", err
			}
			return string(newest[len(newest)-1].Cursor), nil
		},
		Follow: func(ctx context.Context, after string) iter.Seq2[Block, error] {
			return r.backend.Follow(ctx, Cursor(after))
		},
		Page: func(ctx context.Context, after string, n int) ([]Block, error) {
			return r.page(ctx, BlocksQuery{After: Cursor(after), First: n})
		},
		Cursor: func(b Block) string { return string(b.Cursor) },
		Gone: func(err error) bool {
			return errors.Is(err, ErrCursorTooOld) || errors.Is(err, ErrBadCursor) || unservable(err) != nil
		},
	}
}

// unservable is what a client is told of a cursor from which nothing can be
// served: that it is too old, or foreign.
func unservable(err error) *plan.Error {
	var e *plan.Error
	if errors.As(err, &e) && (e.Code == codeCursorTooOld || e.Code == plan.CodeInput) {
		return e
	}
	return nil
}

// A subscription is one client's place in the block log.
type subscription struct {
	reader *blocklog.Reader[Block]
	// begun is whether it is under way: from now on, or with a block from
	// behind its cursor. What ends it then is not its client's cursor's fault.
	begun bool
}

// The arguments of Subscription.blocks, in the order of the schema's table.
const (
	argFilter = iota
	argStreamAfter
)

// subscribe joins an operation to the block log: behind the cursor last where
// the client has one from before, else where the operation asks for. Equal
// operations share one evaluation of each block.
func (h *Handler) subscribe(op *plan.Bound, last string, wake func()) (*subscription, *plan.Error) {
	_, args, err := op.Root()
	if err != nil {
		return nil, err
	}
	match, bad := blockFilter(args[argFilter])
	if bad != nil {
		return nil, bad
	}
	var after *string
	if given, ok := args[argStreamAfter].(string); ok {
		after = &given
	}
	if last != "" {
		after = &last
	}
	eval := func(b Block) []byte {
		if !match(&b) {
			return nil
		}
		return op.Run(context.Background(), &b, nil)
	}
	reader, joinErr := h.blocks.Join(op.Key(), after, eval, wake)
	if joinErr != nil {
		return nil, shuttingDown().Error
	}
	return &subscription{reader: reader, begun: after == nil}, nil
}

// next hands out the next block that matches. lost tells an end that the client
// should come back after from one that asking again would not change.
func (s *subscription) next() (item blocklog.Item, lost bool, err *plan.Error) {
	item, failed := s.reader.Next()
	if failed == nil {
		s.begun = s.begun || item.Payload != nil
		return item, false, nil
	}
	if gone := unservable(failed); gone != nil {
		return item, s.begun, gone
	}
	e := &plan.Error{Message: "The stream of blocks was interrupted.", Code: codeUnavailable}
	if errors.Is(failed, blocklog.ErrClosed) {
		e = shuttingDown().Error
	}
	if cursor := s.reader.Cursor(); cursor != "" {
		e.Details = map[string]string{"cursor": cursor}
	}
	return item, true, e
}

// A socketStream is a subscription as sockets take it.
type socketStream struct{ *subscription }

func (s socketStream) Next() ([]byte, error) {
	item, lost, err := s.next()
	if err != nil {
		return nil, requestError(lost, err)
	}
	return item.Payload, nil
}

func (s socketStream) Close() { s.reader.Close() }

// An eventStream is a subscription as event streams take it. Its events' ids
// are cursors, which a browser that lost its line hands back.
type eventStream struct {
	*subscription
	closing context.Context // done when the service goes away
}

func (s eventStream) Next() (sse.Event, error) {
	if s.closing.Err() != nil {
		return s.end(shuttingDown().Error, true)
	}
	item, lost, err := s.next()
	if err != nil {
		return s.end(err, lost)
	}
	return sse.Event{ID: item.Cursor, Data: item.Payload}, nil
}

// end tells why the stream ends and, to a client that may come back, where it
// stands: blocks that did not match are behind it too.
func (s eventStream) end(err *plan.Error, lost bool) (sse.Event, error) {
	end := &sse.End{Data: appendErrors(nil, plan.Errors{err}), Final: !lost}
	if lost {
		end.ID = s.reader.Cursor()
	}
	return sse.Event{}, end
}

// oneAnswer is a query's answer to a client that takes nothing but events.
type oneAnswer struct{ data []byte }

func (a *oneAnswer) Next() (sse.Event, error) {
	if a.data == nil {
		return sse.Event{}, io.EOF
	}
	e := sse.Event{Data: a.data}
	a.data = nil
	return e, nil
}
