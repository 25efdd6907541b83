package chaingql

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"

	"github.com/chaingql/chaingql/internal/plan"
	"github.com/chaingql/chaingql/internal/xsync"
)

// mask turns an error that is not for clients into one that is: they see an id,
// under which the log has the rest.
func (h *Handler) mask(ctx context.Context, err error) *plan.Error {
	if own, ok := ctx.(*xsync.Timeout); ok && own.Expired() { // of a host's field
		if own.FirstReport() { // or a field nested in it has reported it
			h.events.limit(own.Parent(), "BackendTimeout")
		}
		return late()
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		// The client left, or its time ran out: nothing is wrong here.
		return &plan.Error{Message: "The operation was cancelled.", Code: codeTimeout}
	}
	var raw [8]byte
	_, _ = rand.Read(raw[:]) // never fails
	id := hex.EncodeToString(raw[:])
	h.opts.Logger.ErrorContext(ctx, "chaingql: internal error", slog.String("id", id), slog.Any("error", err))
	return &plan.Error{Message: "Internal server error", Code: plan.CodeInternal, Details: map[string]string{"id": id}}
}

// recover answers a request whose handling panicked, in the host's code or in
// ours: the process lives.
func (h *Handler) recover(w http.ResponseWriter, r *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler {
		panic(p) // net/http's own way to say goodbye
	}
	e := h.mask(context.WithoutCancel(r.Context()), fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
	h.turnAway(w, r, &refusal{status: http.StatusInternalServerError, Error: e})
}

// late is what a client is told of what took longer than a call may.
func late() *plan.Error {
	return &plan.Error{Message: "The chain's data did not come in time.", Code: codeTimeout}
}
