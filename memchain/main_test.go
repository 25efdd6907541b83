package memchain_test

import (
	"testing"
	"time"

	"github.com/chaingql/chaingql/internal/leak"
)

// Whatever is started ends with its test.
func TestMain(m *testing.M) { leak.Main(m, 3*time.Second) }
