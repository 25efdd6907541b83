package chaingql

import (
	"context"
	"time"

	"github.com/chaingql/chaingql/internal/plan"
)

// Subscribe is a subscription without a transport: what it keeps is nothing but
// its own.
func (h *Handler) Subscribe(document string, variables map[string]any) (stop func(), err error) {
	op, errs := h.plans.Prepare(document, "", variables)
	if errs != nil {
		return nil, errs
	}
	s, refused := h.subscribe(context.Background(), op, subscriber{wake: func() {}})
	if refused != nil {
		return nil, plan.Errors{refused}
	}
	return func() { s.close(nil) }, nil
}

// Retained is what all subscriptions are held to keep.
func (h *Handler) Retained() (count, bytes int) {
	h.retained.mu.Lock()
	defer h.retained.mu.Unlock()
	return h.retained.count, h.retained.bytes
}

// Feeds is how many evaluations a new block costs.
func (h *Handler) Feeds() int { return h.blocks.Stats().Feeds }

// Guests is how many event streams are under way.
func (h *Handler) Guests() int { return h.streams.Staying() }

// Defaults are the options in force where none is set.
func Defaults() Options { return Options{}.withDefaults() }

// Fixed are the times that no option changes, in the order of docs/limits.md.
var Fixed = []time.Duration{initTimeout, unusedTimeout, frameTimeout, socketWriteTimeout, streamWriteTimeout}

// Pending is the number of bytes that are counted for bodies and for answers.
func (h *Handler) Pending() (bodies, answers int) {
	used := func(b *budget) int {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.used
	}
	return used(h.bodies), used(h.answers)
}
