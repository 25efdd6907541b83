package postgres_test

import (
	"context"
	"errors"
	"math/big"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/backendtest"
	"github.com/chaingql/chaingql/postgres"
	"github.com/jackc/pgx/v5"
)

func TestConcurrentOpensCreateTablesOnce(t *testing.T) {
	s := sharedServer(t)
	schema := newSchema()
	var opening sync.WaitGroup
	for range 8 {
		opening.Go(func() {
			b, err := postgres.Open(context.Background(), s.dsn("postgres"), &postgres.Options{Schema: schema})
			if err != nil {
				t.Error(err)
				return
			}
			b.Close()
			b.Close()
		})
	}
	opening.Wait()
	w := writer(t, open(t, s.dsn("postgres"), &postgres.Options{Schema: schema}))
	if err := w.Append(t.Context(), backendtest.Chain(10, 1)...); err != nil {
		t.Fatal(err)
	}
	again := open(t, s.dsn("postgres"), &postgres.Options{Schema: schema, SkipMigrations: true})
	if page, err := again.Blocks(t.Context(), chaingql.BlocksQuery{First: 100}); err != nil || len(page) != 10 {
		t.Errorf("after another Open: got %d blocks and error %v, want 10", len(page), err)
	}
}

func TestMigrationKeepsStoredBlocks(t *testing.T) {
	s := sharedServer(t)
	opts := &postgres.Options{Schema: newSchema()}
	all := backendtest.Chain(10, 1)
	old := open(t, s.dsn("postgres"), opts)
	if err := writer(t, old).Append(t.Context(), all...); err != nil {
		t.Fatal(err)
	}
	defer postgres.Migrating("ALTER TABLE blocks ADD COLUMN later integer NOT NULL DEFAULT 7;\n" +
		"CREATE INDEX later ON blocks (later);")()
	_, err := postgres.Open(t.Context(), s.dsn("postgres"), &postgres.Options{Schema: opts.Schema,
		SkipMigrations: true})
	expectError(t, err, "have version 3, but version 4 is needed")
	var opening sync.WaitGroup
	for range 4 {
		opening.Go(func() {
			b, err := postgres.Open(context.Background(), s.dsn("postgres"), opts)
			if err != nil {
				t.Error(err)
				return
			}
			defer b.Close()
			page, err := b.Blocks(context.Background(), chaingql.BlocksQuery{First: 100})
			if err != nil || !slices.Equal(cursorsOf(page), cursorsOf(all)) {
				t.Errorf("stored blocks: %s; error %v", difference(cursorsOf(page), cursorsOf(all)), err)
			}
		})
	}
	opening.Wait()
	s.admin(t, "DO $$ BEGIN ASSERT (SELECT version = 4 FROM "+quote(opts.Schema)+".chaingql_state) "+
		"AND (SELECT sum(later) = 70 FROM "+quote(opts.Schema)+".blocks); END $$")
	if _, err := old.Blocks(t.Context(), chaingql.BlocksQuery{First: 1}); err != nil {
		t.Errorf("Blocks of the Backend that was open during the migration: %v", err)
	}
}

// The test creates the tables of version 1, first with two blocks and then with a chain whose blocks are all pruned.
func TestVersionOneTablesAreMigrated(t *testing.T) {
	s := sharedServer(t)
	script, err := os.ReadFile("migrations/0001_chain.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, prunedWhole := range []bool{false, true} {
		opts := &postgres.Options{Schema: newSchema()}
		name := quote(opts.Schema)
		s.admin(t, "CREATE SCHEMA "+name, "SET search_path = "+name, string(script),
			"UPDATE chaingql_state SET version = 1, pruned = '02'")
		rows := []string{"'03'", "'04'"}
		if prunedWhole {
			rows = nil
		}
		for _, row := range rows {
			s.admin(t, "INSERT INTO "+name+".blocks VALUES ("+row+", 0, 0, 0, "+
				"decode(repeat('00', 32), 'hex'), '2023-11-14T22:13:20.123456Z')")
		}
		s.admin(t, "INSERT INTO "+name+".accounts VALUES (0, decode(repeat('00', 32), 'hex'), 7)")

		b := open(t, s.dsn("postgres"), opts)
		w := writer(t, b)
		s.admin(t, "DO $$ BEGIN ASSERT (SELECT version = 3 FROM "+name+".chaingql_state); END $$")
		if nano, err := b.Balance(t.Context(), chaingql.Address{}); err != nil || nano.Int64() != 7 {
			t.Errorf("got balance %v and error %v, want 7", nano, err)
		}
		r := read(t, b, "02")
		want := at("05", "06")
		if !prunedWhole {
			r.expect(t, at("03", "04")...)
			if err := w.Append(t.Context(), at("03", "04")...); err != nil {
				t.Error(err)
			}
			want = append(at("04"), want...)
		}
		if err := w.Append(t.Context(), at("05", "06")...); err != nil {
			t.Fatal(err)
		}
		r.expect(t, at("05", "06")...)
		if err := w.Prune(t.Context(), "04"); err != nil {
			t.Error(err)
		}
		page, err := b.Blocks(t.Context(), chaingql.BlocksQuery{First: 10})
		if err != nil || !slices.Equal(cursorsOf(page), cursorsOf(want)) {
			t.Errorf("got blocks %v and error %v, want %v", cursorsOf(page), err, cursorsOf(want))
		}
		// A process of the previous version deletes the blocks first and then updates pruned.
		s.admin(t, "BEGIN; DELETE FROM "+name+".blocks WHERE cursor > '03' AND cursor <= '05'; "+
			"UPDATE "+name+".chaingql_state SET pruned = '05'; COMMIT")
		_, err = b.Blocks(t.Context(), chaingql.BlocksQuery{First: 10, After: "04"})
		if !errors.Is(err, chaingql.ErrCursorTooOld) {
			t.Errorf("Blocks after 04 returned error %v, want ErrCursorTooOld", err)
		}
	}
}

// TestOpenRefusesInvalidIndexes leaves an invalid index, as an interrupted CREATE INDEX CONCURRENTLY does. Here, it
// fails because the blocks are not unique. The migration must not accept that index.
func TestOpenRefusesInvalidIndexes(t *testing.T) {
	s := sharedServer(t)
	opts := &postgres.Options{Schema: newSchema()}
	name, all := quote(opts.Schema), backendtest.Chain(10, 1)
	if err := writer(t, open(t, s.dsn("postgres"), opts)).Append(t.Context(), all...); err != nil {
		t.Fatal(err)
	}
	s.admin(t, "DROP INDEX "+name+".blocks_by_hash", "UPDATE "+name+".chaingql_state SET version = 2")
	conn, err := pgx.Connect(t.Context(), s.dsn("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	_, err = conn.Exec(t.Context(), "CREATE UNIQUE INDEX CONCURRENTLY blocks_by_hash ON "+name+".blocks ((true))")
	expectError(t, err, "could not create unique index")

	_, err = postgres.Open(t.Context(), s.dsn("postgres"), opts)
	expectError(t, err, `blocks_by_hash" is invalid`)
	s.admin(t, "DROP INDEX "+name+".blocks_by_hash")
	b := open(t, s.dsn("postgres"), opts)
	if got, err := b.BlockByHash(t.Context(), all[3].Hash); err != nil || got.Cursor != all[3].Cursor {
		t.Errorf("BlockByHash after DROP INDEX: got %q and error %v, want %q", got.Cursor, err, all[3].Cursor)
	}
	s.admin(t, "DO $$ BEGIN ASSERT (SELECT indisvalid FROM pg_index WHERE indexrelid = '"+
		strings.ReplaceAll(name, "'", "''")+".blocks_by_hash'::regclass); END $$")
}

func TestFailedMigrationIsRolledBack(t *testing.T) {
	s := sharedServer(t)
	opts := &postgres.Options{Schema: newSchema()}
	restore := postgres.Migrating("CREATE TABLE half (a int); SELECT 1/0")
	_, err := postgres.Open(t.Context(), s.dsn("postgres"), opts)
	restore()
	expectError(t, err, "division by zero")
	s.admin(t, "CREATE SCHEMA "+quote(opts.Schema), "DROP SCHEMA "+quote(opts.Schema))
	open(t, s.dsn("postgres"), opts)
}

func TestChainsInOneDatabaseAreSeparate(t *testing.T) {
	s := sharedServer(t)
	s.admin(t, "CREATE SCHEMA IF NOT EXISTS shop", "CREATE TABLE IF NOT EXISTS shop.orders (id int)",
		"DELETE FROM shop.orders", "INSERT INTO shop.orders VALUES (1)")
	one, two := open(t, s.dsn("postgres"), &postgres.Options{Schema: "shop"}), open(t, s.dsn("postgres"), nil)
	blocks := backendtest.Chain(20, 1)
	err := writer(t, one).Commit(t.Context(), blocks[:10], map[chaingql.Address]*big.Int{{}: big.NewInt(1)})
	if err != nil {
		t.Fatal(err)
	}
	if err := writer(t, two).Append(t.Context(), blocks[5:]...); err != nil {
		t.Fatal(err)
	}
	for i, b := range []*postgres.Backend{one, two} {
		page, err := b.Blocks(t.Context(), chaingql.BlocksQuery{First: 100})
		want := [][]chaingql.Block{blocks[:10], blocks[5:]}[i]
		if d := difference(cursorsOf(page), cursorsOf(want)); err != nil || len(page) != len(want) ||
			page[0] != want[0] {
			t.Errorf("chain %d: %s; error %v", i+1, d, err)
		}
	}
	if _, err := two.Balance(t.Context(), chaingql.Address{}); err == nil {
		t.Error("an account of one chain exists in the other chain")
	}
	s.admin(t, "INSERT INTO shop.orders SELECT id FROM shop.orders")
}
