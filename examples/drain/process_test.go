package main

import (
	"bufio"
	"context"
	"net/http"
	"os"
	"os/exec"
	ossignal "os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chaingql/chaingql/internal/testkit"
)

// asProgram is an environment variable. If it is set, the test binary runs the program instead of the tests, in a
// process that can receive signals.
const asProgram = "CHAINGQL_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	code := m.Run()
	http.DefaultClient.CloseIdleConnections()
	os.Exit(testkit.CheckLeaks(code, os.Stderr, 3*time.Second))
}

// The lead is longer than the test, so only the second signal can end the process.
func TestFirstSignalEndsReadinessOnlyAndSecondSignalEndsTheProcess(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(signal.String(), func(t *testing.T) { endsOnSecond(t, signal) })
	}
}

func endsOnSecond(t *testing.T, signal syscall.Signal) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	// If the tests run with nohup, the program would inherit that SIGHUP is ignored. It does not inherit a handler.
	received := make(chan os.Signal, 1)
	ossignal.Notify(received, signal)
	defer ossignal.Stop(received)
	program := exec.CommandContext(ctx, os.Args[0], "-addr", "127.0.0.1:0", "-drain-lead", "1h")
	program.Env = append(os.Environ(), asProgram+"=1")
	program.Stderr = os.Stderr
	stdout, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	lines.Scan()
	to := strings.TrimSuffix(strings.TrimPrefix(lines.Text(), "serving on "), "/demo/graphql")
	until(t, ctx, to+"/readyz", 200)

	send := func() {
		if err := program.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
	}
	send()
	body := until(t, ctx, to+"/readyz", 503)
	if !strings.Contains(body, `"draining":{"active":true,`) {
		t.Errorf("after the first signal, GET /readyz returned %s, want draining", body)
	}
	for _, path := range []string{"/livez", "/demo/graphql?query={__typename}"} {
		if status, answer, err := get(to + path); status != 200 {
			t.Errorf("after the first signal, GET %s returned status %d, %s and error %v, want 200",
				path, status, answer, err)
		}
	}
	send()
	_ = program.Wait()
	if got := program.ProcessState.Sys().(syscall.WaitStatus); got.Signal() != signal {
		t.Errorf("after the second signal, the process ended with %v, want %v", program.ProcessState, signal)
	}
}

// until requests url until the response has the status, and returns its body.
func until(t *testing.T, ctx context.Context, url string, want int) string {
	t.Helper()
	for {
		status, body, err := get(url)
		if status == want {
			return body
		}
		if ctx.Err() != nil {
			t.Fatalf("GET %s returned status %d, %s and error %v, want status %d", url, status, body, err, want)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
