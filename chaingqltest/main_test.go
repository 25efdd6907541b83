package chaingqltest_test

import (
	"testing"
	"time"

	"github.com/chaingql/chaingql/internal/testkit"
)

// TestMain fails if goroutines remain after the tests.
func TestMain(m *testing.M) { testkit.RunWithoutLeaks(m, 3*time.Second) }
