package postgres_test

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/chaingql/chaingql/internal/testkit"
)

// TestMain fails if goroutines are still running after the tests. It waits 20 s for them, because pgx may take
// up to 15 s to close the connection of a canceled call.
func TestMain(m *testing.M) {
	flag.Parse()
	if !isSet("test.parallel") { // most parallel tests wait
		_ = flag.Set("test.parallel", "6")
	}
	code := m.Run()
	if running != nil {
		if err := running.remove(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(testkit.CheckLeaks(code, os.Stderr, 20*time.Second, "chaingql", "jackc/"))
}

func isSet(name string) (set bool) {
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	return set
}
