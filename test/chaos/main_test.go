package chaos_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/chaingql/chaingql/internal/testkit"
)

func TestMain(m *testing.M) { testkit.RunWithoutLeaks(m, progressTimeout) }

// leakedGoroutines waits until there are at most that many goroutines. If some do not end, it returns all
// stacks.
func leakedGoroutines(before int) string {
	for deadline := time.Now().Add(progressTimeout); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<20)
			return string(stacks[:runtime.Stack(stacks, true)])
		}
	}
	return ""
}
