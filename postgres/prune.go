package postgres

import (
	"context"

	"github.com/chaingql/chaingql"
	"github.com/jackc/pgx/v5"
)

// pruneStep is how many blocks are dropped in one transaction: other Writers
// wait for no longer than that takes.
const pruneStep = 10_000

// Prune drops all blocks below a cursor. From then on, reading on from a cursor
// below the newest block that was dropped is [chaingql.ErrCursorTooOld], and a
// running Follow that has yet to reach that block ends with it. It works from
// the oldest up in several transactions; after an error it may be called again.
func (w *Writer) Prune(ctx context.Context, before chaingql.Cursor) error {
	if err := checkCursor(before); err != nil {
		return err
	}
	for more := true; more; {
		err := w.transact(ctx, "prune", true, func(ctx context.Context, tx pgx.Tx) (err error) {
			more, err = w.pruneSome(ctx, tx, before)
			return err
		})
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
	_, pruned, err := w.turn(ctx, tx)
	if err != nil {
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
	if _, err := tx.Exec(ctx, "DELETE FROM "+w.b.tables.blocks+" WHERE cursor > $1 AND cursor <= $2", string(pruned), string(floor)); err != nil {
		return false, err
	}
	_, err = tx.Exec(ctx, "UPDATE "+w.b.tables.state+" SET pruned = $1", string(floor))
	return n == pruneStep, err
}
