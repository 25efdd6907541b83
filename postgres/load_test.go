package postgres_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/backendtest"
	"github.com/chaingql/chaingql/postgres"
	"github.com/jackc/pgx/v5"
)

// The test turns off autovacuum, which would also refresh statistics. It writes with the owner of the table, and
// with a role that may not ANALYZE the table.
func TestWriterRefreshesStatisticsAfter100000Blocks(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	worker := fmt.Sprintf("loader%d", schemas.Add(1))
	s.admin(t, "CREATE ROLE "+worker+" LOGIN PASSWORD 'x'")
	all := backendtest.Chain(100_000, 1)
	for _, userinfo := range []string{"postgres", worker + ":x"} {
		opts := &postgres.Options{Schema: newSchema()}
		name := quote(opts.Schema)
		open(t, s.dsn("postgres"), opts)
		s.admin(t, "ALTER TABLE "+name+".blocks SET (autovacuum_enabled = off)",
			"GRANT USAGE ON SCHEMA "+name+" TO "+worker,
			"GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA "+name+" TO "+worker)
		w := writer(t, open(t, s.tcp(s.port, userinfo, "postgres"), opts))
		if err := w.Append(t.Context(), all[:99_999]...); err != nil {
			t.Fatal(err)
		}
		if got := analyzed(t, s, opts.Schema); got {
			t.Error("statistics were refreshed before 100,000 blocks")
		}
		if err := w.Append(t.Context(), all[99_999]); err != nil {
			t.Fatal(err)
		}
		if got, want := analyzed(t, s, opts.Schema), userinfo == "postgres"; got != want {
			t.Errorf("statistics were refreshed by %s: got %v, want %v", userinfo, got, want)
		}
	}
}

// analyzed reports whether PostgreSQL has statistics of the table of blocks.
func analyzed(t *testing.T, s *server, schema string) (some bool) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.dsn("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	const sql = "SELECT EXISTS (SELECT FROM pg_stats WHERE schemaname = $1 AND tablename = 'blocks')"
	if err := conn.QueryRow(t.Context(), sql, schema).Scan(&some); err != nil {
		t.Fatal(err)
	}
	return some
}

func TestWriterWorksWithoutTemporaryTables(t *testing.T) {
	s := sharedServer(t)
	tag := schemas.Add(1)
	database, worker := fmt.Sprintf("plain%d", tag), fmt.Sprintf("plainworker%d", tag)
	s.admin(t, "CREATE DATABASE "+database, "CREATE ROLE "+worker+" LOGIN PASSWORD 'x'",
		"REVOKE TEMP ON DATABASE "+database+" FROM PUBLIC", "GRANT CREATE ON DATABASE "+database+" TO "+worker)
	all := backendtest.Chain(3_000, 1)
	b := open(t, s.tcp(s.port, worker+":x", database), nil)
	w := writer(t, b)
	if err := errors.Join(w.Append(t.Context(), all[:2_000]...), w.Append(t.Context(), all[1_000:]...)); err != nil {
		t.Fatal(err)
	}
	differs := all[1_500]
	differs.Hash[0]++
	err := w.Append(t.Context(), append(slices.Clone(all[1_400:1_500]), differs)...)
	if !errors.Is(err, postgres.ErrConflict) {
		t.Errorf("Append of a different block returned error %v, want ErrConflict", err)
	}
	page, err := b.Blocks(t.Context(), chaingql.BlocksQuery{Last: 1})
	if err != nil || len(page) != 1 || page[0].Cursor != all[2_999].Cursor {
		t.Errorf("got newest block %v and error %v, want %v", page, err, all[2_999])
	}
}
