package tonlite

import "testing"

// TestDefaultCacheHoldsWholeSearch reads as many masterchain blocks as the search for one page
// may read. The second time, all of them must be in the cache.
func TestDefaultCacheHoldsWholeSearch(t *testing.T) {
	c := newCache[uint32, bool](DefaultCache)
	for round := range 2 {
		read := 0
		for seqNo := range uint32(maxScanned + concurrency) {
			if _, kept := c.get(seqNo); !kept {
				c.put(seqNo, true)
				read++
			}
		}
		if round > 0 && read > 0 {
			t.Errorf("%d masterchain blocks were not in the cache, want 0", read)
		}
	}
}
