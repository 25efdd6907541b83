package testkit

import (
	"io"
	"strings"
	"sync"
	"testing"
)

func TestBufferCollectsConcurrentWrites(t *testing.T) {
	var b Buffer
	var writing sync.WaitGroup
	for range 8 {
		writing.Go(func() {
			for range 100 {
				if _, err := io.WriteString(&b, "line\n"); err != nil {
					t.Error(err)
				}
				_ = b.String()
			}
		})
	}
	writing.Wait()
	if got, want := b.String(), strings.Repeat("line\n", 800); got != want {
		t.Errorf("got %d bytes, want %d", len(got), len(want))
	}
}
