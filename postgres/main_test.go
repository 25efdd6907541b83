package postgres_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestMain fails the package where its tests leave goroutines behind.
func TestMain(m *testing.M) {
	code := m.Run()
	if running != nil {
		if err := running.remove(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	if left := leftGoroutines(20 * time.Second); code == 0 && left != "" {
		fmt.Fprintf(os.Stderr, "goroutines left behind:\n%s\n", left)
		code = 1
	}
	os.Exit(code)
}

// leftGoroutines looks for a while: pgx lets go of a connection whose call was
// cancelled in its own time, up to 15 s.
func leftGoroutines(patience time.Duration) string {
	for end := time.Now().Add(patience); ; {
		buf := make([]byte, 1<<20)
		stacks := strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")
		var left []string
		for _, stack := range stacks[1:] { // the first is our own
			if strings.Contains(stack, "chaingql") || strings.Contains(stack, "jackc/") {
				left = append(left, stack)
			}
		}
		if len(left) == 0 || time.Now().After(end) {
			return strings.Join(left, "\n\n")
		}
		<-time.After(20 * time.Millisecond)
	}
}
