package postgres_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chaingql/chaingql/internal/testkit"
)

// buildExample builds the example program and returns its path.
func buildExample(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "example")
	if out, err := exec.Command("go", "build", "-o", program, "./example").CombinedOutput(); err != nil {
		t.Fatalf("building the example failed: %v\n%s", err, out)
	}
	return program
}

// The first process writes and serves the chain, and the second one only serves it.
func TestTwoExampleProcessesShareOneChain(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	program, schema := buildExample(t), newSchema()
	host(t, program, "-dsn", s.dsn("postgres"), "-schema", schema, "-simulate", "50", "-addr", testkit.FreeAddress(t))
	address := testkit.FreeAddress(t)
	host(t, program, "-dsn", s.dsn("postgres"), "-schema", schema, "-addr", address)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if got := subscribe(ctx, "http://"+address+"/demo/graphql", "", 60); len(got) != 60 {
		t.Errorf("got %d blocks, want 60", len(got))
	}
}

func TestFirstSignalEndsReadinessOfTheExampleAndSecondSignalEndsTheProcess(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	program := buildExample(t)
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(signal.String(), func(t *testing.T) {
			testkit.CheckSignals(t, exec.Command(program, "-dsn", s.dsn("postgres"), "-schema", newSchema(),
				"-addr", "127.0.0.1:0", "-drain-lead", "1h"), signal)
		})
	}
}

// host runs the example program until the test ends. The program must then exit without an error.
func host(t *testing.T, program string, args ...string) {
	t.Helper()
	var output strings.Builder
	cmd := exec.Command(program, append(args, "-drain-lead", "0s")...)
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		stuck := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
		defer stuck.Stop()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the example exited with %v:\n%s", err, &output)
		}
	})
}
