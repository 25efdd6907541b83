package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// pruneStep is the maximum number of blocks that one transaction deletes. It limits the
// time for which other Writers wait.
const pruneStep = 10_000

// If another program has locked the blocks to delete, for example with a DELETE that takes minutes, a transaction of
// Prune ends after pruneWait, so that other Writers can work, and is repeated after prunePause. pruneWait is less than
// the default deadlock_timeout of 1 s, so that PostgreSQL does not end the other program's transaction either.
const (
	pruneWait  = 100 * time.Millisecond
	prunePause = 500 * time.Millisecond
)

// Prune deletes all blocks with a cursor less than before. It always keeps the newest
// block of the chain, because Follow continues from that block. After Prune, a read from a
// cursor below the newest deleted block fails with [chaingql.ErrCursorTooOld], and so does
// a running Follow that has not reached that block.
//
// Prune deletes the oldest blocks first and uses several transactions. If another program keeps
// these blocks locked, Prune waits for at most [Options].WriteTimeout. After an error, the call
// may be repeated.
func (w *Writer) Prune(ctx context.Context, before chaingql.Cursor) error {
	if err := checkCursor(before); err != nil {
		return err
	}
	for begun := time.Now(); ; {
		more := false
		err := w.transact(ctx, "prune", true, func(ctx context.Context, tx pgx.Tx) (err error) {
			more, err = w.pruneSome(ctx, tx, before)
			return err
		})
		var pgErr *pgconn.PgError
		if errors.As(err, &pgErr) && pgErr.Code == "55P03" && time.Since(begun) < w.b.opts.WriteTimeout {
			select { // another program has locked the blocks
			case <-time.After(prunePause):
				continue
			case <-ctx.Done():
			}
		}
		if err != nil || !more {
			return err
		}
		begun = time.Now()
	}
}

// pruneSome deletes up to pruneStep of the oldest blocks and records the cursor of the
// newest deleted block in the same transaction. It searches from the recorded cursor,
// because an index scan from the beginning would step over rows that were deleted but not
// vacuumed. more is false if no blocks are left to delete.
func (w *Writer) pruneSome(ctx context.Context, tx pgx.Tx, before chaingql.Cursor) (more bool, err error) {
	newest, pruned, err := w.lock(ctx, tx)
	if err != nil {
		return false, err
	}
	before = min(before, newest)
	limit := fmt.Sprintf("SET LOCAL lock_timeout = %d; ", pruneWait.Milliseconds())
	if _, err := tx.Exec(ctx, limit+settingsSQL); err != nil {
		return false, err
	}
	var (
		n     int
		floor chaingql.Cursor
	)
	err = tx.QueryRow(ctx, "SELECT count(*), coalesce(max(cursor), '') FROM (SELECT cursor FROM "+w.b.tables.blocks+
		" WHERE cursor > $1 AND cursor < $2 ORDER BY cursor LIMIT $3) oldest",
		string(pruned), string(before), pruneStep).Scan(&n, &floor)
	if err != nil || n == 0 {
		return false, err
	}
	// A trigger sets pruned after each DELETE. Setting it first saves the trigger a search for older blocks.
	// An operator may have deleted more blocks meanwhile.
	set := "UPDATE " + w.b.tables.state + " SET pruned = $1 WHERE pruned < $1"
	if _, err := tx.Exec(ctx, set, string(floor)); err != nil {
		return false, err
	}
	_, err = tx.Exec(ctx, "DELETE FROM "+w.b.tables.blocks+" WHERE cursor > $1 AND cursor <= $2",
		string(pruned), string(floor))
	return n == pruneStep, err
}
