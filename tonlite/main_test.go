package tonlite_test

import (
	"testing"
	"time"

	"github.com/chaingql/chaingql/internal/leak"
)

// Whatever a Backend starts ends in Close.
func TestMain(m *testing.M) { leak.Main(m, 5*time.Second, "chaingql", "tonutils") }
