package natschain_test

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
	if left := leftGoroutines(10 * time.Second); code == 0 && left != "" {
		fmt.Fprintf(os.Stderr, "goroutines left behind:\n%s\n", left)
		code = 1
	}
	os.Exit(code)
}

// leftGoroutines looks for a while: the server lets go in its own time, and so
// does nats.go. What the server never lets go of is its own affair.
func leftGoroutines(patience time.Duration) string {
	for end := time.Now().Add(patience); ; {
		buf := make([]byte, 1<<22)
		stacks := strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")
		var left []string
		for _, stack := range stacks[1:] { // the first is our own
			if strings.Contains(stack, "chaingql") || strings.Contains(stack, "nats-io/nats.go") {
				left = append(left, stack)
			}
		}
		if len(left) == 0 || time.Now().After(end) {
			return strings.Join(left, "\n\n")
		}
		<-time.After(20 * time.Millisecond)
	}
}
