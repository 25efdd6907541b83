package chaingql_test

import (
	"testing"
	"time"

	"github.com/chaingql/chaingql/internal/leak"
)

// Whatever a Handler starts ends in Shutdown.
func TestMain(m *testing.M) { leak.Main(m, 5*time.Second, "chaingql/chaingql", "net/http.(*conn)") }
