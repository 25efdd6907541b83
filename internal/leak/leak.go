// Package leak fails the tests of a package that leave goroutines behind. Only
// tests import it.
package leak

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

// Main runs the tests and exits, with 1 where goroutines are left once patience
// is over: some are on their way out. Those count whose stacks have one of the
// texts, all where none is given. Call it from TestMain.
//
// Patience is counted in looks: while this process is held up, so are those that
// are on their way.
func Main(m *testing.M, patience time.Duration, of ...string) {
	os.Exit(Judge(m.Run(), os.Stderr, patience, of...))
}

// Judge is the code to exit with, after m.Run gave one. It writes the stacks of
// what is left to w.
func Judge(code int, w io.Writer, patience time.Duration, of ...string) int {
	if f := flag.Lookup("test.fuzz"); code != 0 || f != nil && f.Value.String() != "" {
		return code // fuzzing has goroutines of its own
	}
	const pause = 10 * time.Millisecond
	for looks := patience / pause; ; looks-- {
		left := behind(of)
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

// behind returns the stacks of all goroutines that count, but the caller's and
// the one that waits for signals, which never ends.
func behind(of []string) []string {
	buf := make([]byte, 4<<20)
	stacks := strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")
	return slices.DeleteFunc(stacks[1:], func(stack string) bool {
		counts := len(of) == 0 || slices.ContainsFunc(of, func(text string) bool { return strings.Contains(stack, text) })
		return !counts || strings.Contains(stack, "os/signal.loop")
	})
}
