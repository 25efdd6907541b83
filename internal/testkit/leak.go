// Package testkit has helpers of the tests of all modules: a check for goroutines left behind, and a proxy that cuts
// connections. It imports nothing of the project, and only tests import it.
package testkit

import (
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// RunWithoutLeaks runs the tests of a package and exits, with 1 if goroutines are left after patience: some are about to
// end. If texts are given, only goroutines count whose stacks have one of them. Call it from TestMain.
//
// It is our own because go.uber.org/goleak would be a dependency of the core's go.mod.
//
// Patience is counted in checks of 10 ms: while this process does not run, ending goroutines do not either.
func RunWithoutLeaks(m *testing.M, patience time.Duration, texts ...string) {
	os.Exit(CheckLeaks(m.Run(), os.Stderr, patience, texts...))
}

// CheckLeaks returns the exit code if m.Run returned code, and writes the stacks of the goroutines that are left to w.
func CheckLeaks(code int, w io.Writer, patience time.Duration, texts ...string) int {
	if f := flag.Lookup("test.fuzz"); code != 0 || f != nil && f.Value.String() != "" {
		return code // fuzzing has goroutines of its own
	}
	const pause = 10 * time.Millisecond
	for looks := patience / pause; ; looks-- {
		left := leaked(texts)
		if len(left) == 0 {
			return 0
		}
		if looks <= 0 {
			fmt.Fprintf(w, "goroutines left behind:\n%s\n", strings.Join(left, "\n\n"))
			return 1
		}
		time.Sleep(pause)
	}
}

// leaked returns the stacks of all goroutines that count, except for the caller's and the one that waits for signals,
// which never ends.
func leaked(texts []string) []string {
	buf := make([]byte, 4<<20)
	stacks := strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")
	return slices.DeleteFunc(stacks[1:], func(stack string) bool {
		counts := len(texts) == 0 || slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(stack, text) })
		return !counts || strings.Contains(stack, "os/signal.loop")
	})
}
