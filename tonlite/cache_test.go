package tonlite

import "testing"

// TestCacheHoldsWholeSearch reads as many masterchain blocks as one page may, and finds all of them in
// the cache the second time.
func TestCacheHoldsWholeSearch(t *testing.T) {
	c := newCache[bool](DefaultCache)
	for round := range 2 {
		read := 0
		for seqNo := range uint32(maxScanned + concurrency) {
			if _, kept := c.get(seqNo); !kept {
				c.put(seqNo, true)
				read++
			}
		}
		if round > 0 && read > 0 {
			t.Errorf("%d masterchain blocks are read again, want 0", read)
		}
	}
}
