package tonlite_test

import (
	"testing"
	"time"

	"github.com/chaingql/chaingql/internal/testkit"
)

// TestMain fails if goroutines remain after the tests, because Close must end all of them.
func TestMain(m *testing.M) { testkit.RunWithoutLeaks(m, 5*time.Second, "chaingql", "tonutils") }
