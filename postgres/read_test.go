package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/backendtest"
	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/chaingql/chaingql/postgres"
	"github.com/jackc/pgx/v5"
)

// sessions returns the process ids of the connections with an application name.
func sessions(t *testing.T, s *server, name string) (pids []int32) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.dsn("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	rows, err := conn.Query(t.Context(), "SELECT pid FROM pg_stat_activity WHERE application_name = $1 ORDER BY pid",
		name)
	if err != nil {
		t.Fatal(err)
	}
	if pids, err = pgx.CollectRows(rows, pgx.RowTo[int32]); err != nil {
		t.Fatal(err)
	}
	return pids
}

// fillPool opens all connections of the pool.
func fillPool(t *testing.T, b *postgres.Backend) {
	t.Helper()
	if err := b.FillPool(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// If a canceled call closed its connection, other callers would have to wait for a new one.
func TestCanceledCallsKeepConnectionsOpen(t *testing.T) {
	s := sharedServer(t)
	name := fmt.Sprintf("leave%d", schemas.Add(1))
	b := open(t, s.dsn("postgres")+" pool_max_conns=2 application_name="+name, nil)
	if err := writer(t, b).Append(t.Context(), backendtest.Chain(1000, 1)...); err != nil {
		t.Fatal(err)
	}
	fillPool(t, b)
	before := sessions(t, s, name)
	for range 50 {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Microsecond)
		_, _ = b.Blocks(ctx, chaingql.BlocksQuery{Last: 1000}) // Blocks may return before ctx is done
		cancel()
	}
	if now := sessions(t, s, name); !slices.Equal(now, before) {
		t.Errorf("after canceled calls: got connections of processes %v, want %v as before", now, before)
	}
}

func TestDeadConnectionsFailAtMostOneRead(t *testing.T) {
	t.Parallel() // it waits for timeouts
	s := sharedServer(t)
	p := testkit.NewProxy(t, fmt.Sprintf("127.0.0.1:%d", s.port))
	b := open(t, s.tcp(p.Port(), "postgres", "postgres")+"&pool_max_conns=6",
		&postgres.Options{Schema: newSchema(), Timeout: 2 * time.Second})
	if err := writer(t, b).Append(t.Context(), backendtest.Chain(10, 1)...); err != nil {
		t.Fatal(err)
	}
	fillPool(t, b)
	p.Forget()
	if _, err := b.Blocks(t.Context(), chaingql.BlocksQuery{Last: 1}); err != nil &&
		!errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the first read returned %v, want no error or DeadlineExceeded", err)
	}
	if _, err := b.Blocks(t.Context(), chaingql.BlocksQuery{Last: 1}); err != nil {
		t.Errorf("the second read failed: %v", err)
	}
}
