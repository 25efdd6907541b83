// Package testkit contains helpers for the tests of all modules: checks for leaked goroutines and for the handling of
// signals, a proxy that cuts connections, a log buffer, and a reader for recordings. It imports no other package of
// this project, and only tests import it.
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

// RunWithoutLeaks runs the tests of a package and exits. The exit code is 1 if goroutines are still running after
// patience, which gives goroutines time to end. If there are texts, only goroutines whose stack trace contains one of
// them count. Call RunWithoutLeaks from TestMain.
//
// This project does not use go.uber.org/goleak because that would add a dependency to the go.mod of the core.
//
// Patience is measured by counting checks that are 10 ms apart and not with the clock: if this process is not scheduled
// for a while, its ending goroutines make no progress either.
func RunWithoutLeaks(m *testing.M, patience time.Duration, texts ...string) {
	os.Exit(CheckLeaks(m.Run(), os.Stderr, patience, texts...))
}

// CheckLeaks returns the exit code of a test process after m.Run has returned code. If the tests passed but goroutines
// are left, it returns 1 and writes their stack traces to w; otherwise, it returns code. See [RunWithoutLeaks] for the
// other parameters.
func CheckLeaks(code int, w io.Writer, patience time.Duration, texts ...string) int {
	if f := flag.Lookup("test.fuzz"); code != 0 || f != nil && f.Value.String() != "" {
		return code // fuzzing starts its own goroutines
	}
	const pause = 10 * time.Millisecond
	for checks := patience / pause; ; checks-- {
		left := leaked(texts)
		if len(left) == 0 {
			return 0
		}
		if checks <= 0 {
			fmt.Fprintf(w, "goroutines are still running after the tests:\n%s\n", strings.Join(left, "\n\n"))
			return 1
		}
		time.Sleep(pause)
	}
}

// leaked returns the stack traces that contain one of the texts, or all stack traces if there are no texts. It omits
// the calling goroutine, and the goroutine that waits for signals, because that never ends.
func leaked(texts []string) []string {
	buf := make([]byte, 4<<20)
	stacks := strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")
	return slices.DeleteFunc(stacks[1:], func(stack string) bool {
		contains := func(text string) bool { return strings.Contains(stack, text) }
		counts := len(texts) == 0 || slices.ContainsFunc(texts, contains)
		return !counts || contains("os/signal.loop")
	})
}
