package postgres_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chaingql/chaingql/backendtest"
	"github.com/chaingql/chaingql/postgres"
)

func TestBackendPollsReadOnlyReplica(t *testing.T) {
	t.Parallel()
	primary := ownServer(t, "fsync=off")
	w := writer(t, open(t, primary.dsn("postgres"), &postgres.Options{Schema: "live"}))
	all := backendtest.Chain(30, 1)
	if err := w.Append(t.Context(), all[:10]...); err != nil {
		t.Fatal(err)
	}
	s, err := primary.replica()
	s = owned(t, s, err)
	b := open(t, s.dsn("postgres"), &postgres.Options{Schema: "live"})
	if !b.Polls() {
		t.Error("the Backend of a read-only replica uses LISTEN, want polling")
	}
	r := read(t, b, "")
	r.expect(t, all[:10]...)
	for i := 10; i < 30; i += 5 {
		if err := w.Append(t.Context(), all[i:i+5]...); err != nil {
			t.Fatal(err)
		}
		r.expect(t, all[i:i+5]...)
	}
	r.stop()
	_ = r.end(t)

	_, err = b.Writer(t.Context())
	expectError(t, err, "read-only replica")
	_, err = postgres.Open(t.Context(), s.dsn("postgres"), &postgres.Options{Schema: "other"})
	expectError(t, err, "there are no tables")

	// A pool that may connect to the replica could stay there after a restart of the primary.
	both := fmt.Sprintf("host=%s,%s port=%d,%d user=postgres dbname=postgres", s.dir, primary.dir, s.port, primary.port)
	for settings, replica := range map[string]bool{"": false, " target_session_attrs=standby": true} {
		b := open(t, both+settings, &postgres.Options{Schema: "live"})
		if b.Polls() != replica {
			t.Errorf("DSN %q: the Backend uses the replica: %v, want %v", both+settings, b.Polls(), replica)
		}
	}
}

// After a switchover, the name of the primary may point to a server for a moment that is a replica now.
func TestWriterLeavesReplica(t *testing.T) {
	primary := ownServer(t, "fsync=off")
	var port atomic.Int64
	port.Store(int64(primary.port))
	t.Cleanup(postgres.LookingUp(func(context.Context, string) ([]string, error) {
		return []string{fmt.Sprintf("127.0.0.1:%d", port.Load())}, nil
	}))
	b := open(t, "postgres://postgres@db.test/postgres?sslmode=disable&application_name=switchover", nil)
	w, all := writer(t, b), backendtest.Chain(20, 1)
	if err := w.Append(t.Context(), all[:10]...); err != nil {
		t.Fatal(err)
	}
	r, err := primary.replica()
	r = owned(t, r, err)
	port.Store(int64(r.port))
	primary.admin(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'switchover'")
	t.Cleanup(postgres.LeavingReplicas(time.Hour))
	var connections []int32
	for i := range 5 {
		expectError(t, w.Append(t.Context(), all[10:15]...), "during recovery")
		now := sessions(t, r, "switchover")
		if i > 1 && !slices.Equal(now, connections) { // the first calls leave broken connections and the replica
			t.Errorf("Append closed the connections of readers again: got processes %v, want %v", now, connections)
		}
		connections = now
	}
	defer postgres.LeavingReplicas(0)()
	port.Store(int64(primary.port))
	r.admin(t, "SELECT pg_wal_replay_pause()")
	if err := w.Append(t.Context(), all[10:]...); err != nil {
		t.Errorf("Append after the name points to the primary again: %v", err)
	}
	read(t, b, all[9].Cursor).expect(t, all[10:]...)
}

func TestFollowPollsWhenItsServerHasBecomeReplica(t *testing.T) {
	t.Parallel()
	s := ownServer(t, "fsync=off")
	b := open(t, s.dsn("postgres"), nil)
	all := backendtest.Chain(20, 1)
	if err := writer(t, b).Append(t.Context(), all[:10]...); err != nil {
		t.Fatal(err)
	}
	r := read(t, b, "")
	r.expect(t, all[:10]...)
	if err := s.end(); err != nil {
		t.Fatal(err)
	}
	_ = r.end(t) // its connection is lost
	signal := filepath.Join(s.data(), "standby.signal")
	if err := os.WriteFile(signal, nil, 0o644); err != nil { // a switchover: the server restarts as a replica
		t.Fatal(err)
	}
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
	r = read(t, b, all[4].Cursor)
	r.expect(t, all[5:10]...)
	s.admin(t, "SELECT pg_promote()")
	if err := writer(t, b).Append(t.Context(), all[10:15]...); err != nil {
		t.Fatal(err)
	}
	r.expect(t, all[10:15]...)
	r.stop()
	_ = r.end(t)
}
