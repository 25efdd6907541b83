package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/backendtest"
	"github.com/chaingql/chaingql/postgres"
	"github.com/jackc/pgx/v5"
)

func TestPruneKeepsTheNewestBlock(t *testing.T) {
	for _, before := range []chaingql.Cursor{"03", "04", "ff"} {
		b := open(t, sharedServer(t).dsn("postgres"), nil)
		w := writer(t, b)
		if err := errors.Join(w.Prune(t.Context(), before), w.Append(t.Context(),
			at("01", "02", "03")...)); err != nil {
			t.Fatal(err)
		}
		old := read(t, b, "02") // the newest cursor that will be pruned
		old.expect(t, at("03")...)
		for range 2 {
			if err := w.Prune(t.Context(), before); err != nil {
				t.Fatal(err)
			}
		}
		for _, q := range []chaingql.BlocksQuery{{Last: 1}, {First: 10}, {First: 10, After: "02"}} {
			page, err := b.Blocks(t.Context(), q)
			if err != nil || !slices.Equal(cursorsOf(page), []chaingql.Cursor{"03"}) {
				t.Errorf("Prune(%q): Blocks(%+v) returned %v and error %v, want [03]", before, q, cursorsOf(page), err)
			}
		}
		for _, after := range []chaingql.Cursor{"", "00", "01"} {
			if err := read(t, b, after).end(t); !errors.Is(err, chaingql.ErrCursorTooOld) {
				t.Errorf("Prune(%q): Follow(%q) ended with %v, want ErrCursorTooOld", before, after, err)
			}
		}
		_, err := b.Blocks(t.Context(), chaingql.BlocksQuery{First: 10, After: "01"})
		if !errors.Is(err, chaingql.ErrCursorTooOld) {
			t.Errorf("Prune(%q): Blocks after 01 returned error %v, want ErrCursorTooOld", before, err)
		}
		late := read(t, b, "02")
		late.expect(t, at("03")...)
		if err := w.Append(t.Context(), at("04")...); err != nil {
			t.Fatal(err)
		}
		old.expect(t, at("04")...)
		late.expect(t, at("04")...)
	}
}

// The test reads the table itself. Readers would not see a row that Prune failed to delete, and later calls of
// Prune would skip it.
func TestPruneDeletesEveryOlderRow(t *testing.T) {
	s := sharedServer(t)
	opts := &postgres.Options{Schema: newSchema()}
	w := writer(t, open(t, s.dsn("postgres"), opts))
	if err := w.Append(t.Context(), at("01", "02", "03", "04")...); err != nil {
		t.Fatal(err)
	}
	for _, before := range []chaingql.Cursor{"02", "03", "04"} {
		if err := w.Prune(t.Context(), before); err != nil {
			t.Fatal(err)
		}
		const oldest = "DO $$ BEGIN ASSERT (SELECT min(cursor) FROM %s.blocks) >= '%s'; END $$"
		if err := run(t, s, fmt.Sprintf(oldest, quote(opts.Schema), before)); err != nil {
			t.Errorf("after Prune(%q): %v", before, err)
		}
	}
}

// run executes a statement and returns its error.
func run(t *testing.T, s *server, sql string) error {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.dsn("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), sql)
	return err
}

func TestStatementsThatWouldLoseBlocksAreRejected(t *testing.T) {
	s := sharedServer(t)
	opts := &postgres.Options{Schema: newSchema()}
	b := open(t, s.dsn("postgres"), opts)
	w := writer(t, b)
	err := errors.Join(w.Append(t.Context(), at("01", "02", "03", "04", "05")...), w.Prune(t.Context(), "02"))
	if err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		"TRUNCATE %s.blocks",
		"TRUNCATE %[1]s.blocks, %[1]s.accounts, %[1]s.chaingql_state",
		"DELETE FROM %s.blocks",
		"DELETE FROM %s.blocks WHERE cursor = '03'",
		"DELETE FROM %s.blocks WHERE cursor >= '04'",
		"DELETE FROM %s.blocks WHERE cursor IN ('02', '04')",
		"WITH gone AS (DELETE FROM %s.blocks RETURNING 1) SELECT count(*) FROM gone",
		"BEGIN; DELETE FROM %[1]s.blocks WHERE cursor = '02'; DELETE FROM %[1]s.blocks WHERE cursor = '04'; COMMIT",
		"UPDATE %s.blocks SET cursor = '06' WHERE cursor = '05'",
		"UPDATE %s.blocks SET seq_no = 9",
		"INSERT INTO %[1]s.blocks SELECT * FROM %[1]s.blocks ON CONFLICT (cursor) DO UPDATE SET seq_no = 9",
		"DELETE FROM %s.chaingql_state",
		"TRUNCATE %s.chaingql_state",
		"UPDATE %s.chaingql_state SET pruned = ''",
		"UPDATE %s.chaingql_state SET chain = gen_random_uuid()",
	} {
		err := run(t, s, fmt.Sprintf(sql, quote(opts.Schema)))
		if err == nil || !strings.Contains(err.Error(), "is refused") {
			t.Errorf("%s: got error %v, want one that contains \"is refused\"", sql, err)
		}
	}
	page, err := b.Blocks(t.Context(), chaingql.BlocksQuery{First: 10, After: "01"})
	if err != nil || !slices.Equal(page, atMicroseconds("02", "03", "04", "05")) {
		t.Errorf("got blocks %v and error %v, want blocks 02 to 05 unchanged", page, err)
	}
}

// atMicroseconds is like at, but truncates times to microseconds, the precision with which they are stored.
func atMicroseconds(cursors ...chaingql.Cursor) []chaingql.Block {
	blocks := at(cursors...)
	for i := range blocks {
		blocks[i].Time = blocks[i].Time.Truncate(1000)
	}
	return blocks
}

func TestCursorsBeforeDeletedBlocksAreTooOld(t *testing.T) {
	s := sharedServer(t)
	opts := &postgres.Options{Schema: newSchema()}
	b := open(t, s.dsn("postgres"), opts)
	w := writer(t, b)
	all := backendtest.Chain(3_000, 1)
	if err := w.Append(t.Context(), all...); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 1_000, 2_999} {
		s.admin(t, fmt.Sprintf("DELETE FROM %s.blocks WHERE cursor < '%s'", quote(opts.Schema), all[n].Cursor))
		if n > 1 {
			_, blocks := b.Blocks(t.Context(), chaingql.BlocksQuery{First: 1, After: all[n-2].Cursor})
			follow := read(t, b, all[n-2].Cursor).end(t)
			if !errors.Is(blocks, chaingql.ErrCursorTooOld) || !errors.Is(follow, chaingql.ErrCursorTooOld) {
				t.Errorf("after %d blocks were deleted: Blocks returned error %v and Follow %v, want ErrCursorTooOld",
					n, blocks, follow)
			}
		}
		read(t, b, all[n-1].Cursor).expect(t, all[n:min(n+10, len(all))]...)
	}
}

func TestEveryCallFailsIfTheChainHasLostItsState(t *testing.T) {
	s := sharedServer(t)
	opts := &postgres.Options{Schema: newSchema()}
	b := open(t, s.dsn("postgres"), opts)
	if err := writer(t, b).Append(t.Context(), at("01", "02")...); err != nil {
		t.Fatal(err)
	}
	r := read(t, b, "")
	r.expect(t, at("01", "02")...)
	s.admin(t, "SET session_replication_role = replica", "DELETE FROM "+quote(opts.Schema)+".chaingql_state")
	const want = "chaingql_state has lost its row"
	_, err := postgres.Open(t.Context(), s.dsn("postgres"), opts)
	expectError(t, err, want)
	expectError(t, r.end(t), want)
	_, err = b.Blocks(t.Context(), chaingql.BlocksQuery{First: 1})
	if expectError(t, err, want); errors.Is(err, chaingql.ErrChainReplaced) {
		t.Error("Blocks reported a new chain although there is none")
	}
}

// The schema is dropped and created again. The first call of each kind that notices it fails, and the next one returns
// the new chain. A Writer of the old chain never writes to the new one.
func TestBackendServesTheNewChainAfterAReplacement(t *testing.T) {
	s := sharedServer(t)
	balances := map[chaingql.Address]*big.Int{{}: big.NewInt(1)}
	for name, call := range map[string]func(b *postgres.Backend) error{
		"Blocks": func(b *postgres.Backend) error {
			_, err := b.Blocks(t.Context(), chaingql.BlocksQuery{First: 1})
			return err
		},
		"Follow": func(b *postgres.Backend) error { return read(t, b, "02").end(t) },
		"Balance": func(b *postgres.Backend) error {
			_, err := b.Balance(t.Context(), chaingql.Address{})
			return err
		},
		"BlockByHash": func(b *postgres.Backend) error {
			_, err := b.BlockByHash(t.Context(), at("03")[0].Hash)
			return err
		},
		"Append":     func(b *postgres.Backend) error { return writer(t, b).Append(t.Context(), at("04")...) },
		"SetBalance": func(b *postgres.Backend) error { return writer(t, b).SetBalances(t.Context(), balances) },
		"Prune":      func(b *postgres.Backend) error { return writer(t, b).Prune(t.Context(), "03") },
	} {
		t.Run(name, func(t *testing.T) {
			opts := &postgres.Options{Schema: newSchema()}
			b := open(t, s.dsn("postgres"), opts)
			w := writer(t, b)
			if err := w.Commit(t.Context(), at("01", "02"), balances); err != nil {
				t.Fatal(err)
			}
			// A Follow of b could notice the new chain before the call.
			r, epoch := read(t, open(t, s.dsn("postgres"), opts), ""), b.Epoch()
			r.expect(t, at("01", "02")...)
			s.admin(t, "DROP SCHEMA "+quote(opts.Schema)+" CASCADE")
			again := open(t, s.dsn("postgres"), opts)
			if err := writer(t, again).Commit(t.Context(), at("03"), balances); err != nil {
				t.Fatal(err)
			}
			if got := b.Epoch(); got != epoch {
				t.Errorf("Epoch returned %q before a call noticed the new chain, want %q", got, epoch)
			}
			if err := call(b); !errors.Is(err, chaingql.ErrChainReplaced) {
				t.Errorf("the first call returned error %v, want ErrChainReplaced", err)
			}
			if got := b.Epoch(); got == epoch || got != again.Epoch() {
				t.Errorf("Epoch returned %q, want %q, the one of a Backend that was opened later", got, again.Epoch())
			}
			if err := r.end(t); !errors.Is(err, chaingql.ErrChainReplaced) {
				t.Errorf("the Follow of the old chain ended with %v, want ErrChainReplaced", err)
			}
			page, err := b.Blocks(t.Context(), chaingql.BlocksQuery{First: 10})
			if err != nil || !slices.Equal(cursorsOf(page), []chaingql.Cursor{"03"}) {
				t.Errorf("the new chain has blocks %v and error %v, want 03", cursorsOf(page), err)
			}
			read(t, b, "").expect(t, at("03")...)
			for what, err := range map[string]error{
				"Append":      w.Append(t.Context(), at("04")...),
				"SetBalances": w.SetBalances(t.Context(), balances),
				"Prune":       w.Prune(t.Context(), "03"),
			} {
				if !errors.Is(err, chaingql.ErrChainReplaced) {
					t.Errorf("%s of the old chain's Writer returned error %v, want ErrChainReplaced", what, err)
				}
			}
			if err := writer(t, b).Append(t.Context(), at("04")...); err != nil {
				t.Errorf("Append of a new Writer: %v", err)
			}
		})
	}
}
