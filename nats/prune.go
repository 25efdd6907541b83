package natschain

import (
	"context"
	"errors"

	"github.com/chaingql/chaingql"
	"github.com/nats-io/nats.go/jetstream"
)

var errDenied = errors.New("the stream denies purging, which NATS cannot undo: pruning needs a new stream without deny_purge")

// Prune deletes all blocks below a cursor, except the newest block, which shows where
// the chain continues. After that, reads from a cursor below the newest deleted block
// return [chaingql.ErrCursorTooOld], and a running Follow that has not reached that
// block ends with it. With the cursor "", Prune deletes nothing and only reports
// whether pruning is permitted. After an error it may be called again. Prune also
// deletes the index of those blocks, and logs a warning if that fails.
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
	keep := uint64(1) // deletes nothing
	if before != "" {
		at, err := w.b.search(ctx, before)
		if err != nil {
			return failed("prune", err)
		}
		newest, found, _, err := w.b.tail(ctx)
		if err != nil || !found {
			return failed("prune", err)
		}
		keep = min(at.end(before), newest.seq)
	}
	err = w.b.retry(ctx, func(ctx context.Context) error {
		s, err := w.b.js.Stream(ctx, w.b.names.stream)
		if err != nil {
			return err
		}
		return s.Purge(ctx, jetstream.WithPurgeSequence(max(keep, 1)))
	})
	if err == nil {
		w.pruneIndex(ctx, keep)
	}
	return failed("prune", w.b.permissionError(err))
}
