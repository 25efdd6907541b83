package natschain

import (
	"context"
	"errors"

	"github.com/chaingql/chaingql"
	"github.com/nats-io/nats.go/jetstream"
)

var errDenied = errors.New("the stream does not allow purging, because deny_purge is set or it is sealed: " +
	"NATS cannot undo this, so pruning needs a new stream")

// Prune deletes all blocks whose cursors are below before. It never deletes the newest
// block, because that block shows where the chain continues. After Prune, reads from a
// cursor below the newest deleted block return [chaingql.ErrCursorTooOld]. A running
// Follow that has not yet reached the newest deleted block ends with the same error.
//
// If before is "", Prune deletes nothing and only reports whether pruning is permitted.
// After an error, Prune may be called again. Prune also deletes the index nodes of the
// deleted blocks, and only logs a warning if that fails.
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
	case epochOf(info.Created, info.Config.Metadata) != *w.epoch:
		return failed("prune", errNewStream)
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
	since := w.b.nc.LastError()
	err = w.b.retry(ctx, func(ctx context.Context) error {
		s, err := w.b.js.Stream(ctx, w.b.names.stream)
		if err != nil {
			return err
		}
		if info := s.CachedInfo(); epochOf(info.Created, info.Config.Metadata) != *w.epoch {
			return errNewStream // keep is the sequence number of another message
		}
		if keep <= 1 { // NATS before 2.12.10 would delete all messages
			return s.Purge(ctx, jetstream.WithPurgeSubject(w.b.names.subject+"none"))
		}
		return s.Purge(ctx, jetstream.WithPurgeSequence(keep))
	})
	if err == nil {
		w.pruneIndex(ctx, keep)
	}
	return failed("prune", w.b.permissionError(since, err))
}
