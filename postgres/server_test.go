package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/chaingql/chaingql/internal/testkit"
)

// A server is a PostgreSQL server for tests, in a temporary directory.
type server struct {
	dir  string
	port int
	bin  string
	as   *syscall.Credential // the user that runs the server; nil means the user that runs the tests
	set  []string            // settings in the form name=value

	process *exec.Cmd    // a shell that stops the server when its standard input is closed
	tether  io.Closer    // the standard input of process, which is also closed if the tests die
	output  bytes.Buffer // the server's log
}

var errNoServer = errors.New("PostgreSQL is not installed: " +
	"postgres and initdb are neither in PATH nor in /usr/lib/postgresql/*/bin")

// binaries finds the directory with postgres and initdb.
func binaries() (string, error) {
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	dirs = append(dirs, "/usr/local/bin")
	if path, err := exec.LookPath("postgres"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(path))
		}
	}
	for i := len(dirs) - 1; i >= 0; i-- {
		_, noServer := os.Stat(filepath.Join(dirs[i], "postgres"))
		_, noInit := os.Stat(filepath.Join(dirs[i], "initdb"))
		if noServer == nil && noInit == nil {
			return dirs[i], nil
		}
	}
	return "", errNoServer
}

// newServer creates a database cluster and starts its server.
func newServer(set ...string) (*server, error) {
	return createServer(set, func(s *server) error {
		err := s.run("initdb", "-D", s.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
		if err != nil {
			return err
		}
		// Over TCP, all users except the superuser need a password.
		hba := "local all all trust\nhost all,replication postgres 127.0.0.1/32 trust\n" +
			"host all all 127.0.0.1/32 scram-sha-256\n"
		return os.WriteFile(filepath.Join(s.data(), "pg_hba.conf"), []byte(hba), 0o600)
	})
}

// replica starts a read-only replica of s.
func (s *server) replica() (*server, error) {
	return createServer(s.set, func(r *server) error {
		return r.run("pg_basebackup", "-D", r.data(), "-R", "-X", "stream", "-c", "fast", "--no-sync", "-h",
			"127.0.0.1", "-p", strconv.Itoa(s.port), "-U", "postgres")
	})
}

// createServer creates a temporary directory, calls fill to create the data of a server in it, and starts the server.
func createServer(set []string, fill func(*server) error) (s *server, err error) {
	s = &server{set: set}
	if s.bin, err = binaries(); err != nil {
		return nil, err
	}
	if s.dir, err = os.MkdirTemp("", "chaingql-postgres-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(s.dir))
		}
	}()
	if os.Getuid() == 0 { // PostgreSQL refuses to run as root
		nobody, err := user.Lookup("nobody")
		if err != nil {
			return nil, err
		}
		uid, _ := strconv.Atoi(nobody.Uid)
		gid, _ := strconv.Atoi(nobody.Gid)
		if err := os.Chown(s.dir, uid, gid); err != nil {
			return nil, err
		}
		s.as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	if err := fill(s); err != nil {
		return nil, err
	}
	return s, s.start()
}

// run runs one of PostgreSQL's programs.
func (s *server) run(name string, args ...string) error {
	if out, err := s.command(filepath.Join(s.bin, name), args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

func (s *server) data() string { return filepath.Join(s.dir, "data") }

func (s *server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = s.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "HOME=" + s.dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.as, Setpgid: true}
	return cmd
}

// start starts the server and waits until it accepts connections. After a crash, the server uses the same port.
func (s *server) start() error {
	if s.port == 0 {
		port, err := testkit.FreePort()
		if err != nil {
			return err
		}
		s.port = port
	}
	args := []string{"-c", `"$0" "$@" & server=$!; cat >/dev/null; kill -INT $server 2>/dev/null; wait $server`,
		filepath.Join(s.bin, "postgres"), "-D", s.data(), "-k", s.dir, "-p", strconv.Itoa(s.port),
		"-c", "listen_addresses=127.0.0.1", "-c", "max_connections=200"}
	for _, set := range s.set {
		args = append(args, "-c", set)
	}
	s.process = s.command("/bin/sh", args...)
	s.output.Reset()
	s.process.Stdout, s.process.Stderr = &s.output, &s.output
	tether, err := s.process.StdinPipe()
	if err != nil {
		return err
	}
	s.tether = tether
	if err := s.process.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, s.dsn("postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-time.After(30 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("the server does not accept connections: %w", err), s.end())
		}
	}
}

// dsn returns a DSN that connects through the server's Unix socket.
func (s *server) dsn(database string) string {
	return fmt.Sprintf("host=%s port=%d user=postgres dbname=%s", s.dir, s.port, database)
}

// tcp returns a DSN that connects to a port of 127.0.0.1, which may be that of a proxy.
func (s *server) tcp(port int, userinfo, database string) string {
	return fmt.Sprintf("postgres://%s@127.0.0.1:%d/%s?sslmode=disable", userinfo, port, database)
}

// crash stops the server immediately with SIGQUIT and waits until it has ended.
func (s *server) crash() error {
	pid, err := s.pid()
	if err != nil {
		return err
	}
	return errors.Join(syscall.Kill(pid, syscall.SIGQUIT), s.end())
}

func (s *server) pid() (int, error) {
	text, err := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(text), "\n")
	return strconv.Atoi(first)
}

// end stops the server if it still runs.
func (s *server) end() error {
	err := s.tether.Close()
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	_ = s.process.Wait() // the exit status is that of the stopped server
	return err
}

// remove stops the server and deletes its directory.
func (s *server) remove() error { return errors.Join(s.end(), os.RemoveAll(s.dir)) }

// All tests that do not crash their server share one. The first such test starts it, and TestMain removes it.
var (
	running *server
	shared  = sync.OnceValues(func() (s *server, err error) {
		running, err = newServer("fsync=off", "full_page_writes=off")
		return running, err
	})
)

// sharedServer returns the shared server. The test is skipped if PostgreSQL is not installed.
func sharedServer(t testing.TB) *server {
	t.Helper()
	s, err := shared()
	if errors.Is(err, errNoServer) {
		testkit.Missing(t, "PostgreSQL")
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ownServer starts a server for one test. It is removed at the end of the test.
func ownServer(t testing.TB, set ...string) *server {
	t.Helper()
	s, err := newServer(set...)
	return owned(t, s, err)
}

func owned(t testing.TB, s *server, err error) *server {
	t.Helper()
	if errors.Is(err, errNoServer) {
		testkit.Missing(t, "PostgreSQL")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.remove(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// version returns the version of the server as in server_version_num.
func (s *server) version(t testing.TB) (version int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.dsn("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if err := conn.QueryRow(t.Context(),
		"SELECT current_setting('server_version_num')::int").Scan(&version); err != nil {
		t.Fatal(err)
	}
	return version
}

// admin runs statements as the superuser.
func (s *server) admin(t testing.TB, statements ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.dsn("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}
