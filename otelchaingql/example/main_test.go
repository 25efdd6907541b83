package main

import (
	"testing"
	"time"

	"github.com/chaingql/chaingql/internal/leak"
)

// Whatever the host starts ends with it.
func TestMain(m *testing.M) { leak.Main(m, 5*time.Second) }
