package blocklog

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// The heads of the page are those of 64 shards.
func TestReadersOfADroppedPageShareItsHeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 5000
		f := newShardSource()
		for i := range uint32(600) {
			f.grow(Place{0, uint64(2*(i%64)+1) << 57, 1 + i/64})
		}
		l := openShards(t, f, Options[shardBlock]{Window: 5})
		l.held.limit = 1
		synctest.Wait()
		before := heapInUse()
		f.paging = make(chan struct{})
		readers := make([]*Reader[shardBlock], n)
		for i := range readers {
			readers[i] = joinAt(t, l, blocksOf(), 200)
			expectNow(t, readers[i])
		}
		close(f.paging) // all wait for one page
		synctest.Wait()
		for i, r := range readers {
			for range 1 + i%90 {
				if item, err := r.Next(); err != nil || item.Payload == nil {
					t.Fatal(item, err)
				}
			}
		}
		expectNow(t, joinAt(t, l, blocksOf(), 100)) // its page replaces the held one
		time.Sleep(holdTime)
		synctest.Wait()
		each := int(heapInUse()-before) / n
		t.Logf("%d bytes for a reader whose page was dropped", each)
		if c := readers[0].catchUp; c == nil || len(c.heads[0]) != 64 || len(c.entries) > 0 {
			t.Errorf("it knows %+v", c)
		}
		if each > 1000 {
			t.Errorf("%d bytes for a reader whose page was dropped, want at most 1000", each)
		}
		runtime.KeepAlive(readers)
	})
}
