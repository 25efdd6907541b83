package chaos_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/chaingql/chaingql/internal/leak"
)

func TestMain(m *testing.M) { leak.Main(m, patience) }

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
