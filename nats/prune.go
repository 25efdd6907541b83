package natschain

import (
	"context"
	"errors"

	"github.com/chaingql/chaingql"
	"github.com/nats-io/nats.go/jetstream"
)

var errDenied = errors.New("the stream denies it: set deny_purge to false")

// Prune drops all blocks below a cursor, but never the newest block, which tells
// where the chain goes on. From then on, reading on from a cursor below the newest
// block that was dropped is [chaingql.ErrCursorTooOld], and a running Follow that
// has yet to reach that block ends with it. With the cursor "" it drops nothing,
// and tells whether it could. After an error it may be called again. It also drops
// what the index has of those blocks, and logs a warning if it may not.
func (w *Writer) Prune(ctx context.Context, before chaingql.Cursor) error {
	if err := checkCursor(before); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, w.b.opts.WriteTimeout)
	defer cancel()
	info, err := w.b.info(ctx, w.b.names.stream)
	switch {
	case err != nil:
		return failed("prune", err)
	case info.Config.DenyPurge || info.Config.Sealed:
		return failed("prune", errDenied)
	}
	keep := uint64(1) // drops nothing
	if before != "" {
		at, err := w.b.search(ctx, before)
		if err != nil {
			return failed("prune", err)
		}
		newest, some, _, err := w.b.tail(ctx)
		if err != nil || !some {
			return failed("prune", err)
		}
		keep = min(at.end(before), newest.seq)
	}
	err = w.b.try(ctx, func(ctx context.Context) error {
		s, err := w.b.js.Stream(ctx, w.b.names.stream)
		if err != nil {
			return err
		}
		return s.Purge(ctx, jetstream.WithPurgeSequence(max(keep, 1)))
	})
	if err == nil {
		w.pruneIndex(ctx, keep)
	}
	return failed("prune", w.b.denied(err))
}
