package chaos_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/chaingql/chaingql/internal/testkit"
)

func TestMain(m *testing.M) { testkit.RunWithoutLeaks(m, progressTimeout) }

// leakedGoroutines waits until there are at most limit goroutines. If there are still more after
// progressTimeout, it returns the stacks of all goroutines.
func leakedGoroutines(limit int) string {
	for deadline := time.Now().Add(progressTimeout); runtime.NumGoroutine() > limit; runtime.Gosched() {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<20)
			return string(stacks[:runtime.Stack(stacks, true)])
		}
	}
	return ""
}
