package chaingql

import (
	"context"
	"net/http"

	"github.com/chaingql/chaingql/internal/plan"
)

// An exchange is the room that serving one request takes, to be used again for
// another.
type exchange struct {
	body   []byte
	scan   scan
	asked  request
	bound  plan.Bound
	call   call
	answer []byte
}

// maxPooled keeps one large body or answer from being held for ever.
const maxPooled = 256 << 10

// answerTo runs a query and sends its answer. The exchange is over then; one
// that ends otherwise is left to the garbage collector, with those who may still
// look at it.
func (h *Handler) answerTo(ctx context.Context, w http.ResponseWriter, r *http.Request, op *plan.Bound, by asker, media string, x *exchange) {
	var f freshness
	cacheable := r.Method != http.MethodPost
	if cacheable {
		f = h.fresh(op, media, by.project)
		if final, known := f.known(r.Header); known {
			notModified(w, f, final)
			h.release(x)
			return
		}
	}
	x.call.host, x.call.path, x.call.op, x.call.lasting = r.Host, requestPath(r), op, cacheable
	x.answer = h.run(ctx, &x.call, by, x.answer[:0])
	status := http.StatusOK
	if x.call.busy { // what is missing is worth asking for again
		status = http.StatusServiceUnavailable
		w.Header().Set("Retry-After", "1")
	}
	switch {
	case x.call.failed:
		w.Header()["Cache-Control"] = noStore
	case cacheable:
		f.keep(w.Header(), x.call.lasting)
	}
	h.write(w, r, status, media, x.answer)
	h.release(x)
}

// release gives an exchange back.
func (h *Handler) release(x *exchange) {
	if cap(x.body)+cap(x.answer) > maxPooled {
		return
	}
	x.call = call{}
	x.bound.Release()
	x.scan.release()
	h.exchanges.Put(x)
}
