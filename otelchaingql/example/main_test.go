package main

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
	if left := leftGoroutines(5 * time.Second); code == 0 && left != "" {
		fmt.Fprintf(os.Stderr, "goroutines left behind:\n%s\n", left)
		code = 1
	}
	os.Exit(code)
}

// leftGoroutines looks for a while, since some are on their way out.
func leftGoroutines(patience time.Duration) string {
	for end := time.Now().Add(patience); ; {
		buf := make([]byte, 1<<20)
		stacks := strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")
		left := stacks[1:] // the first is our own
		if len(left) == 0 || time.Now().After(end) {
			return strings.Join(left, "\n\n")
		}
		<-time.After(20 * time.Millisecond)
	}
}
