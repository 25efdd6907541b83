package mounts_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/chaingql/chaingql/internal/testkit"
)

// startPostgres starts a PostgreSQL server in a temporary directory until the test ends, and returns its DSN.
func startPostgres(t *testing.T) (dsn string) {
	t.Helper()
	bins, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	if path, err := exec.LookPath("initdb"); err == nil {
		bins = append(bins, filepath.Dir(path))
	}
	if len(bins) == 0 {
		testkit.Missing(t, "PostgreSQL")
	}
	dir, err := os.MkdirTemp("", "chaingql-proxies-")
	if err != nil {
		t.Fatal(err)
	}
	port, err := testkit.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	// The shell stops the server when its standard input is closed, so also if the test is killed.
	const script = `PATH="$0:$PATH"; data="$1/data"
initdb -D "$data" -U postgres -A trust -E UTF8 --locale=C --no-sync >"$1/log" &&
pg_ctl -D "$data" -l "$1/log" -o "-k '$1' -p $2 -c listen_addresses= -c fsync=off" -w start >>"$1/log" &&
echo started && cat >"$1/stop"
pg_ctl -D "$data" -m immediate stop >>"$1/log"`
	cmd := exec.Command("/bin/sh", "-c", script, slices.Max(bins), dir, strconv.Itoa(port))
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt of the test must not reach the server
	if os.Getuid() == 0 {                                 // PostgreSQL refuses to run as root
		nobody, err := user.Lookup("nobody")
		if err != nil {
			t.Fatal(err)
		}
		uid, _ := strconv.Atoi(nobody.Uid)
		gid, _ := strconv.Atoi(nobody.Gid)
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = input.Close()
		_ = cmd.Wait()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if n, err := output.Read(make([]byte, 16)); n == 0 {
		log, _ := os.ReadFile(filepath.Join(dir, "log"))
		t.Fatalf("PostgreSQL did not start: %v\n%s", err, log)
	}
	return fmt.Sprintf("host=%s port=%d user=postgres dbname=postgres", dir, port)
}

// An instance is a process that serves the chain in the database. It keeps its address when it is replaced.
type instance struct {
	t       *testing.T
	program string
	args    []string
	address string
	output  testkit.Buffer
	process *os.Process
	ended   chan error
}

// newInstance starts the example host of the module postgres until the test ends.
func newInstance(t *testing.T, program string, args ...string) *instance {
	t.Helper()
	address := testkit.FreeAddress(t)
	i := &instance{t: t, program: program, args: append(args, "-addr", address), address: address}
	t.Cleanup(func() {
		i.kill()
		if t.Failed() {
			t.Logf("output of %s:\n%s", i.address, i.output.String())
		}
	})
	i.start()
	return i
}

// start starts a process and waits until it is ready.
func (i *instance) start() {
	i.t.Helper()
	cmd := exec.Command(i.program, i.args...)
	cmd.Stderr = &i.output
	if err := cmd.Start(); err != nil {
		i.t.Fatal(err)
	}
	ended := make(chan error, 1)
	i.process, i.ended = cmd.Process, ended
	go func() { ended <- cmd.Wait() }()
	ctx, cancel := context.WithTimeout(i.t.Context(), patience)
	defer cancel()
	for {
		r, err := http.NewRequestWithContext(ctx, "GET", "http://"+i.address+"/readyz", nil)
		if err != nil {
			i.t.Fatal(err)
		}
		if res, err := http.DefaultClient.Do(r); err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return
			}
		}
		if !pause(ctx, 20*time.Millisecond) {
			i.t.Fatalf("%s is not ready after %v:\n%s", i.address, patience, i.output.String())
		}
	}
}

// stop asks the process to stop, as a deployment does, and waits until it has drained and ended.
func (i *instance) stop() {
	i.t.Helper()
	i.signal(syscall.SIGTERM)
	select {
	case err := <-i.ended:
		i.ended <- err
		if err != nil {
			i.t.Errorf("%s ended with %v", i.address, err)
		}
	case <-time.After(patience):
		i.t.Fatalf("%s did not end within %v after SIGTERM", i.address, patience)
	}
}

// kill ends the process at once and waits for it.
func (i *instance) kill() {
	i.t.Helper()
	i.signal(syscall.SIGKILL)
	i.ended <- <-i.ended
}

func (i *instance) signal(s os.Signal) {
	i.t.Helper()
	if err := i.process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		i.t.Error(err)
	}
}
