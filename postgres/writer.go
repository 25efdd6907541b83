package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"sync/atomic"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrConflict is returned by [Writer.Append] and [Writer.Commit] if the chain contains a
// different block with the same cursor. It is also returned if the chain lacks a block but
// contains newer ones: readers that have passed its cursor would never receive the block.
//
// ErrConflict is also returned if the chain has lost blocks that this Backend stored and
// the new blocks would leave a gap. A chain loses blocks if a standby server without them
// takes over or a backup is restored. In this case, append blocks again, beginning with the
// chain's newest block; the Writer's following calls continue from there. If the chain lost
// all blocks, every Append fails until the Backend is opened again.
var ErrConflict = errors.New("conflict with stored blocks")

// A Writer adds blocks and balances to a chain. [Backend.Writer] returns a Writer. Its
// methods are safe for concurrent use, and Writers of several processes may write to one
// chain: a lock serializes their transactions, so that blocks become visible in cursor order.
type Writer struct {
	b        *Backend
	chain    *chain
	temp     bool                            // the role may create temporary tables
	previous atomic.Pointer[chaingql.Cursor] // last block of the previous successful Append
}

// Writer returns a Writer of the Backend's chain. It returns an error if the role has no
// permission to write or the server is a read-only replica. The Writer uses the
// Backend's connections, so it stops working when the Backend is closed. If the chain is
// dropped and created again, all calls fail with an error that matches
// [chaingql.ErrChainReplaced].
func (b *Backend) Writer(ctx context.Context) (*Writer, error) {
	c := b.chain.Load()
	var replica, may, temp bool
	err := b.read(ctx, "open a writer", func(ctx context.Context) error {
		return b.pool.QueryRow(ctx, `SELECT pg_is_in_recovery(), has_table_privilege($1, 'INSERT') AND
			has_table_privilege($2, 'INSERT') AND has_table_privilege($2, 'UPDATE'),
			has_database_privilege(current_database(), 'TEMP')`, b.tables.blocks, b.tables.accounts).
			Scan(&replica, &may, &temp)
	})
	switch {
	case err != nil:
		return nil, err
	case replica:
		return nil, errors.New("postgres: the server is a read-only replica: a Writer needs the primary")
	case !may:
		return nil, fmt.Errorf("postgres: the role may not write to schema %q: it needs INSERT on blocks, "+
			"INSERT and UPDATE on accounts; to prune, it also needs DELETE on blocks and UPDATE on chaingql_state",
			b.opts.Schema)
	}
	return &Writer{b: b, chain: c, temp: temp}, nil
}

// Append commits blocks in one transaction. Their cursors must ascend. A new block must
// have a greater cursor than every block that the chain ever had.
//
// Append skips blocks that are already stored or were pruned, so an indexer may append
// blocks again. If the stored block is different, Append returns [ErrConflict]. Times are
// stored with microsecond precision. Batches of 1,000 to 10,000 blocks are the fastest.
func (w *Writer) Append(ctx context.Context, blocks ...chaingql.Block) error {
	return w.Commit(ctx, blocks, nil)
}

// SetBalance sets the balance of an account in nano-units. It must be at least 0 and less
// than 10^78. An account with balance 0 exists: Balance does not return
// [chaingql.ErrNotFound] for it.
func (w *Writer) SetBalance(ctx context.Context, addr chaingql.Address, nano *big.Int) error {
	return w.Commit(ctx, nil, map[chaingql.Address]*big.Int{addr: nano})
}

// SetBalances sets the balances of several accounts in one transaction.
func (w *Writer) SetBalances(ctx context.Context, balances map[chaingql.Address]*big.Int) error {
	return w.Commit(ctx, nil, balances)
}

// Commit appends blocks and sets balances in one transaction, so no reader sees a block
// without its balances. After some errors, for example a lost connection or an exceeded
// deadline, it is unknown whether the transaction was committed. Then repeat the same call.
//
// If blocks is not empty and all of them are already stored, Commit skips the balances too:
// they were stored with the blocks, and newer balances may have been stored since.
func (w *Writer) Commit(ctx context.Context, blocks []chaingql.Block, balances map[chaingql.Address]*big.Int) error {
	for i, b := range blocks {
		if b.Cursor == "" || checkCursor(b.Cursor) != nil {
			return fmt.Errorf("postgres: block %d of %d has cursor %.80q: %w", i+1, len(blocks), b.Cursor,
				chaingql.ErrBadCursor)
		}
		if !isStorable(b.Time) {
			return fmt.Errorf("postgres: block %d of %d has a time outside the years 1 to 9999", i+1, len(blocks))
		}
		if i > 0 && b.Cursor <= blocks[i-1].Cursor {
			return fmt.Errorf("postgres: block %d of %d has cursor %q, which is not after %q",
				i+1, len(blocks), b.Cursor, blocks[i-1].Cursor)
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
		last := blocks[len(blocks)-1].Cursor
		w.previous.Store(&last)
		w.b.recordNewest(w.chain.id, last)
		w.analyze(ctx, len(blocks))
	}
	return err
}

// analyzeAfter is the number of stored blocks after which a Backend refreshes the planner's
// statistics for the first time.
const analyzeAfter = 100_000

// analyze refreshes the planner's statistics after a large load, each time the number of blocks
// that this Backend stored has doubled. Pages do not need them, but an operator's own queries do.
// Errors are ignored, because the role may not own the table, or autovacuum may have locked it.
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

// transact runs do in a transaction with a deadline of [Options].WriteTimeout. If the
// transaction cannot begin because a connection is broken or its server is a read-only
// replica, it begins on another one.
//
// If inTurn is true, only one transaction of this Backend runs at a time. The others wait
// without a connection, so that at most one connection of the pool, which readers also use,
// is occupied by waiting for Writers of other processes.
func (w *Writer) transact(ctx context.Context, what string, inTurn bool, do func(context.Context, pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, w.b.opts.WriteTimeout)
	defer cancel()
	if inTurn {
		select {
		case w.b.writerSem <- struct{}{}:
			defer func() { <-w.b.writerSem }()
		case <-ctx.Done():
			return failed(what, ctx.Err())
		}
	}
	begin := writing(w.b.opts.WriteTimeout)
	tx, err := w.b.pool.BeginTx(ctx, begin)
	if (isBroken(err) || isReplica(err)) && ctx.Err() == nil {
		if isBroken(err) {
			w.b.pool.Reset()
		} else {
			w.b.leaveReplica()
		}
		tx, err = w.b.pool.BeginTx(ctx, begin)
	}
	if err != nil {
		return failed(what, err)
	}
	if err := do(ctx, tx); err != nil {
		_ = tx.Rollback(ctx) // if Rollback fails, pgx closes the connection
		return w.b.noticed(ctx, w.chain, failed(what, withDeadline(ctx, err)))
	}
	if err := tx.Commit(ctx); err != nil {
		return failed(what, withDeadline(ctx, err))
	}
	return nil
}

// leaveInterval is the minimum time between two calls of Reset in leaveReplica.
var leaveInterval = time.Second

// leaveReplica resets the pool, because the name of the primary may have pointed to a replica for a moment. If the
// server remains a replica, each write fails, and more frequent resets would slow down the readers.
func (b *Backend) leaveReplica() {
	b.left.Lock() // concurrent calls wait until the pool is reset
	defer b.left.Unlock()
	if time.Since(b.left.at) >= leaveInterval {
		b.pool.Reset()
		b.left.at = time.Now()
	}
}

// withDeadline adds the error of ctx to err if PostgreSQL canceled a statement. If the deadline has
// passed but ctx is not done yet, it adds context.DeadlineExceeded: a process that was paused may
// receive PostgreSQL's error before its own timer fires.
func withDeadline(ctx context.Context, err error) error {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || pgErr.Code != "57014" {
		return err
	}
	deadline, _ := ctx.Deadline()
	if ctx.Err() == nil && !time.Now().Before(deadline) {
		return errors.Join(context.DeadlineExceeded, err)
	}
	return errors.Join(ctx.Err(), err)
}

// recordNewest records that c was stored in a chain, and returns the newest cursor that this Backend has stored there.
func (b *Backend) recordNewest(chain string, c chaingql.Cursor) chaingql.Cursor {
	s := &b.stored
	s.Lock()
	defer s.Unlock()
	if s.chain != chain {
		s.chain, s.newest = chain, ""
	}
	s.newest = max(s.newest, c)
	return s.newest
}
