package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrConflict is returned by [Writer.Append] if the chain holds a different block under a cursor, or newer blocks and
// none under it: a block that appears below a cursor that was already read would never be seen. It is also returned if
// the chain lost blocks that this Backend stored (a standby without them took over, or a backup was restored) and the
// given blocks begin after its newest block: append again, beginning with its newest block. If it lost all blocks,
// every Append fails until the Backend is opened again.
var ErrConflict = errors.New("it conflicts with what is stored")

// A Writer fills a chain. Get one from [Backend.Writer]; its methods may be
// called concurrently, and any number of Writers in any number of processes may
// write to one chain: they take turns, so that readers see blocks appear in
// cursor order alone.
type Writer struct {
	b    *Backend
	temp bool // the role may create temporary tables
}

// Writer returns a Writer of the Backend's chain, or an error where the role
// may not write, or the server is a read-only replica. The Writer uses the
// Backend's connections and ends with its Close.
func (b *Backend) Writer(ctx context.Context) (*Writer, error) {
	var replica, may, temp bool
	err := b.read(ctx, "open a writer", func(ctx context.Context) error {
		return b.pool.QueryRow(ctx, `SELECT pg_is_in_recovery(), has_table_privilege($1, 'INSERT') AND has_table_privilege($2, 'INSERT') AND has_table_privilege($2, 'UPDATE'),
			has_database_privilege(current_database(), 'TEMP')`, b.tables.blocks, b.tables.accounts).Scan(&replica, &may, &temp)
	})
	switch {
	case err != nil:
		return nil, err
	case replica:
		return nil, errors.New("postgres: the server is a read-only replica: a Writer needs the primary")
	case !may:
		return nil, fmt.Errorf("postgres: the role may not write to schema %q: it needs INSERT on blocks, INSERT and UPDATE on accounts; to prune, DELETE on blocks and UPDATE on chaingql_state", b.opts.Schema)
	}
	return &Writer{b, temp}, nil
}

// Append commits blocks, in one transaction: all of them or, on error, none.
// They must ascend by cursor, and past every block that the chain ever had,
// with one exception that lets an indexer go on where it does not know how far
// it came: blocks that are stored already, and equal, are passed over, as are
// those that were pruned. [ErrConflict] is for one that differs. Times are kept
// to the microsecond. Batches of 1,000 to 10,000 are the fastest.
func (w *Writer) Append(ctx context.Context, blocks ...chaingql.Block) error {
	return w.Commit(ctx, blocks, nil)
}

// SetBalance gives an account a balance in nano-units, from 0 to below 10^78.
// An account with a balance of zero is known all the same.
func (w *Writer) SetBalance(ctx context.Context, addr chaingql.Address, nano *big.Int) error {
	return w.Commit(ctx, nil, map[chaingql.Address]*big.Int{addr: nano})
}

// SetBalances is SetBalance for many accounts, in one transaction.
func (w *Writer) SetBalances(ctx context.Context, balances map[chaingql.Address]*big.Int) error {
	return w.Commit(ctx, nil, balances)
}

// Commit is Append and SetBalances in one transaction: no reader sees a block
// without the balances that came with it. It may be called again where its
// error does not tell whether it was done: a lost connection, a deadline. Where
// all of the blocks were stored already the balances are passed over as well:
// they came with the blocks, and later ones may have come since, from another
// indexer or before a restart.
func (w *Writer) Commit(ctx context.Context, blocks []chaingql.Block, balances map[chaingql.Address]*big.Int) error {
	for i, b := range blocks {
		if b.Cursor == "" || checkCursor(b.Cursor) != nil {
			return fmt.Errorf("postgres: block %d of %d has cursor %.80q: %w", i+1, len(blocks), b.Cursor, chaingql.ErrBadCursor)
		}
		if i > 0 && b.Cursor <= blocks[i-1].Cursor {
			return fmt.Errorf("postgres: block %d of %d has cursor %q, which is not past %q", i+1, len(blocks), b.Cursor, blocks[i-1].Cursor)
		}
	}
	accounts, err := accountsOf(balances)
	if err != nil {
		return err
	}
	if len(blocks) == 0 && len(balances) == 0 {
		return nil
	}
	err = w.transact(ctx, "write", len(blocks) > 0, func(ctx context.Context, tx pgx.Tx) error {
		return w.commit(ctx, tx, blocks, accounts)
	})
	if err == nil && len(blocks) > 0 {
		w.b.has(blocks[len(blocks)-1].Cursor)
		w.analyze(ctx, len(blocks))
	}
	return err
}

// analyzeAfter is the number of blocks after which a Backend first refreshes statistics.
const analyzeAfter = 100_000

// analyze refreshes the planner's statistics after a large load, each time the number of blocks that
// this Backend stored has doubled. Pages do not need them, other queries of the operator do. It may
// fail, or be skipped because the role does not own the table or autovacuum is at it: the blocks are
// stored, so that is no error.
func (w *Writer) analyze(ctx context.Context, n int) {
	s := &w.b.stored
	s.Lock()
	s.blocks += n
	due := s.blocks >= max(s.analyze, analyzeAfter)
	if due {
		s.analyze = 2 * s.blocks
	}
	s.Unlock()
	if due {
		ctx, cancel := context.WithTimeout(ctx, w.b.opts.WriteTimeout)
		defer cancel()
		_, _ = w.b.pool.Exec(ctx, "ANALYZE (SKIP_LOCKED) "+w.b.tables.blocks)
	}
}

// transact gives a transaction its deadline. One that could not begin on a
// connection that turned out to be broken begins anew on another. Those that will
// wait for a turn queue here first: of all the Writers of a Backend one waits for
// those elsewhere, with one of the connections that readers need too.
func (w *Writer) transact(ctx context.Context, what string, inTurn bool, do func(context.Context, pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, w.b.opts.WriteTimeout)
	defer cancel()
	if inTurn {
		select {
		case w.b.turns <- struct{}{}:
			defer func() { <-w.b.turns }()
		case <-ctx.Done():
			return failed(what, ctx.Err())
		}
	}
	begin := writing(w.b.opts.WriteTimeout)
	tx, err := w.b.pool.BeginTx(ctx, begin)
	if broken(err) && ctx.Err() == nil {
		w.b.pool.Reset()
		tx, err = w.b.pool.BeginTx(ctx, begin)
	}
	if err != nil {
		return failed(what, err)
	}
	if err := do(ctx, tx); err != nil {
		_ = tx.Rollback(ctx) // where that fails the connection is closed
		return failed(what, overdue(ctx, err))
	}
	if err := tx.Commit(ctx); err != nil {
		return failed(what, overdue(ctx, err))
	}
	return nil
}

// overdue adds the reason to the error of a statement that PostgreSQL ended because ctx did. A process that was stopped
// for a while may receive that error before its own deadline is noticed.
func overdue(ctx context.Context, err error) error {
	var told *pgconn.PgError
	if !errors.As(err, &told) || told.Code != "57014" {
		return err
	}
	deadline, _ := ctx.Deadline()
	if ctx.Err() == nil && !time.Now().Before(deadline) {
		return errors.Join(context.DeadlineExceeded, err)
	}
	return errors.Join(ctx.Err(), err)
}

// has notes a block that is stored, and returns the newest that was.
func (b *Backend) has(c chaingql.Cursor) chaingql.Cursor {
	b.stored.Lock()
	defer b.stored.Unlock()
	b.stored.newest = max(b.stored.newest, c)
	return b.stored.newest
}
