package postgres

import (
	"context"
	"errors"

	"github.com/chaingql/chaingql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// pruneStep is how many blocks are dropped in one transaction: other Writers
// wait for no longer than that takes.
const pruneStep = 10_000

// Prune drops all blocks below a cursor but the newest of the chain, which is always kept: it is the
// position from which Follow continues. From then on, reading on from a cursor
// below the newest block that was dropped is [chaingql.ErrCursorTooOld], and a
// running Follow that has yet to reach that block ends with it. It works from
// the oldest up in several transactions; after an error it may be called again.
func (w *Writer) Prune(ctx context.Context, before chaingql.Cursor) error {
	if err := checkCursor(before); err != nil {
		return err
	}
	for more, deadlocks := true, 0; more; {
		err := w.transact(ctx, "prune", true, func(ctx context.Context, tx pgx.Tx) (err error) {
			more, err = w.pruneSome(ctx, tx, before)
			return err
		})
		var told *pgconn.PgError
		if errors.As(err, &told) && told.Code == "40P01" && deadlocks < 10 {
			deadlocks++ // with a DELETE of the same blocks by another program, which has ended or goes on
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// pruneSome drops the oldest blocks, and keeps how far that went with them. It
// starts where the last one ended: what that dropped is still in the way until
// it is vacuumed.
func (w *Writer) pruneSome(ctx context.Context, tx pgx.Tx, before chaingql.Cursor) (more bool, err error) {
	newest, pruned, err := w.turn(ctx, tx)
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
		" WHERE cursor > $1 AND cursor < $2 ORDER BY cursor LIMIT $3) oldest", string(pruned), string(before), pruneStep).Scan(&n, &floor)
	if err != nil || n == 0 {
		return false, err
	}
	// A trigger moves pruned with each DELETE. Moved before, it need not look for older blocks.
	if _, err := tx.Exec(ctx, "UPDATE "+w.b.tables.state+" SET pruned = $1", string(floor)); err != nil {
		return false, err
	}
	_, err = tx.Exec(ctx, "DELETE FROM "+w.b.tables.blocks+" WHERE cursor > $1 AND cursor <= $2", string(pruned), string(floor))
	return n == pruneStep, err
}
