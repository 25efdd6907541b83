package backendtest

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	before := runtime.NumGoroutine()
	code := m.Run()
	if flag.Lookup("test.fuzz").Value.String() != "" {
		os.Exit(code) // fuzzing has goroutines of its own
	}
	for deadline := time.Now().Add(3 * time.Second); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<20)
			fmt.Fprintf(os.Stderr, "goroutines were left behind:\n%s\n", stacks[:runtime.Stack(stacks, true)])
			code = 1
			break
		}
	}
	os.Exit(code)
}
