package postgres_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/chaingql/chaingql/internal/leak"
)

// pgx lets go of a connection whose call was cancelled in its own time, up to
// 15 s.
func TestMain(m *testing.M) {
	code := m.Run()
	if running != nil {
		if err := running.remove(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(leak.Judge(code, os.Stderr, 20*time.Second, "chaingql", "jackc/"))
}
