package postgres_test

import (
	"context"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/backendtest"
	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/chaingql/chaingql/postgres"
)

// PgBouncer may run each transaction on another connection of the server. The test is skipped if PgBouncer is not
// installed.
func TestBackendMeetsContractThroughPgBouncer(t *testing.T) {
	t.Parallel() // it mostly waits
	s := sharedServer(t)
	dsn := pooled(t, s, pgbouncer(t))
	backendtest.Run(t, func(t *testing.T) backendtest.Harness {
		b := open(t, dsn, &postgres.Options{PollInterval: 5 * time.Millisecond})
		w, ctx := writer(t, b), context.Background()
		return backendtest.Harness{
			Backend:    b,
			Append:     func(blocks []chaingql.Block) error { return w.Append(ctx, blocks...) },
			SetBalance: func(a chaingql.Address, nano *big.Int) error { return w.SetBalance(ctx, a, nano) },
			Prune:      func(before chaingql.Cursor) error { return w.Prune(ctx, before) },
		}
	})
}

func TestOpenFailsIfPoolerForwardsNoNotifications(t *testing.T) {
	t.Parallel() // it waits for a timeout
	s := sharedServer(t)
	dsn := pooled(t, s, pgbouncer(t))
	_, err := postgres.Open(t.Context(), dsn, &postgres.Options{Schema: newSchema()})
	expectError(t, err, "PgBouncer in transaction mode set Options.PollInterval")
}

// pgbouncer finds the PgBouncer program. Debian installs it in a directory that only root's PATH contains.
func pgbouncer(t *testing.T) string {
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		if program, err := exec.LookPath(name); err == nil {
			return program
		}
	}
	testkit.Missing(t, "pgbouncer")
	return ""
}

// pooled starts a PgBouncer in transaction mode in front of s and returns its DSN.
func pooled(t *testing.T, s *server, program string) (dsn string) {
	t.Helper()
	_, port, err := net.SplitHostPort(testkit.FreeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	settings := fmt.Sprintf(`[databases]
postgres = host=%[1]s port=%[2]d user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %[3]s
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 6
`, s.dir, s.port, port)
	file := filepath.Join(s.dir, "pgbouncer-"+port+".ini") // each test starts its own
	if err := os.WriteFile(file, []byte(settings), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := s.command(program, file)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	dsn = fmt.Sprintf("postgres://postgres@127.0.0.1:%s/postgres?sslmode=disable", port)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, dsn)
		if err == nil {
			_ = conn.Close(ctx)
			return dsn
		}
		if !sleep(ctx, 20*time.Millisecond) {
			t.Fatal(err)
		}
	}
}
