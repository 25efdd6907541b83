package chaos_test

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	flag.Parse()
	before := runtime.NumGoroutine()
	code := m.Run()
	if stacks := leftBehind(before); stacks != "" {
		fmt.Fprintf(os.Stderr, "goroutines were left behind:\n%s\n", stacks)
		code = 1
	}
	os.Exit(code)
}

// leftBehind waits until there are no more goroutines than before. It returns
// the stacks of those that do not go away.
func leftBehind(before int) string {
	for deadline := time.Now().Add(patience); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<20)
			return string(stacks[:runtime.Stack(stacks, true)])
		}
	}
	return ""
}
