package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/chaingql/chaingql/postgres"
	"github.com/jackc/pgx/v5"
)

func TestBackendsOfOneDatabaseShareOneListener(t *testing.T) {
	s := sharedServer(t)
	name := fmt.Sprintf("shares%d", schemas.Add(1))
	other := "other" + name
	s.admin(t, "CREATE DATABASE "+other)
	first, second, away := at("01"), at("02", "03"), at("04")
	deaf := time.Hour // only notifications wake Follow
	var backends []*postgres.Backend
	var writers []*postgres.Writer
	for _, dsn := range []string{s.dsn("postgres"), s.dsn("postgres") + " pool_max_conns=2", s.dsn(other)} {
		b := open(t, dsn+" application_name="+name, &postgres.Options{RecheckInterval: deaf})
		backends, writers = append(backends, b), append(writers, writer(t, b))
	}
	var readings []*reading
	for _, b := range backends {
		readings = append(readings, read(t, b, ""))
	}
	for i, blocks := range [][]chaingql.Block{first, second[:1], away} {
		if err := writers[i].Append(t.Context(), blocks...); err != nil {
			t.Fatal(err)
		}
		readings[i].expect(t, blocks...)
	}
	expectListeners(t, s, name, 2) // for 3 Backends of 2 databases
	backends[0].Close()            // the Backend that started the shared listener
	expectError(t, readings[0].end(t), "the Backend was closed")
	if err := writers[1].Append(t.Context(), second[1]); err != nil {
		t.Fatal(err)
	}
	readings[1].expect(t, second[1])
	backends[1].Close()
	backends[2].Close()
	expectListeners(t, s, name, 0)
	expectError(t, readings[1].end(t), "the Backend was closed")
	expectError(t, readings[2].end(t), "the Backend was closed")
}

func TestCloseStopsListenerWhileFollowYields(t *testing.T) {
	s := sharedServer(t)
	name := fmt.Sprintf("busy%d", schemas.Add(1))
	b := open(t, s.dsn("postgres")+" application_name="+name, nil)
	if err := writer(t, b).Append(t.Context(), at("01", "02")...); err != nil {
		t.Fatal(err)
	}
	r := read(t, b, "")
	r.expect(t, at("01")...)
	b.Close() // while Follow yields the second block and no one receives it
	expectListeners(t, s, name, 0)
	r.expect(t, at("02")...)
	expectError(t, r.end(t), "the Backend was closed")
}

// PostgreSQL does not count the notifications that it sends, so the session of a listener is always idle. The test sets
// the timeout when the pool is full, because new timeouts apply only to new connections.
func TestFollowDoesNotEndAfterIdleSessionTimeout(t *testing.T) {
	t.Parallel() // it waits for the timeout
	s := sharedServer(t)
	if s.version(t) < 140000 {
		testkit.Missing(t, "PostgreSQL 14, which idle_session_timeout needs,")
	}
	database := fmt.Sprintf("idle%d", schemas.Add(1))
	s.admin(t, "CREATE DATABASE "+database)
	b := open(t, s.dsn(database)+" pool_max_conns=2", &postgres.Options{RecheckInterval: time.Hour}) // no polling
	w := writer(t, b)
	fillPool(t, b)
	s.admin(t, "ALTER DATABASE "+database+" SET idle_session_timeout = '1s'")
	r := read(t, b, "")
	if err := w.Append(t.Context(), at("01")...); err != nil {
		t.Fatal(err)
	}
	r.expect(t, at("01")...)
	other, err := pgx.Connect(t.Context(), s.dsn(database)) // after the listener, so the server would end that first
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(context.Background())
	waiting, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err = other.WaitForNotification(waiting)
	expectError(t, err, "idle-session timeout")
	if err := w.Append(t.Context(), at("02")...); err != nil {
		t.Fatal(err)
	}
	r.expect(t, at("02")...)
}

func TestDestinationsDifferIfListenersMustNotBeShared(t *testing.T) {
	const plain = "postgres://app:one@db:5432/chain?sslmode=disable"
	for _, row := range []struct {
		dsn  string
		same bool
	}{
		{plain, true},
		{"host=db port=5432 user=app password=two dbname=chain sslmode=disable application_name=x pool_max_conns=9",
			true},
		{"postgres://app:one@db:5433/chain?sslmode=disable", false},
		{"postgres://app:one@db2:5432/chain?sslmode=disable", false},
		{"postgres://app:one@db:5432,db2:5432/chain?sslmode=disable", false},
		{"postgres://other:one@db:5432/chain?sslmode=disable", false},
		{"postgres://app:one@db:5432/other?sslmode=disable", false},
		{"postgres://app:one@db:5432/chain?sslmode=disable&target_session_attrs=read-write", false},
		{"postgres://app:one@db:5432/chain?sslmode=require", false},
		{"postgres://app:one@db:5432/chain?sslmode=verify-full", false},
	} {
		want, err := postgres.Destination(plain)
		if err != nil {
			t.Fatal(err)
		}
		got, err := postgres.Destination(row.dsn)
		if err != nil || (got == want) != row.same {
			t.Errorf("%s: got destination %s and error %v, want the destination of %s: %t",
				row.dsn, got, err, plain, row.same)
		}
	}
	seen := map[string]string{}
	for _, mode := range []string{"disable", "prefer", "require", "verify-full"} {
		to, err := postgres.Destination("postgres://app:one@db:5432/chain?sslmode=" + mode)
		if err != nil || seen[to] != "" {
			t.Errorf("sslmode=%s: got the destination of sslmode=%s, %s, and error %v, want a new destination",
				mode, seen[to], to, err)
		}
		seen[to] = mode
	}
}
