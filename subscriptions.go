package chaingql

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"time"

	"github.com/chaingql/chaingql/internal/blocklog"
	"github.com/chaingql/chaingql/internal/gqlws"
	"github.com/chaingql/chaingql/internal/plan"
)

// Why a stream of blocks is not what it should be, as [Hooks] are told.
var (
	// ErrSilent is that Follow has given nothing for Options.Silence.
	ErrSilent = blocklog.ErrSilent

	// ErrGap is that Follow left out blocks. A subscription that it concerns
	// ends with STREAM_GAP.
	ErrGap = blocklog.ErrGap
)

// source makes the block log's source of a Backend.
func source(r *resolvers) blocklog.Source[Block] {
	return blocklog.Source[Block]{
		Recent: func(ctx context.Context, n int) ([]Block, error) {
			return r.page(ctx, BlocksQuery{Last: n})
		},
		Follow: func(ctx context.Context, after string) iter.Seq2[Block, error] {
			return checked(r.backend.Follow(ctx, Cursor(after)))
		},
		Page: func(ctx context.Context, after string, n int) ([]Block, error) {
			return r.page(ctx, BlocksQuery{After: Cursor(after), First: n})
		},
		Between: func(ctx context.Context, after string, before Block, n int) ([]Block, error) {
			return r.page(ctx, BlocksQuery{Workchain: &before.Workchain, After: Cursor(after), Before: before.Cursor, First: n})
		},
		Before: func(ctx context.Context, b Block, shard *uint64, n int) ([]Block, error) {
			q := BlocksQuery{Shard: shard, Before: b.Cursor, Last: n}
			if shard != nil {
				q.Workchain = &b.Workchain
			}
			return r.page(ctx, q)
		},
		Cursor: func(b Block) string { return string(b.Cursor) },
		Place: func(b Block) blocklog.Place {
			return blocklog.Place{Workchain: b.Workchain, Shard: b.Shard, SeqNo: b.SeqNo}
		},
		Gone: func(err error) bool {
			return errors.Is(err, ErrCursorTooOld) || errors.Is(err, ErrBadCursor) || unservable(err) != nil
		},
	}
}

// logOptions has the log tell the host, and info.latency, of its source.
func (h *Handler) logOptions(r *resolvers) blocklog.Options[Block] {
	o := blocklog.Options[Block]{Window: h.opts.Window, Silence: h.opts.Silence, Logger: h.opts.Logger}
	o.KeptBytes = h.opts.Limits.SubscriptionBytes / keptShare
	if o.Silence == 0 {
		o.Silence = -1 // which is off there
	}
	o.Events.Block, o.Events.Dropped = h.events.received, h.events.dropped
	o.Events.Failed = func(err error, wait time.Duration) {
		since := time.Now()
		if errors.Is(err, ErrSilent) {
			since = since.Add(-o.Silence)
		}
		r.down.CompareAndSwap(nil, &since)
		h.events.failed(err, wait)
	}
	o.Events.Recovered = func(down time.Duration) {
		r.down.Store(nil)
		h.events.recovered(down)
	}
	o.Events.Gap = func(_ int32, _ string, healed bool, _ int) {
		if !healed {
			h.events.failed(ErrGap, 0)
		}
	}
	return o
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
	h      *Handler
	reader *blocklog.Reader[Block]
	told   *observed
	forget func() // what it kept
	// begun is whether it is under way: from now on, or with a block from
	// behind its cursor. What ends it then is not its client's cursor's fault.
	begun bool
	// over is why it ended by itself.
	over error
}

// A stream is a subscription under way: to blocks, or to a field of the host's.
type stream interface {
	// next hands out the next event with its id, or nothing where there is none
	// yet. The end is io.EOF or an *ending.
	next() (id string, answer []byte, err error)
	// cursor is the place from which a client can go on; "" where there is none.
	cursor() string
	// pending returns the end that was found and that next has not handed out, nil
	// if there is none. It takes precedence over an end from outside.
	pending() *ending
	// close ends it, because of what else has ended, if it has not by itself.
	close(why error)
}

// An ending is why a stream does not go on. lost tells one that the client should
// come back after from one that asking again would not change.
type ending struct {
	told   *plan.Error
	lost   bool
	cursor string // from which to come back
}

func (e *ending) Error() string { return e.told.Message }

func endAt(e *plan.Error, cursor string, lost bool) *ending {
	return &ending{at(e, cursor), lost, cursor}
}

// The arguments of Subscription.blocks, in the order of the schema's table.
const (
	argFilter = iota
	argStreamAfter
)

// A subscriber is who subscribes, and how.
type subscriber struct {
	asker
	last string // the cursor that the client had come to; "" where it does not say
	wake func()
}

// subscribe begins what an operation asks for.
func (h *Handler) subscribe(ctx context.Context, op *plan.Bound, by subscriber) (stream, *plan.Error) {
	name, args, err := op.Root()
	if err != nil {
		return nil, err
	}
	if field, ok := h.opts.SubscriptionFields[name]; ok {
		return h.feed(ctx, op, by, field)
	}
	return h.join(ctx, op, args, by)
}

// join joins an operation to the block log: behind the cursor last where the
// client has one from before, else where the operation asks for. Equal
// operations share one evaluation of each block.
func (h *Handler) join(ctx context.Context, op *plan.Bound, args plan.Args, by subscriber) (stream, *plan.Error) {
	match, matchBytes, bad := blockFilter(args[argFilter])
	if bad != nil {
		return nil, bad
	}
	concerned, concernedBytes, bad := blockFilter(workchainsOf(args[argFilter]))
	if bad != nil {
		return nil, bad
	}
	var after *string
	var mark blocklog.Mark
	given, ok := args[argStreamAfter].(string)
	if by.last != "" {
		given, ok = by.last, true
	}
	if ok {
		given, mark = h.resumeAt(given)
		after = &given
	}
	key := op.Key(argStreamAfter) // from where one reads does not change what is read
	forget, err := h.retained.keep(op, matchBytes+concernedBytes+len(key))
	if err != nil {
		h.events.limit(ctx, err.Limit)
		return nil, err
	}
	reader, joinErr := h.blocks.Join(blocklog.Interest[Block]{
		Key:   key,
		After: after,
		Mark:  mark,
		Eval: func(b Block) []byte {
			if !match(&b) {
				return nil
			}
			return op.Run(context.Background(), &b, nil)
		},
		Concerns: func(workchain int32) bool { return concerned(&Block{Workchain: workchain}) },
		Wake:     by.wake,
	})
	if joinErr != nil {
		forget()
		return nil, shuttingDown().Error
	}
	_, told := h.events.begin(ctx, op, by.asker)
	return &subscription{h: h, reader: reader, told: told, forget: forget, begun: after == nil}, nil
}

// next hands out the next block that matches.
func (s *subscription) next() (id string, answer []byte, err error) {
	item, failed := s.reader.Next()
	if failed == nil {
		if item.Payload != nil {
			s.begun = true
			s.told.delivered(item)
		}
		return s.h.marked(item.Cursor, item.Mark), item.Payload, nil
	}
	s.over = failed
	switch gone := unservable(failed); {
	case gone == nil:
	case gone.Code == codeCursorTooOld:
		return "", nil, endAt(gone, s.cursor(), s.begun)
	case !s.begun:
		s.over = fmt.Errorf("%w: %w", gqlws.ErrRefused, failed)
		return "", nil, &ending{told: gone}
	} // else it is the source that does not know its own cursor any more
	if end := s.pending(); end != nil {
		return "", nil, end
	}
	e := &plan.Error{Message: "The stream of blocks was interrupted.", Code: codeUnavailable}
	if errors.Is(failed, blocklog.ErrClosed) {
		e = shuttingDown().Error
	}
	return "", nil, endAt(e, s.cursor(), true)
}

func (s *subscription) cursor() string {
	cursor := s.reader.Cursor()
	return s.h.marked(cursor, s.reader.Mark(cursor))
}

func (s *subscription) pending() *ending {
	cursor, mark, err := s.reader.Standing()
	if err == nil {
		return nil
	}
	s.over = err
	cursor = s.h.marked(cursor, mark)
	return endAt(&plan.Error{Message: "Blocks are missing from the stream.", Code: codeStreamGap}, cursor, true)
}

// maxCursorTold keeps what may be a client's own text from being echoed at
// length.
const maxCursorTold = 256

// at names the cursor that a stream has reached, beside what an error tells.
func at(e *plan.Error, cursor string) *plan.Error {
	known := *e // which may be told to others
	known.Details = map[string]string{}
	maps.Copy(known.Details, e.Details)
	if known.Details["cursor"] = cursor; cursor == "" || len(cursor) > maxCursorTold {
		delete(known.Details, "cursor")
	}
	return &known
}

func (s *subscription) close(why error) {
	if s.over != nil {
		why = s.over
	}
	defer s.forget()
	defer s.reader.Close()
	s.told.ended(s.reader.Cursor(), why)
}

// A socketStream is a subscription as sockets take it.
type socketStream struct{ stream }

func (s socketStream) Next() ([]byte, error) {
	_, answer, err := s.next()
	var end *ending
	if !errors.As(err, &end) {
		return answer, err
	}
	return nil, requestError(end.lost, end.told)
}

func (s socketStream) Cursor() string { return s.cursor() }

func (s socketStream) Pending() *gqlws.RequestError {
	end := s.pending()
	if end == nil {
		return nil
	}
	return requestError(end.lost, end.told)
}

func (s socketStream) Close(why error) { s.close(why) }

// requestError puts errors in the terms of the sockets.
func requestError(lost bool, errs ...*plan.Error) *gqlws.RequestError {
	e := &gqlws.RequestError{Lost: lost}
	for _, err := range errs {
		e.Errors = append(e.Errors, json.RawMessage(err.AppendJSON(nil)))
	}
	return e
}
