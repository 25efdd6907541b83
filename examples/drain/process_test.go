package main

import (
	"net/http"
	"os"
	"os/exec"
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

func TestFirstSignalEndsReadinessOnlyAndSecondSignalEndsTheProcess(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		t.Run(signal.String(), func(t *testing.T) {
			program := exec.Command(os.Args[0], "-addr", "127.0.0.1:0", "-drain-lead", "1h")
			program.Env = append(os.Environ(), asProgram+"=1")
			testkit.CheckSignals(t, program, signal)
		})
	}
}
