package chaingql

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chaingql/chaingql/internal/gqlws"
	"github.com/chaingql/chaingql/internal/plan"
	"github.com/chaingql/chaingql/internal/sse"
)

// serveStream answers a subscription with a stream of events until the client
// leaves, ctx is done (its credentials expired), or the service goes away.
func (h *Handler) serveStream(ctx context.Context, w http.ResponseWriter, r *http.Request, op *plan.Bound, by asker) {
	if r.Method == http.MethodHead {
		// Its body is never sent, so no write would tell that the client left.
		h.serveEvents(w, r, &oneAnswer{})
		return
	}
	if ok, closed := h.streams.Enter(); !ok {
		h.refuse(w, r, unavailable(closed, "Sockets", "event streams"))
		return
	}
	defer h.streams.Leave()
	wakes := make(chan struct{}, 1)
	wake := func() {
		select {
		case wakes <- struct{}{}:
		default: // one is waiting
		}
	}
	// A browser that lost its line says where it was. (Server-Sent Events,
	// WHATWG HTML 9.2)
	sub, refused := h.subscribe(ctx, op, subscriber{by, r.Header.Get("Last-Event-ID"), wake})
	if refused != nil {
		h.serveEvents(w, r, &oneAnswer{appendErrors(nil, plan.Errors{refused})})
		return
	}
	s := &eventStream{stream: sub, client: r.Context(), credentials: ctx}
	var why error
	defer func() { s.leave(why) }() // also where the ResponseWriter panics
	hurry, once := make(chan struct{}), sync.Once{}
	defer h.streams.Stay(func() { s.leaving.Store(true); wake() }, func() {
		once.Do(func() { close(hurry) })
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(sse.Moment)) // what is being written may be stuck
	})()
	defer context.AfterFunc(ctx, wake)()
	share := newStayer(h.answers, func() { _ = http.NewResponseController(w).SetWriteDeadline(past) })
	defer h.answers.free(&share.hold)
	why = h.send(w, r, s, wakes, hurry, share.add)
	switch {
	case errors.Is(why, os.ErrDeadlineExceeded):
		// Nothing more could be said: the log has where the client stands.
		why = fmt.Errorf("%w: %w", gqlws.ErrCut, why)
		h.opts.Logger.InfoContext(ctx, "chaingql: event stream cut", slog.String("cursor", sub.cursor()), slog.Any("error", why))
	case why != nil && !errors.Is(why, sse.ErrNotFlushable):
		why = fmt.Errorf("%w: %w", gqlws.ErrGone, why)
	}
}

// serveEvents answers in events what is complete already.
func (h *Handler) serveEvents(w http.ResponseWriter, r *http.Request, s sse.Stream) {
	if err := h.send(w, r, s, nil, nil, nil); err != nil {
		h.opts.Logger.InfoContext(r.Context(), "chaingql: answer cut", slog.Any("error", err))
	}
}

// send writes a stream to its end. An error is that the connection could not
// take it.
func (h *Handler) send(w http.ResponseWriter, r *http.Request, s sse.Stream, wakes, hurry <-chan struct{}, count func(int) bool) error {
	err := sse.Serve(r.Context(), w, sse.Options{Heartbeat: h.opts.KeepAlive, WriteTimeout: streamWriteTimeout, Hurry: hurry, Count: count}, wakes, s)
	if errors.Is(err, sse.ErrNotFlushable) {
		h.refuse(w, r, &refusal{status: http.StatusInternalServerError, Error: h.mask(r.Context(), err)})
	}
	return err
}

// An eventStream is a subscription as event streams take it. Its events' ids
// are cursors, which a browser that lost its line hands back.
type eventStream struct {
	stream
	leaving     atomic.Bool     // the service goes away
	ended       error           // why this side ended it
	client      context.Context // ends when it has left
	credentials context.Context // ends with them, or with the client
}

func (s *eventStream) Next() (sse.Event, error) {
	switch {
	case s.client.Err() != nil:
		return sse.Event{}, s.client.Err()
	case s.leaving.Load():
		return s.endFor(gqlws.ErrShutdown, shuttingDown().Error)
	case s.credentials.Err() != nil:
		return s.endFor(gqlws.ErrExpired, &plan.Error{Message: "Session expired", Code: codeUnavailable})
	}
	id, answer, err := s.next()
	var end *ending
	if errors.As(err, &end) {
		return s.end(end)
	}
	return sse.Event{ID: id, Data: answer}, err
}

// leave closes the stream, because of what this side said or of what happened to
// the connection.
func (s *eventStream) leave(why error) {
	if s.ended != nil {
		why = s.ended
	}
	s.close(why)
}

// endFor ends the stream because of something else, unless it has an end of its
// own already.
func (s *eventStream) endFor(why error, told *plan.Error) (sse.Event, error) {
	if end := s.pending(); end != nil {
		return s.end(end)
	}
	s.ended = why
	return s.end(endAt(told, s.cursor(), true))
}

// end tells why the stream ends and, to a client that may come back, where it
// stands: blocks that did not match are behind it too.
func (s *eventStream) end(e *ending) (sse.Event, error) {
	end := &sse.End{Data: appendErrors(nil, plan.Errors{e.told}), Final: !e.lost}
	if e.lost {
		end.ID = e.cursor
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
