package otelchaingql_test

import (
	"testing"
	"time"

	"github.com/chaingql/chaingql/internal/leak"
)

// The hooks start nothing.
func TestMain(m *testing.M) { leak.Main(m, 5*time.Second) }
