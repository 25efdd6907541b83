package chaingql

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"time"

	"github.com/chaingql/chaingql/internal/blocklog"
	"github.com/chaingql/chaingql/internal/gqlws"
	"github.com/chaingql/chaingql/internal/plan"
)

// These errors of the block stream are reported to [Hooks].
var (
	// ErrSourceStalled is passed to SourceFailed if the Backend's Follow has yielded nothing for Options.StallTimeout.
	ErrSourceStalled = blocklog.ErrSourceStalled

	// ErrGap is passed to SourceFailed if Follow has skipped blocks that Blocks does not have either. If a subscription
	// ends with STREAM_GAP, the Err of its Outcome wraps ErrGap.
	ErrGap = blocklog.ErrGap
)

// source adapts the Backend to the block log of chain c.
func source(r *resolvers, c *chain) blocklog.Source[Block] {
	page := func(ctx context.Context, q BlocksQuery) ([]Block, error) {
		return r.page(context.WithValue(ctx, subscriptionsKey{}, true), c, q)
	}
	return blocklog.Source[Block]{
		Recent: func(ctx context.Context, n int) ([]Block, error) {
			if err := r.chains.wait(ctx); err != nil {
				return nil, err
			}
			return page(ctx, BlocksQuery{Last: n})
		},
		Follow: func(ctx context.Context, after string) iter.Seq2[Block, error] {
			return func(yield func(Block, error) bool) {
				blocks := r.backend.Follow(ctx, Cursor(after))
				// If the chain was replaced before the call, Follow may yield nothing until the new chain is as long as
				// the old one.
				if err := r.chains.verify(c, nil); err != nil {
					yield(Block{}, err)
					return
				}
				for b, err := range blocks {
					err = r.chains.verify(c, err, b)
					if !yield(b, err) || err != nil {
						return
					}
				}
			}
		},
		Page: func(ctx context.Context, after string, n int) ([]Block, error) {
			return page(ctx, BlocksQuery{After: Cursor(after), First: n})
		},
		Between: func(ctx context.Context, after string, before Block, n int) ([]Block, error) {
			q := BlocksQuery{Workchain: &before.Workchain, After: Cursor(after), Before: before.Cursor, First: n}
			return page(ctx, q)
		},
		Before: func(ctx context.Context, b Block, shard *uint64, n int) ([]Block, error) {
			q := BlocksQuery{Shard: shard, Before: b.Cursor, Last: n}
			if shard != nil {
				q.Workchain = &b.Workchain
			}
			return page(ctx, q)
		},
		Cursor:  func(b Block) string { return string(b.Cursor) },
		Prepare: c.prepare,
		Place: func(b Block) blocklog.Place {
			return blocklog.Place{Workchain: b.Workchain, Shard: b.Shard, SeqNo: b.SeqNo}
		},
		Gone: func(err error) bool {
			return errors.Is(err, ErrCursorTooOld) || errors.Is(err, ErrBadCursor) || unservable(err) != nil
		},
	}
}

// logOptions returns the options of the block log of chain c. Its events are passed to the hooks; failures also raise
// info.latency. down is as for [chains].open.
func (h *Handler) logOptions(c *chain, down time.Time) blocklog.Options[Block] {
	o := blocklog.Options[Block]{Window: h.opts.WindowSize, Silence: h.opts.StallTimeout, Logger: h.opts.Logger}
	o.DownSince, o.WindowAge, o.WindowBytes = down, h.opts.WindowDuration, h.opts.Limits.WindowBytes
	if o.WindowBytes == 0 { // the limit is turned off
		o.WindowBytes = math.MaxInt
	}
	o.KeptBytes = h.opts.Limits.SubscriptionBytes / keptShare
	o.MaxBackoff, o.Outage = h.opts.RetryInterval, max(0, h.opts.OutageTimeout)
	if o.Silence == 0 {
		o.Silence = -1 // turns the timeout off
	}
	o.Events.Block, o.Events.Dropped = h.events.received, h.events.dropped
	o.Events.Failed = func(err error, wait time.Duration) {
		since := time.Now()
		if errors.Is(err, ErrSourceStalled) {
			since = since.Add(-o.Silence)
		}
		c.down.CompareAndSwap(nil, &since)
		h.events.failed(err, wait)
	}
	o.Events.Recovered = func(down time.Duration) {
		c.down.Store(nil)
		h.events.recovered(down)
	}
	o.Events.Gap = func(_ int32, _ string, healed bool, _ int) {
		if !healed {
			h.events.failed(ErrGap, 0)
		}
	}
	return o
}

// unservable returns the error in err that reports a cursor as too old or foreign, or nil if err has another cause.
func unservable(err error) *plan.Error {
	var e *plan.Error
	if errors.As(err, &e) && (e.Code == codeCursorTooOld || e.Code == plan.CodeInput) {
		return e
	}
	return nil
}

// A subscription is the position of one client in the block log. The fields that each block needs come first, and the
// reader is a part of it, so that few cache lines are loaded.
type subscription struct {
	gaps blocklog.ReportedGaps // the reported gaps for the last event
	// begun reports that the subscription started after the newest block, or has received a block after its cursor. If
	// so, the client's cursor cannot be the cause of a later failure.
	begun bool
	// hasMore and isBehind are the results of more and behind.
	hasMore  bool
	isBehind bool
	observed *observed
	reader   blocklog.Reader[Block]

	chain  *chain
	forget func() // releases its quota
	// over is the reason for which the subscription ended by itself, or nil.
	over error
}

// A stream is an open subscription to blocks or to a field of the host.
type stream interface {
	// next returns the next event, or nothing if there is no event yet. When the stream has ended, err is io.EOF or an
	// *ending.
	next() (response []byte, err error)
	// more reports whether next may have another event before the client is woken.
	more() bool
	// behind reports whether the next call of next reads stored blocks.
	behind() bool
	// id returns the id of the event that next has returned last.
	id() string
	// cursor returns the position to resume from if the connection is lost now, or "" if there is none.
	cursor() string
	// position returns the position to resume from if the server ends the stream now, or "" if there is none. If own is
	// not nil, the stream must end with it, whatever the server's reason is.
	position() (cursor string, own *ending)
	// close ends the stream. why is ignored if the stream has ended by itself.
	close(why error)
}

// An ending is the error with which a stream ends.
type ending struct {
	err    *plan.Error // for the client
	lost   bool        // the client should resume
	cursor string      // the position to resume from
}

func (e *ending) Error() string { return e.err.Message }

func endAt(e *plan.Error, cursor string, lost bool) *ending {
	return &ending{at(e, cursor), lost, cursor}
}

// These are the indexes of the arguments of Subscription.blocks in the schema's table.
const (
	argFilter = iota
	argStreamAfter
)

// subscribe opens the subscription of an operation.
func (h *Handler) subscribe(ctx context.Context, op *plan.Bound, by subscriber) (stream, *plan.Error) {
	if err := h.subscriptionQuota.check(op); err != nil {
		h.events.limit(ctx, err.Limit)
		return nil, err
	}
	name, args, err := op.Root()
	if err != nil {
		return nil, err
	}
	if field, ok := h.opts.Schema.Subscriptions[name]; ok {
		return h.openHostStream(ctx, op, by, field)
	}
	return h.join(ctx, op, args, by)
}

// join opens a subscription to blocks. It starts after the cursor by.last if the client resumes, and otherwise at the
// position that the operation requests. Equal operations share one evaluation of each block.
func (h *Handler) join(ctx context.Context, op *plan.Bound, args plan.Args, by subscriber) (stream, *plan.Error) {
	filter, filterBytes, bad := newBlockFilter(args[argFilter])
	if bad != nil {
		return nil, bad
	}
	concerned, concernedBytes, bad := newBlockFilter(workchainsOf(args[argFilter]))
	if bad != nil {
		return nil, bad
	}
	key := op.Key(argStreamAfter) // the start does not change the evaluation
	forget, err := h.subscriptionQuota.acquire(op, filterBytes+concernedBytes+len(key)+by.ownTrace, by.peer)
	if err != nil {
		h.events.limit(ctx, err.Limit)
		return nil, err
	}
	given, resumes := args[argStreamAfter].(string)
	if by.last != "" {
		given, resumes = by.last, true
	}
	interest := blocklog.Interest[Block]{
		Key: key, SearchBlocks: filter.searchBlocks(), Wake: by.wake, Client: by.client,
		Concerns: func(workchain int32) bool { return concerned.matches(&Block{Workchain: workchain}) },
	}
	shared := op.Shared(argStreamAfter) // the first of the equal operations may end before the others
	for {
		c := h.chains.current()
		if resumes {
			var after string
			if after, interest.Reported, err = c.parse(given); err != nil {
				forget()
				return nil, err
			}
			interest.After = &after
		}
		interest.Eval = func(b Block) []byte {
			if !filter.matches(&b) {
				return nil
			}
			matching := b // only matching blocks are moved to the heap
			response, _ := shared.Run(context.Background(), c.source(&matching), nil)
			return response
		}
		s := &subscription{chain: c, forget: forget, begun: !resumes, isBehind: resumes}
		interest.Reader = &s.reader
		if _, closed := c.blocks.Join(interest); closed == nil {
			_, s.observed = h.events.begin(ctx, op, &by.caller)
			return s, nil
		}
		if !c.replaced.Load() {
			forget()
			return nil, shuttingDown().Error
		}
	}
}

// next returns the next matching block.
func (s *subscription) next() (response []byte, err error) {
	item, failed := s.reader.Next()
	if failed == nil {
		if item.Payload != nil {
			s.begun, s.gaps, s.hasMore = true, item.Reported, !item.Last
			s.observed.delivered(item)
		} else {
			s.hasMore = item.Searching
		}
		s.isBehind = item.Behind
		return item.Payload, nil
	}
	s.over = failed
	if s.chain.replaced.Load() {
		_, own := s.position()
		return nil, own
	}
	gone := unservable(failed)
	if gone != nil && gone.Code != codeCursorTooOld && !s.begun {
		s.over = fmt.Errorf("%w: %w", gqlws.ErrRefused, failed)
		return nil, &ending{err: gone}
	} // if it has begun, the source no longer has a cursor that it yielded itself
	cursor, own := s.position()
	if own != nil {
		return nil, own // even if the cursor is too old: it tells the client which of its blocks to discard
	}
	if gone != nil && gone.Code == codeCursorTooOld {
		return nil, endAt(gone, cursor, s.begun)
	}
	e := &plan.Error{Message: "The stream of blocks was interrupted.", Code: codeUnavailable}
	if errors.Is(failed, blocklog.ErrClosed) {
		e = shuttingDown().Error
	}
	return nil, endAt(e, cursor, true)
}

func (s *subscription) more() bool { return s.hasMore }

func (s *subscription) behind() bool { return s.isBehind }

func (s *subscription) id() string { return s.chain.cursor(s.reader.LastReturned(), s.gaps) }

func (s *subscription) cursor() string {
	cursor, gaps, err := s.reader.ResumePoint()
	if err != nil { // only STREAM_GAP has a position then
		return ""
	}
	return s.chain.cursor(cursor, gaps)
}

func (s *subscription) position() (cursor string, own *ending) {
	if s.chain.replaced.Load() {
		s.over = ErrChainReplaced
		return "", &ending{err: epochChanged()}
	}
	cursor, gaps, err := s.reader.ResumePoint()
	cursor = s.chain.cursor(cursor, gaps)
	if err == nil {
		return cursor, nil
	}
	s.over = err
	gap := &plan.Error{Message: "Blocks are missing from the stream.", Code: codeStreamGap}
	return "", endAt(gap, cursor, true)
}

// at returns a copy of e with the cursor that a stream has reached.
func at(e *plan.Error, cursor string) *plan.Error {
	known := *e // e may be shared
	known.Details = map[string]string{}
	maps.Copy(known.Details, e.Details)
	if cursor != "" {
		known.Details["cursor"] = cursor
	}
	return &known
}

func (s *subscription) close(why error) {
	if s.over != nil {
		why = s.over
	}
	defer s.forget()
	defer s.reader.Close()
	s.observed.ended(s.reader.Cursor(), why)
}
