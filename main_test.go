package chaingql_test

import (
	"testing"
	"time"

	"github.com/chaingql/chaingql/internal/testkit"
)

// After Shutdown, no goroutine of a Handler may be left.
func TestMain(m *testing.M) {
	testkit.RunWithoutLeaks(m, 5*time.Second, "chaingql/chaingql", "net/http.(*conn)")
}
