package chaingql

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/chaingql/chaingql/internal/plan"
	"github.com/chaingql/chaingql/internal/sse"
)

// serveStream answers a subscription with a stream of events until the client
// leaves, ctx is done (its credentials expired), or the service goes away.
func (h *Handler) serveStream(ctx context.Context, w http.ResponseWriter, r *http.Request, op *plan.Bound) {
	if r.Method == http.MethodHead {
		// Its body is never sent, so no write would tell that the client left.
		h.serveEvents(w, r, &oneAnswer{})
		return
	}
	if ok, closed := h.streams.enter(); !ok {
		h.refuse(w, r, unavailable(closed, "event streams"))
		return
	}
	defer h.streams.leave()
	wakes := make(chan struct{}, 1)
	wake := func() {
		select {
		case wakes <- struct{}{}:
		default: // one is waiting
		}
	}
	// A browser that lost its line says where it was. (Server-Sent Events,
	// WHATWG HTML 9.2)
	sub, err := h.subscribe(op, r.Header.Get("Last-Event-ID"), wake)
	if err != nil {
		h.serveEvents(w, r, &oneAnswer{appendErrors(nil, plan.Errors{err})})
		return
	}
	defer sub.reader.Close()
	defer context.AfterFunc(h.ctx, wake)()
	h.send(ctx, w, r, wakes, eventStream{sub, h.ctx})
}

// serveEvents answers in events what is complete already.
func (h *Handler) serveEvents(w http.ResponseWriter, r *http.Request, s sse.Stream) {
	h.send(r.Context(), w, r, nil, s)
}

func (h *Handler) send(ctx context.Context, w http.ResponseWriter, r *http.Request, wakes <-chan struct{}, s sse.Stream) {
	err := sse.Serve(ctx, w, sse.Options{Heartbeat: h.opts.KeepAlive, WriteTimeout: streamWriteTimeout}, wakes, s)
	switch {
	case err == nil:
	case errors.Is(err, sse.ErrNotFlushable):
		h.refuse(w, r, &refusal{http.StatusInternalServerError, h.mask(r.Context(), err)})
	default:
		h.opts.Logger.InfoContext(r.Context(), "chaingql: event stream cut", slog.Any("error", err))
	}
}
