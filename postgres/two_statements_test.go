package postgres_test

import (
	"cmp"
	"context"
	"iter"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/backendtest"
	"github.com/chaingql/chaingql/postgres"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A twoStatements is a Backend that reads a page with two statements, as the Backend of a host with its own tables
// may: the first one checks whether the cursor is too old, and the second one selects the page.
type twoStatements struct {
	*postgres.Backend
	pool   *pgxpool.Pool
	schema string
	atOnce bool // run both statements in one transaction
}

// A querier is a pool or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func (b twoStatements) Blocks(ctx context.Context, q chaingql.BlocksQuery) (page []chaingql.Block, err error) {
	for _, c := range []chaingql.Cursor{q.After, q.Before} {
		if c == foreign {
			return nil, chaingql.ErrBadCursor
		}
	}
	if !b.atOnce {
		return b.page(ctx, b.pool, q)
	}
	// One snapshot: both statements see the same pruned blocks.
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, b.pool, snapshot, func(tx pgx.Tx) (err error) {
		page, err = b.page(ctx, tx, q)
		return err
	})
	return page, err
}

func (b twoStatements) page(ctx context.Context, db querier, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	var pruned chaingql.Cursor
	if err := db.QueryRow(ctx, "SELECT pruned FROM "+b.schema+".chaingql_state").Scan(&pruned); err != nil {
		return nil, err
	}
	if q.After != "" && q.After < pruned {
		return nil, chaingql.ErrCursorTooOld
	}
	return b.selectPage(ctx, db, q)
}

func (b twoStatements) selectPage(ctx context.Context, db querier, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	order := "ASC"
	if q.Last > 0 {
		order = "DESC"
	}
	var shard *int64
	if q.Shard != nil {
		signed := int64(*q.Shard)
		shard = &signed
	}
	rows, err := db.Query(ctx, "SELECT cursor, workchain, shard, seq_no, hash, gen_time FROM "+b.schema+".blocks"+
		" WHERE cursor > $1 AND ($2::text = '' OR cursor < $2) AND workchain = coalesce($3, workchain)"+
		" AND shard = coalesce($4, shard) ORDER BY cursor "+order+" LIMIT $5",
		string(q.After), string(q.Before), q.Workchain, shard, q.First+q.Last)
	if err != nil {
		return nil, err
	}
	page, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (block chaingql.Block, err error) {
		var shard, seqNo int64
		var hash []byte
		err = row.Scan(&block.Cursor, &block.Workchain, &shard, &seqNo, &hash, &block.Time)
		block.Shard, block.SeqNo = uint64(shard), uint32(seqNo)
		copy(block.Hash[:], hash)
		return block, err
	})
	if q.Last > 0 {
		slices.Reverse(page)
	}
	return page, err
}

const foreign = "a foreign cursor!"

// inTwoTransactions is the environment variable with which TestPagesReadInOneTransactionMeetContract uses two
// transactions, and must therefore fail.
const inTwoTransactions = "CHAINGQL_TEST_TWO_TRANSACTIONS"

func TestPagesReadInOneTransactionMeetContract(t *testing.T) {
	t.Parallel() // it mostly waits
	s := sharedServer(t)
	backendtest.Run(t, func(t *testing.T) backendtest.Harness {
		opts := &postgres.Options{Schema: newSchema()}
		b := open(t, s.dsn("postgres"), opts)
		pool, err := pgxpool.New(t.Context(), s.dsn("postgres"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		w := writer(t, b)
		ctx := context.Background()
		return backendtest.Harness{
			Backend: twoStatements{b, pool, quote(opts.Schema), os.Getenv(inTwoTransactions) == ""},
			Append:  func(blocks []chaingql.Block) error { return w.Append(ctx, blocks...) },
			Prune:   func(before chaingql.Cursor) error { return w.Prune(ctx, before) },
			Foreign: foreign,
		}
	})
}

// The test runs TestPagesReadInOneTransactionMeetContract in another process, because that test must fail there.
func TestPagesReadInTwoTransactionsViolateContract(t *testing.T) {
	t.Parallel()
	sharedServer(t) // skips if there is no server
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	program := exec.CommandContext(ctx, os.Args[0], "-test.run",
		"^TestPagesReadInOneTransactionMeetContract$/"+
			"^(the_source_opens|Blocks_and_Follow_are_correct_while_blocks_are_pruned)$")
	program.Env = append(os.Environ(), inTwoTransactions+"=1")
	output, err := program.CombinedOutput()
	if err == nil || !strings.Contains(string(output), ", while blocks were pruned, ") {
		t.Errorf("backendtest did not report that blocks were lost while they were pruned (error %v):\n%s", err, output)
	}
}

func (b twoStatements) Follow(ctx context.Context, after chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	return chaingql.Poll(ctx, b.Blocks, cmp.Or(after, "0"), 5*time.Millisecond)
}
