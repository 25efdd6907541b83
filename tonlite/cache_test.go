package tonlite

import "testing"

// TestSearchInVainIsMadeOnce goes through as much as a page is looked for in, and
// finds all of it kept the second time.
func TestSearchInVainIsMadeOnce(t *testing.T) {
	c := newCache[bool](DefaultCache)
	for round := range 2 {
		read := 0
		for seqNo := range uint32(maxScan + abreast) {
			if _, kept := c.get(seqNo); !kept {
				c.put(seqNo, true)
				read++
			}
		}
		if round > 0 && read > 0 {
			t.Errorf("%d masterchain blocks are read again", read)
		}
	}
}
