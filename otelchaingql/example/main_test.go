package main

import (
	"testing"
	"time"

	"github.com/chaingql/chaingql/internal/testkit"
)

// TestMain fails if goroutines remain after the tests.
func TestMain(m *testing.M) { testkit.RunWithoutLeaks(m, 5*time.Second) }
