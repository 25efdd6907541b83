package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/jackc/pgx/v5"
)

// writerIdle is the time after which PostgreSQL ends a write transaction of a silent client, so that
// a process that froze or a machine that vanished does not keep the lock on the chain.
const writerIdle = 5 * time.Second

// serverGrace is the time from the deadline of a transaction until PostgreSQL cancels its statement. The client ends
// the statement first, so callers receive context.DeadlineExceeded.
const serverGrace = 2 * time.Second

// settingsSQL makes statements independent of the settings of the server, the database and the role until the end of
// the transaction:
//
//   - Plans do not depend on statistics: PostgreSQL reads every table through a matching index.
//   - JIT compilation, which would take longer than these statements, is off.
//   - Times and bytes have the only formats in which pgx can read them as text. A Backend that polls receives text.
//     The formats cannot be set when it connects, because PgBouncer refuses connections that set bytea_output.
var settingsSQL = func() string {
	set := []string{
		"set_config('enable_indexscan', 'on', true)",
		"set_config('datestyle', 'ISO', true)", "set_config('bytea_output', 'hex', true)",
	}
	for _, name := range []string{
		"enable_bitmapscan", "enable_seqscan", "enable_sort", "enable_hashjoin", "enable_mergejoin", "jit",
	} {
		set = append(set, "set_config('"+name+"', 'off', true)")
	}
	return "SELECT " + strings.Join(set, ", ")
}()

// writing returns the options of transactions that write. Each statement takes a new snapshot, so that
// statements after the lock see what its last holder committed. PostgreSQL ends the transaction if the
// client is silent for writerIdle, and cancels a statement that runs for limit plus serverGrace. TCP
// keep-alives detect that the client's machine has vanished.
func writing(limit time.Duration) pgx.TxOptions {
	milliseconds := min(max(limit.Milliseconds(), 0)+serverGrace.Milliseconds(), 1<<31-1)
	return pgx.TxOptions{BeginQuery: fmt.Sprintf("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;"+
		" SET LOCAL idle_in_transaction_session_timeout = %d; SET LOCAL statement_timeout = %d;"+
		" SET LOCAL tcp_keepalives_idle = 5; SET LOCAL tcp_keepalives_interval = 2; SET LOCAL tcp_keepalives_count = 3",
		writerIdle.Milliseconds(), milliseconds)}
}

// A source is a FROM item that yields rows sent by the client. Its args are numbered from $1.
type source struct {
	from string
	args []any
}

// commit stores blocks and balances. It sends large batches before it takes the lock, and only small
// statements while it holds the lock, because PostgreSQL waits without a time limit if a client stops in
// the middle of a message or of a COPY.
func (w *Writer) commit(ctx context.Context, tx pgx.Tx, blocks []chaingql.Block, accounts accounts) error {
	changed := accounts.source()
	if len(blocks) == 0 {
		return w.setBalances(ctx, tx, changed)
	}
	coming := sourceOf(blocks)
	var err error
	if w.temp && len(blocks) >= copyThreshold {
		if coming, err = stageBlocks(ctx, tx, blocks); err != nil {
			return err
		}
	}
	if w.temp && len(accounts.ids) >= copyThreshold {
		if changed, err = accounts.stage(ctx, tx); err != nil {
			return err
		}
	}
	fresh, err := w.append(ctx, tx, blocks, coming)
	if err != nil || !fresh || len(accounts.ids) == 0 {
		return err
	}
	return w.setBalances(ctx, tx, changed)
}

// append inserts those blocks that are not stored yet and reports whether there are any.
// It takes a lock that is held until the transaction ends, so that the blocks of the next
// Writer become visible after these blocks.
func (w *Writer) append(
	ctx context.Context, tx pgx.Tx, blocks []chaingql.Block, coming source,
) (fresh bool, err error) {
	newest, _, err := w.lock(ctx, tx)
	if err != nil {
		return false, err
	}
	// If the chain has lost blocks, the new blocks must overlap the remaining ones, or this Writer must have
	// appended the newest remaining block with its previous call. Otherwise there would be a gap.
	had := w.b.recordNewest(w.chain.id, "")
	if previous := w.previous.Load(); newest < had && blocks[0].Cursor > newest &&
		(previous == nil || *previous != newest) {
		return false, fmt.Errorf("the chain has lost blocks: its newest cursor was %q and is now %q, "+
			"but the new blocks begin at %q: %w", had, newest, blocks[0].Cursor, ErrConflict)
	}
	if blocks[0].Cursor <= newest {
		if err := w.compare(ctx, tx, coming, newest); err != nil {
			return false, err
		}
	}
	if blocks[len(blocks)-1].Cursor <= newest {
		return false, nil
	}
	var batch pgx.Batch
	batch.Queue(fmt.Sprintf("INSERT INTO %s (%s) SELECT %[2]s FROM %s WHERE cursor > $%d",
		w.b.tables.blocks, columns, coming.from, len(coming.args)+1),
		append(coming.args, string(newest))...)
	batch.Queue(notifySQL, channel, w.b.opts.Schema)
	return true, tx.SendBatch(ctx, &batch).Close()
}

const notifySQL = "SELECT pg_notify($1, $2)"

// lock acquires the lock that serializes Writers. It returns the cursors of the newest
// block and of the newest pruned block, which are equal if no blocks are left.
func (w *Writer) lock(ctx context.Context, tx pgx.Tx) (newest, pruned chaingql.Cursor, err error) {
	var batch pgx.Batch
	batch.Queue(lockSQL, w.b.key("write"))
	batch.Queue("SELECT coalesce((SELECT max(cursor) FROM "+w.b.tables.blocks+" WHERE cursor > s.pruned), ''), "+
		"s.pruned FROM "+w.b.tables.state+" s WHERE chain = $1", w.chain.id)
	results := tx.SendBatch(ctx, &batch)
	defer results.Close()
	if _, err := results.Exec(); err != nil {
		return "", "", err
	}
	switch err := results.QueryRow().Scan(&newest, &pruned); {
	case errors.Is(err, pgx.ErrNoRows):
		return "", "", errReplaced
	case err != nil:
		return "", "", err
	}
	return max(newest, pruned), pruned, results.Close()
}

// compare checks that those of the coming blocks that were not pruned and whose cursors are up to newest are already
// stored with the same values. Otherwise it returns ErrConflict. It reads in the same statement which blocks were
// pruned: an operator's DELETE does not take the lock of Writers.
func (w *Writer) compare(ctx context.Context, tx pgx.Tx, coming source, newest chaingql.Cursor) error {
	var (
		cursor             chaingql.Cursor
		arrived, preserved []byte
	)
	if _, err := tx.Exec(ctx, settingsSQL); err != nil {
		return err
	}
	n := len(coming.args)
	err := tx.QueryRow(ctx, fmt.Sprintf("SELECT n.cursor, n.hash, b.hash"+
		" FROM %s LEFT JOIN %s b ON b.cursor = n.cursor"+
		" WHERE n.cursor > (SELECT pruned FROM %s) AND n.cursor <= $%d"+
		" AND (n.workchain, n.shard, n.seq_no, n.hash, n.gen_time)"+
		" IS DISTINCT FROM (b.workchain, b.shard, b.seq_no, b.hash, b.gen_time) ORDER BY n.cursor LIMIT 1",
		coming.from, w.b.tables.blocks, w.b.tables.state, n+1), append(coming.args, string(newest))...).
		Scan(&cursor, &arrived, &preserved)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return err
	case preserved == nil:
		return fmt.Errorf("cursor %q is not stored, but newer cursors are: %w", cursor, ErrConflict)
	case bytes.Equal(arrived, preserved):
		return fmt.Errorf("cursor %q has block %x, but its workchain, shard, seq_no or gen_time is different: %w",
			cursor, preserved, ErrConflict)
	}
	return fmt.Errorf("cursor %q has block %x, not %x: %w", cursor, preserved, arrived, ErrConflict)
}

// sourceOf returns a source that yields blocks from array arguments.
func sourceOf(blocks []chaingql.Block) source {
	n := len(blocks)
	cursors, workchains, shards, seqNos := make([]string, n), make([]int32, n), make([]int64, n), make([]int64, n)
	hashes, times := make([][]byte, n), make([]time.Time, n)
	for i := range blocks {
		b := &blocks[i]
		cursors[i], workchains[i], shards[i] = string(b.Cursor), b.Workchain, int64(b.Shard)
		seqNos[i], hashes[i], times[i] = int64(b.SeqNo), b.Hash[:], b.Time
	}
	return source{
		from: `(SELECT cursor COLLATE "C" AS cursor, workchain, shard, seq_no, hash, gen_time` +
			" FROM unnest($1::text[], $2::int4[], $3::int8[], $4::int8[], $5::bytea[], $6::timestamptz[])" +
			" u (" + columns + ")) n",
		args: []any{cursors, workchains, shards, seqNos, hashes, times},
	}
}

// copyThreshold is the minimum number of rows that are sent with COPY. COPY needs more round
// trips than array arguments, but is twice as fast for thousands of rows.
const copyThreshold = 20

// stageBlocks copies blocks to a temporary table, which PostgreSQL empties at the end of the
// transaction.
func stageBlocks(ctx context.Context, tx pgx.Tx, blocks []chaingql.Block) (source, error) {
	const table = `(cursor text COLLATE "C", workchain int4, shard int8, seq_no int8, hash bytea, gen_time timestamptz)`
	return stage(ctx, tx, "chaingql_blocks", table, columns, pgx.CopyFromSlice(len(blocks), func(i int) ([]any, error) {
		b := &blocks[i]
		return []any{string(b.Cursor), b.Workchain, int64(b.Shard), int64(b.SeqNo), b.Hash[:], b.Time}, nil
	}))
}

func stage(ctx context.Context, tx pgx.Tx, name, table, columns string, rows pgx.CopyFromSource) (source, error) {
	_, err := tx.Exec(ctx, "SET LOCAL client_min_messages = warning;"+
		" CREATE TEMP TABLE IF NOT EXISTS pg_temp."+name+" "+table+" ON COMMIT DELETE ROWS")
	if err != nil {
		return source{}, err
	}
	if _, err := tx.CopyFrom(ctx, pgx.Identifier{"pg_temp", name}, strings.Split(columns, ", "), rows); err != nil {
		return source{}, err
	}
	return source{from: "pg_temp." + name + " n"}, nil
}
