package plan

import (
	"fmt"
	"math"
	"runtime"
	"testing"
)

// A map of more than 896 entries has tables that grow one by one, so its memory depends on the hashes of its keys.
func TestLargeMapsDoNotCountAsLessThanTheirMemory(t *testing.T) {
	if !heapIsMeasurable(t) {
		return
	}
	for _, n := range []int{8, 14, 28, 56, 112, 224, 448, 896} {
		maps, names := make([]map[string]any, 40), make([]string, n)
		for i := range names {
			names[i] = fmt.Sprint(i)
		}
		held := math.MaxInt
		for range 5 { // the runtime itself sometimes allocates something
			clear(maps)
			before := heap()
			for i := range maps {
				maps[i] = make(map[string]any, n)
				for _, name := range names {
					maps[i][name] = true
				}
			}
			held = min(held, heap()-before)
		}
		counted := len(maps) * mapBytes(n)
		if t.Logf("a map of %d: %d bytes, counted as %d", n, held/len(maps), mapBytes(n)); counted < held*99/100 {
			t.Errorf("maps of %d entries take %d bytes and count as %d", n, held, counted)
		}
		runtime.KeepAlive(maps)
		runtime.KeepAlive(names)
	}
}
