package main

import (
	"testing"
	"time"

	"github.com/chaingql/chaingql/internal/testkit"
)

// TestMain runs the tests and fails if goroutines are still running after them.
func TestMain(m *testing.M) { testkit.RunWithoutLeaks(m, 5*time.Second) }
