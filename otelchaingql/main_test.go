package otelchaingql_test

import (
	"testing"
	"time"

	"github.com/chaingql/chaingql/internal/testkit"
)

// TestMain runs the tests and fails if goroutines are still running after them, because the hooks
// must not start goroutines.
func TestMain(m *testing.M) { testkit.RunWithoutLeaks(m, 5*time.Second) }
