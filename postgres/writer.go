package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/jackc/pgx/v5"
)

// ErrConflict is returned by [Writer.Append] where the chain holds a different
// block under a cursor, or newer blocks and none under it: a block that appears
// below a cursor which was already read would never be seen. And where the chain
// has lost blocks that this Backend stored (another server took over that did not
// have them, a backup was restored), and those given come behind them: append
// from its newest block on.
var ErrConflict = errors.New("it conflicts with what is stored")

// A Writer fills a chain. Get one from [Backend.Writer]; its methods may be
// called concurrently, and any number of Writers in any number of processes may
// write to one chain: they take turns, so that readers see blocks appear in
// cursor order alone.
type Writer struct{ b *Backend }

// Writer returns a Writer of the Backend's chain, or an error where the role
// may not write, or the server is a read-only replica. The Writer uses the
// Backend's connections and ends with its Close.
func (b *Backend) Writer(ctx context.Context) (*Writer, error) {
	var replica, may bool
	err := b.read(ctx, "open a writer", func(ctx context.Context) error {
		return b.pool.QueryRow(ctx, `SELECT pg_is_in_recovery(), has_table_privilege($1, 'INSERT') AND has_table_privilege($2, 'INSERT') AND has_table_privilege($2, 'UPDATE')`,
			b.tables.blocks, b.tables.accounts).Scan(&replica, &may)
	})
	switch {
	case err != nil:
		return nil, err
	case replica:
		return nil, errors.New("postgres: the server is a read-only replica: a Writer needs the primary")
	case !may:
		return nil, fmt.Errorf("postgres: the role may not write to schema %q: it needs INSERT on blocks, INSERT and UPDATE on accounts; to prune, DELETE on blocks and UPDATE on chaingql_state", b.opts.Schema)
	}
	return &Writer{b}, nil
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
		if len(blocks) > 0 {
			if fresh, err := w.append(ctx, tx, blocks); err != nil || fresh == 0 {
				return err
			}
		}
		if len(balances) > 0 {
			_, err := tx.Exec(ctx, "INSERT INTO "+w.b.tables.accounts+" (workchain, id, balance) SELECT * FROM unnest($1::int4[], $2::bytea[], $3::numeric[])"+
				" ON CONFLICT (workchain, id) DO UPDATE SET balance = excluded.balance", accounts.workchains, accounts.ids, accounts.balances)
			return err
		}
		return nil
	})
	if err == nil && len(blocks) > 0 {
		w.b.has(blocks[len(blocks)-1].Cursor)
	}
	return err
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
	tx, err := w.b.pool.BeginTx(ctx, readCommitted)
	if broken(err) && ctx.Err() == nil {
		w.b.pool.Reset()
		tx, err = w.b.pool.BeginTx(ctx, readCommitted)
	}
	if err != nil {
		return failed(what, err)
	}
	if err := do(ctx, tx); err != nil {
		_ = tx.Rollback(ctx) // where that fails the connection is closed
		return failed(what, err)
	}
	if err := tx.Commit(ctx); err != nil {
		return failed(what, err)
	}
	return nil
}

// append is done by one Writer at a time: the lock is held until the blocks can
// be seen, so the next Writer's come after them to every reader. It returns how
// many were not there yet.
func (w *Writer) append(ctx context.Context, tx pgx.Tx, blocks []chaingql.Block) (int, error) {
	newest, pruned, err := w.turn(ctx, tx)
	if err != nil {
		return 0, err
	}
	if had := w.b.has(""); newest < had && blocks[0].Cursor > had {
		return 0, fmt.Errorf("the chain ends at cursor %q, and had %q: %w", newest, had, ErrConflict)
	}
	first := slices.IndexFunc(blocks, func(b chaingql.Block) bool { return b.Cursor > newest })
	if first < 0 {
		first = len(blocks)
	}
	if err := w.compare(ctx, tx, blocks[:first], pruned); err != nil {
		return 0, err
	}
	fresh := blocks[first:]
	if len(fresh) == 0 {
		return 0, nil
	}
	return len(fresh), w.insert(ctx, tx, fresh)
}

// insert stores blocks and has those who listen told of it at the commit.
func (w *Writer) insert(ctx context.Context, tx pgx.Tx, fresh []chaingql.Block) error {
	if len(fresh) < copied {
		var batch pgx.Batch
		for _, b := range fresh {
			batch.Queue("INSERT INTO "+w.b.tables.blocks+" ("+columns+") VALUES ($1, $2, $3, $4, $5, $6)", row(&b)...)
		}
		batch.Queue(notifySQL, channel, w.b.opts.Schema)
		return tx.SendBatch(ctx, &batch).Close()
	}
	rows := pgx.CopyFromSlice(len(fresh), func(i int) ([]any, error) { return row(&fresh[i]), nil })
	if _, err := tx.CopyFrom(ctx, pgx.Identifier{w.b.opts.Schema, "blocks"}, strings.Split(columns, ", "), rows); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, notifySQL, channel, w.b.opts.Schema)
	return err
}

// copied is how many blocks are worth the round trips of a COPY, which is twice
// as fast as INSERT for thousands.
const copied = 20

const notifySQL = "SELECT pg_notify($1, $2)"

// row is a block as columns has it.
func row(b *chaingql.Block) []any {
	return []any{string(b.Cursor), b.Workchain, int64(b.Shard), int64(b.SeqNo), b.Hash[:], b.Time}
}

// has notes a block that is stored, and returns the newest that was.
func (b *Backend) has(c chaingql.Cursor) chaingql.Cursor {
	b.stored.Lock()
	defer b.stored.Unlock()
	b.stored.newest = max(b.stored.newest, c)
	return b.stored.newest
}

// turn waits for this Writer's turn and returns how far the chain goes then,
// and what was pruned of it last.
func (w *Writer) turn(ctx context.Context, tx pgx.Tx) (newest, pruned chaingql.Cursor, err error) {
	var batch pgx.Batch
	batch.Queue(lockSQL, w.b.key("write"))
	batch.Queue("SELECT coalesce((SELECT max(cursor) FROM " + w.b.tables.blocks + " WHERE cursor > s.pruned), ''), s.pruned FROM " + w.b.tables.state + " s")
	results := tx.SendBatch(ctx, &batch)
	defer results.Close()
	if _, err := results.Exec(); err != nil {
		return "", "", err
	}
	if err := results.QueryRow().Scan(&newest, &pruned); err != nil {
		return "", "", err
	}
	return max(newest, pruned), pruned, results.Close()
}

// compare sees that blocks are the ones that are stored.
func (w *Writer) compare(ctx context.Context, tx pgx.Tx, blocks []chaingql.Block, pruned chaingql.Cursor) error {
	blocks = blocks[sortedAfter(blocks, pruned):]
	if len(blocks) == 0 {
		return nil
	}
	cursors := make([]string, len(blocks))
	for i := range blocks {
		cursors[i] = string(blocks[i].Cursor)
	}
	rows, err := tx.Query(ctx, "SELECT '', "+columns+" FROM "+w.b.tables.blocks+" WHERE cursor = ANY($1)", cursors)
	if err != nil {
		return err
	}
	defer rows.Close()
	stored := make(map[chaingql.Cursor]chaingql.Block, len(blocks))
	for rows.Next() {
		b, _, _, err := scanBlock(rows)
		if err != nil {
			return err
		}
		stored[b.Cursor] = b
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, b := range blocks {
		s, known := stored[b.Cursor]
		if !known {
			return fmt.Errorf("cursor %q is not stored, and newer ones are: %w", b.Cursor, ErrConflict)
		}
		at := b.Time.Truncate(time.Microsecond)
		b.Time = s.Time
		if b != s || !s.Time.Equal(at) {
			return fmt.Errorf("under cursor %q block %v is stored, not %v: %w", b.Cursor, s.Hash, b.Hash, ErrConflict)
		}
	}
	return nil
}

// sortedAfter is the place of the first block past a cursor.
func sortedAfter(blocks []chaingql.Block, c chaingql.Cursor) int {
	n, found := slices.BinarySearchFunc(blocks, c, func(b chaingql.Block, c chaingql.Cursor) int {
		return strings.Compare(string(b.Cursor), string(c))
	})
	if found {
		n++
	}
	return n
}
