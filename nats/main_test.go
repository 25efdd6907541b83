package natschain_test

import (
	"testing"
	"time"

	"github.com/chaingql/chaingql/internal/leak"
)

// The server lets go in its own time, and so does nats.go. What the server never
// lets go of is its own affair.
func TestMain(m *testing.M) { leak.Main(m, 10*time.Second, "chaingql", "nats-io/nats.go") }
