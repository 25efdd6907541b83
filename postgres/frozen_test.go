package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/postgres"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Environment variables with which TestWriterRunsInAHelperProcess runs as a process that only writes.
const (
	frozenDSN    = "CHAINGQL_TEST_WRITER_DSN"
	frozenSchema = "CHAINGQL_TEST_WRITER_SCHEMA"
	frozenBatch  = "CHAINGQL_TEST_WRITER_BATCH"
	frozenPoll   = "CHAINGQL_TEST_WRITER_POLL"
)

// frozenLimit is the time within which a Writer must succeed after the process of another Writer froze.
const frozenLimit = 15 * time.Second

// TestWriterSucceedsAfterLockHolderFreezes pauses a process while it holds the chain's lock. The
// operating system keeps the connection of the paused process open and answers keep-alives.
func TestWriterSucceedsAfterLockHolderFreezes(t *testing.T) {
	t.Parallel() // it waits for timeouts
	s := sharedServer(t)
	for _, batch := range []int{1, 10, 20_000} {
		for _, poll := range []time.Duration{0, time.Second} {
			t.Run(fmt.Sprintf("batches of %d, poll %v", batch, poll), func(t *testing.T) {
				t.Parallel()
				opts := &postgres.Options{Schema: newSchema()}
				b := open(t, s.dsn("postgres"), opts)
				w := writer(t, b)
				name := fmt.Sprintf("frozen%d", schemas.Add(1))
				child := startWriter(t, s.tcp(s.port, "postgres", "postgres")+"&application_name="+name, opts.Schema,
					batch, poll)
				freezeWithLock(t, s, child, name)

				start := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), frozenLimit)
				defer cancel()
				last := chaingql.Block{Cursor: "ff", Time: time.Unix(0, 0).UTC()}
				if err := w.Append(ctx, last); err != nil {
					t.Fatalf("Append failed after %v: %v", time.Since(start), err)
				}
				t.Logf("appended after %v", time.Since(start))
				page, err := b.Blocks(t.Context(), chaingql.BlocksQuery{Last: 2})
				if err != nil || len(page) == 0 || page[len(page)-1] != last {
					t.Errorf("got newest blocks %v and error %v, want %v at the end", page, err, last)
				}
				if err := child.Signal(syscall.SIGCONT); err != nil {
					t.Fatal(err)
				}
				expectConflict(t, child)
			})
		}
	}
}

func TestWriteTransactionsSetServerTimeouts(t *testing.T) {
	s := sharedServer(t)
	conn, err := pgx.Connect(t.Context(), s.tcp(s.port, "postgres", "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	const sql = `SELECT concat_ws(' ',
		current_setting('idle_in_transaction_session_timeout'), current_setting('statement_timeout'),
		current_setting('tcp_keepalives_idle'), current_setting('tcp_keepalives_interval'),
		current_setting('tcp_keepalives_count'))`
	settings := func() (text string) {
		if err := conn.QueryRow(t.Context(), sql).Scan(&text); err != nil {
			t.Fatal(err)
		}
		return text
	}
	before := settings()
	for _, row := range []struct {
		limit time.Duration
		want  string
	}{
		{time.Minute, "5s 62s 5 2 3"},
		{time.Microsecond, "5s 2s 5 2 3"},
		{1 << 62, "5s 2147483647ms 5 2 3"},
	} {
		tx, err := conn.BeginTx(t.Context(), postgres.Writing(row.limit))
		if err != nil {
			t.Fatal(err)
		}
		if got := settings(); got != row.want {
			t.Errorf("with a limit of %v: got settings %s, want %s", row.limit, got, row.want)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := settings(); got != before {
			t.Errorf("after the transaction: got settings %s, want %s", got, before)
		}
	}
}

// PostgreSQL's own timeout may be noticed before the deadline of the context.
func TestServerTimeoutAfterDeadlineIsDeadlineExceeded(t *testing.T) {
	for _, row := range []struct {
		left time.Duration
		code string
		want bool
	}{
		{0, "57014", true}, {-time.Minute, "57014", true},
		{time.Minute, "57014", false}, // canceled by another client
		{-time.Minute, "40001", false},
	} {
		ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(row.left))
		cause := &pgconn.PgError{Code: row.code}
		err := postgres.Failed("write", postgres.WithDeadline(ctx, fmt.Errorf("wrapped: %w", cause)))
		cancel()
		if !errors.Is(err, cause) || errors.Is(err, context.DeadlineExceeded) != row.want {
			t.Errorf("code %s, %v before the deadline: got error %v, want DeadlineExceeded: %t",
				row.code, row.left, err, row.want)
		}
	}
}

// TestWriterRunsInAHelperProcess runs only in the process that TestWriterSucceedsAfterLockHolderFreezes starts.
// It appends blocks until Append returns ErrConflict, because the other test appended a later block. Then
// the process exits with status 0.
func TestWriterRunsInAHelperProcess(t *testing.T) {
	dsn := os.Getenv(frozenDSN)
	if dsn == "" {
		return // this is not the process of the other test
	}
	size, _ := strconv.Atoi(os.Getenv(frozenBatch))
	poll, _ := time.ParseDuration(os.Getenv(frozenPoll))
	w := writer(t, open(t, dsn, &postgres.Options{Schema: os.Getenv(frozenSchema), PollInterval: poll}))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for number := uint64(1); ; number += uint64(size) {
		blocks := make([]chaingql.Block, size)
		for i := range blocks {
			blocks[i] = chaingql.Block{Cursor: "0" + chaingql.SeqCursor(number+uint64(i))}
		}
		for {
			err := w.Append(ctx, blocks...)
			if errors.Is(err, postgres.ErrConflict) {
				return
			}
			if ctx.Err() != nil {
				t.Fatal(err)
			}
			if err == nil {
				break
			}
		}
	}
}

func startWriter(t *testing.T, dsn, schema string, batch int, poll time.Duration) *os.Process {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestWriterRunsInAHelperProcess$")
	cmd.Env = append(os.Environ(), frozenDSN+"="+dsn, frozenSchema+"="+schema,
		fmt.Sprintf("%s=%d", frozenBatch, batch), fmt.Sprintf("%s=%v", frozenPoll, poll))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process
}

// freezeWithLock pauses a process while it holds the chain's lock and PostgreSQL waits for its next message.
func freezeWithLock(t *testing.T, s *server, process *os.Process, name string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.dsn("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	const waiting = `SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
		WHERE a.application_name = $1 AND l.locktype = 'advisory' AND l.granted AND a.wait_event_type = 'Client'`
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if err := process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		n := 0
		for range 3 { // the process must still hold the lock after all statements sent so far have run
			time.Sleep(10 * time.Millisecond)
			if err := conn.QueryRow(t.Context(), waiting, name).Scan(&n); err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				break
			}
		}
		if n > 0 {
			return
		}
		if err := process.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Millisecond)
	}
	t.Fatal("the process never held the lock when it was paused")
}

// expectConflict waits until the process of TestWriterRunsInAHelperProcess has received ErrConflict and exited.
func expectConflict(t *testing.T, process *os.Process) {
	t.Helper()
	state := make(chan *os.ProcessState, 1)
	go func() {
		ended, _ := process.Wait()
		state <- ended
	}()
	select {
	case ended := <-state:
		if ended == nil || !ended.Success() {
			t.Errorf("the frozen process ended with %v", ended)
		}
	case <-time.After(3 * patience):
		t.Error("the frozen process did not notice the conflict")
	}
}
