package postgres

import (
	"context"
	"errors"

	"github.com/chaingql/chaingql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// pruneStep is the maximum number of blocks that one transaction deletes. It limits the
// time for which other Writers wait.
const pruneStep = 10_000

// Prune deletes all blocks with a cursor less than before. It always keeps the newest
// block of the chain, because Follow continues from that block. After Prune, a read from a
// cursor below the newest deleted block fails with [chaingql.ErrCursorTooOld], and so does
// a running Follow that has not reached that block.
//
// Prune deletes the oldest blocks first and uses several transactions. After an error, the
// call may be repeated.
func (w *Writer) Prune(ctx context.Context, before chaingql.Cursor) error {
	if err := checkCursor(before); err != nil {
		return err
	}
	for deadlocks := 0; ; {
		more := false
		err := w.transact(ctx, "prune", true, func(ctx context.Context, tx pgx.Tx) (err error) {
			more, err = w.pruneSome(ctx, tx, before)
			return err
		})
		var pgErr *pgconn.PgError
		if errors.As(err, &pgErr) && pgErr.Code == "40P01" && deadlocks < 10 {
			deadlocks++ // another program deletes the same blocks: retry
			continue
		}
		if err != nil || !more {
			return err
		}
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
	if _, err := tx.Exec(ctx, planSQL); err != nil {
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
