package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/backendtest"
	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/chaingql/chaingql/postgres"
	"github.com/jackc/pgx/v5"
)

// patience is the maximum time to wait for an event that must happen.
const patience = 10 * time.Second

// A reading is a Follow that runs in its own goroutine.
type reading struct {
	blocks chan chaingql.Cursor
	ended  chan error
	stop   context.CancelFunc
}

func read(t testing.TB, b *postgres.Backend, after chaingql.Cursor) *reading {
	ctx, cancel := context.WithCancel(context.Background())
	r := &reading{make(chan chaingql.Cursor), make(chan error, 1), cancel}
	go func() {
		for block, err := range b.Follow(ctx, after) {
			if err != nil {
				r.ended <- err
				return
			}
			select {
			case r.blocks <- block.Cursor:
			case <-ctx.Done():
			}
		}
	}()
	t.Cleanup(cancel)
	return r
}

// expect checks that Follow yields blocks next.
func (r *reading) expect(t *testing.T, blocks ...chaingql.Block) {
	t.Helper()
	for _, b := range blocks {
		select {
		case c := <-r.blocks:
			if c != b.Cursor {
				t.Fatalf("got block %q, want %q", c, b.Cursor)
			}
		case err := <-r.ended:
			t.Fatalf("Follow ended with %v, want block %q", err, b.Cursor)
		case <-time.After(patience):
			t.Fatalf("got no block, want %q", b.Cursor)
		}
	}
}

// end waits until Follow has ended without yielding another block, and returns its error.
func (r *reading) end(t *testing.T) error {
	t.Helper()
	select {
	case err := <-r.ended:
		return err
	case c := <-r.blocks:
		t.Fatalf("got block %q, want the end of Follow", c)
	case <-time.After(patience):
		t.Fatal("Follow did not end")
	}
	return nil
}

// listeners returns the number of connections with an application name whose last statement was LISTEN.
func listeners(t *testing.T, s *server, name string) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.dsn("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	err = conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity"+
		" WHERE application_name = $1 AND query LIKE 'LISTEN%'", name).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// expectListeners waits until want LISTEN connections are left. Others may still be closing, for example the
// one with which Open checks notifications. It waits less than pingAfter, because after a ping the last
// statement of a connection is not LISTEN.
func expectListeners(t *testing.T, s *server, name string, want int) {
	t.Helper()
	for end := time.Now().Add(patience / 2); ; {
		n := listeners(t, s, name)
		if n == want {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("got %d LISTEN connections, want %d", n, want)
		}
	}
}

func TestFollowCallsShareOneListener(t *testing.T) {
	s := sharedServer(t)
	name := fmt.Sprintf("shares%d", schemas.Add(1))
	b := open(t, s.dsn("postgres")+" application_name="+name, nil)
	w := writer(t, b)
	all := backendtest.Chain(4, 1)
	var readings []*reading
	for range 5 {
		readings = append(readings, read(t, b, ""))
	}
	if err := w.Append(t.Context(), all[:2]...); err != nil {
		t.Fatal(err)
	}
	for _, r := range readings {
		r.expect(t, all[:2]...)
	}
	expectListeners(t, s, name, 1) // shared by 5 Follows
	for _, r := range readings[1:] {
		r.stop()
		_ = r.end(t)
	}
	if err := w.Append(t.Context(), all[2:]...); err != nil {
		t.Fatal(err)
	}
	readings[0].expect(t, all[2:]...)
	readings[0].stop()
	_ = readings[0].end(t)
	expectListeners(t, s, name, 0)
}

func TestFollowCanBeResumedAfterListenerIsLost(t *testing.T) {
	s := sharedServer(t)
	name := fmt.Sprintf("loses%d", schemas.Add(1))
	b := open(t, s.dsn("postgres")+" application_name="+name, nil)
	w := writer(t, b)
	all := backendtest.Chain(30, 1)
	last := chaingql.Cursor("")
	for from := 0; from < 30; from += 10 {
		r, other := read(t, b, last), read(t, b, last)
		if err := w.Append(t.Context(), all[from:from+5]...); err != nil {
			t.Fatal(err)
		}
		r.expect(t, all[from:from+5]...)
		other.expect(t, all[from:from+5]...)
		s.admin(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"+
			" WHERE application_name = '"+name+"' AND query LIKE 'LISTEN%'")
		for _, err := range []error{r.end(t), other.end(t)} {
			expectError(t, err, "postgres: listen for new blocks: FATAL: terminating connection")
		}
		if err := w.Append(t.Context(), all[from+5:from+10]...); err != nil {
			t.Fatal(err)
		}
		last = all[from+4].Cursor
		again := read(t, b, last)
		again.expect(t, all[from+5:from+10]...)
		again.stop()
		_ = again.end(t)
		last = all[from+9].Cursor
	}
}

func TestFollowEndsIfListenerStalls(t *testing.T) {
	t.Parallel() // it waits for a timeout
	s := sharedServer(t)
	p := testkit.NewProxy(t, fmt.Sprintf("127.0.0.1:%d", s.port))
	opts := &postgres.Options{Schema: newSchema(), RecheckInterval: time.Hour}
	b := open(t, s.tcp(p.Port(), "postgres", "postgres"), opts)
	b.PingListenerAfter(20 * time.Millisecond)
	w := writer(t, open(t, s.dsn("postgres"), opts))
	all := backendtest.Chain(3, 1)
	r := read(t, b, "")
	for i := range all { // Follow does not end while the server responds to pings
		select {
		case <-time.After(60 * time.Millisecond):
		case err := <-r.ended:
			t.Fatal(err)
		}
		if err := w.Append(t.Context(), all[i]); err != nil {
			t.Fatal(err)
		}
		r.expect(t, all[i])
	}
	defer p.Stall()()
	expectError(t, r.end(t), "postgres: listen for new blocks: ")
}

func TestFollowFindsBlocksWithoutNotification(t *testing.T) {
	s := sharedServer(t)
	schema := newSchema()
	b := open(t, s.dsn("postgres"), &postgres.Options{Schema: schema, RecheckInterval: 20 * time.Millisecond})
	r := read(t, b, "")
	for i, c := range []string{"01", "02", "03"} {
		s.admin(t, fmt.Sprintf("INSERT INTO %s.blocks VALUES ('%s', -1, 1, %d, decode(repeat('00', 32), 'hex'), now())",
			quote(schema), c, i))
		r.expect(t, chaingql.Block{Cursor: chaingql.Cursor(c)})
	}
}

func TestPollingBackendUsesNeitherListenNorPreparedStatements(t *testing.T) {
	t.Parallel()
	s := ownServer(t, "log_statement=all", "fsync=off")
	schema := newSchema()
	b := open(t, s.dsn("postgres"), &postgres.Options{Schema: schema, PollInterval: 5 * time.Millisecond})
	w := writer(t, b)
	all := backendtest.Chain(20, 1)
	r := read(t, b, "")
	for i := range all {
		if err := w.Append(t.Context(), all[i]); err != nil {
			t.Fatal(err)
		}
		r.expect(t, all[i])
	}
	r.stop()
	_ = r.end(t)
	if _, err := b.Balances(t.Context(), make([]chaingql.Address, 1)); err != nil {
		t.Fatal(err)
	}
	b.Close()
	if err := s.end(); err != nil {
		t.Fatal(err)
	}
	log := s.output.String()
	if !strings.Contains(log, "execute <unnamed>: SELECT s.pruned") {
		t.Fatalf("the server's log does not contain the unprepared statement of a page:\n%s", log)
	}
	for _, word := range []string{"LISTEN", "stmtcache"} {
		if strings.Contains(log, word) {
			t.Errorf("the server's log contains %s", word)
		}
	}
}

func TestCloseEndsEveryFollow(t *testing.T) {
	s := sharedServer(t)
	for _, poll := range []time.Duration{0, time.Hour} {
		b := open(t, s.dsn("postgres"), &postgres.Options{PollInterval: poll})
		block := backendtest.Chain(1, 1)[0]
		if err := writer(t, b).Append(t.Context(), block); err != nil {
			t.Fatal(err)
		}
		one, two := read(t, b, ""), read(t, b, "")
		one.expect(t, block)
		two.expect(t, block)
		b.Close()
		for _, err := range []error{one.end(t), two.end(t)} {
			expectError(t, err, "the Backend was closed")
		}
		expectError(t, read(t, b, "").end(t), "the Backend was closed")
		if _, err := b.Blocks(t.Context(), chaingql.BlocksQuery{Last: 1}); err == nil {
			t.Error("Blocks of a closed Backend returned no error")
		}
	}
}
