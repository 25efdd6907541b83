package postgres_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/chaingql/chaingql/internal/testkit"
)

// TestMain fails if goroutines remain. pgx closes the connection of a canceled call after up to 15 s.
func TestMain(m *testing.M) {
	code := m.Run()
	if running != nil {
		if err := running.remove(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(testkit.CheckLeaks(code, os.Stderr, 20*time.Second, "chaingql", "jackc/"))
}
