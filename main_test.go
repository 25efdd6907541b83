package chaingql_test

import (
	"testing"
	"time"

	"github.com/chaingql/chaingql/internal/testkit"
)

// TestMain fails if a goroutine of a Handler remains after the tests.
func TestMain(m *testing.M) {
	testkit.RunWithoutLeaks(m, 5*time.Second, "chaingql/chaingql", "net/http.(*conn)")
}
