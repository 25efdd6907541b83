package otelchaingql_test

import (
	"testing"
	"time"

	"github.com/chaingql/chaingql/internal/testkit"
)

// TestMain fails if goroutines remain after the tests, because the hooks must not start any.
func TestMain(m *testing.M) { testkit.RunWithoutLeaks(m, 5*time.Second) }
