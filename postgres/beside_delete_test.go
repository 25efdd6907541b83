package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/backendtest"
	"github.com/chaingql/chaingql/postgres"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// TestAppendRepeatsBlocksThatAnOperatorDeletes repeats stored blocks while an operator deletes the oldest of them one
// by one. Blocks that were pruned count as stored, so no call may return ErrConflict.
func TestAppendRepeatsBlocksThatAnOperatorDeletes(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	opts := &postgres.Options{Schema: newSchema()}
	w := writer(t, open(t, s.dsn("postgres"), opts))
	all := backendtest.Chain(60, 1)
	if err := w.Append(t.Context(), all...); err != nil {
		t.Fatal(err)
	}
	operator := connect(t, s)
	ctx, stop := context.WithCancel(t.Context())
	var repeating sync.WaitGroup
	repeating.Go(func() {
		for ctx.Err() == nil {
			if err := w.Append(t.Context(), all[30:45]...); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for _, b := range all[:40] {
		remove := fmt.Sprintf("DELETE FROM %s.blocks WHERE cursor = $1", quote(opts.Schema))
		if _, err := operator.Exec(t.Context(), remove, string(b.Cursor)); err != nil {
			t.Error(err)
		}
	}
	stop()
	repeating.Wait()
}

// TestPruneWaitsForAnOperatorsDelete calls Prune while a transaction of an operator has locked or deleted blocks that
// Prune wants to delete. Meanwhile, blocks can be appended, and the operator's transaction succeeds.
func TestPruneWaitsForAnOperatorsDelete(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, before, after, want string }{
		{"of more blocks", "DELETE FROM %s.blocks WHERE cursor < '04'", "COMMIT", "[04 05 06]"},
		{
			"that updates the state after Prune has done so", "SELECT FROM %s.blocks WHERE cursor = '01' FOR UPDATE",
			"DELETE FROM %s.blocks WHERE cursor = '01'; COMMIT", "[03 04 05 06]",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := sharedServer(t)
			opts := &postgres.Options{Schema: newSchema()}
			name := fmt.Sprintf("pruning%d", schemas.Add(1))
			w := writer(t, open(t, s.dsn("postgres")+" application_name="+name, opts))
			b := open(t, s.dsn("postgres"), opts)
			if err := w.Append(t.Context(), at("01", "02", "03", "04", "05")...); err != nil {
				t.Fatal(err)
			}
			operator := connect(t, s)
			exec := func(sql string) {
				t.Helper()
				if _, err := operator.Exec(t.Context(), strings.ReplaceAll(sql, "%s", quote(opts.Schema))); err != nil {
					t.Fatal(err)
				}
			}
			exec("BEGIN; " + row.before)
			pruned := make(chan error, 1)
			go func() { pruned <- w.Prune(context.Background(), "03") }()
			s.admin(t, "DO $$ BEGIN WHILE NOT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'"+
				" AND application_name = '"+name+"') LOOP PERFORM pg_stat_clear_snapshot(); END LOOP; END $$")
			defer b.WriteWithin(patience)()
			if err := writer(t, b).Append(t.Context(), at("06")...); err != nil {
				t.Errorf("Append while Prune waits: %v", err)
			}
			exec(row.after)
			if err := <-pruned; err != nil {
				t.Fatal(err)
			}
			page, err := b.Blocks(t.Context(), chaingql.BlocksQuery{First: 10})
			if err != nil || fmt.Sprint(cursorsOf(page)) != row.want {
				t.Errorf("after Prune: got %v and error %v, want %s", cursorsOf(page), err, row.want)
			}
		})
	}
}

// A statement that deletes a few blocks must not be compiled first, which takes hundreds of milliseconds.
func TestDeleteByAnOperatorDoesNotUseJIT(t *testing.T) {
	s := sharedServer(t)
	opts := &postgres.Options{Schema: newSchema()}
	if err := writer(t, open(t, s.dsn("postgres"), opts)).Append(t.Context(), at("01", "02", "03")...); err != nil {
		t.Fatal(err)
	}
	config, err := pgx.ParseConfig(s.dsn("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		if strings.Contains(n.Message, "JIT") { // the server loads the compiler when a session needs it first
			t.Errorf("the server uses JIT: %s", n.Message)
		}
	}
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, sql := range []string{
		"SET client_min_messages = debug1", "DELETE FROM " + quote(opts.Schema) + ".blocks WHERE cursor = '01'",
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
}

// connect returns a connection of an operator.
func connect(t *testing.T, s *server) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.dsn("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}
