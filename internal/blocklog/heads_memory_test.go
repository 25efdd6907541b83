package blocklog

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// A copy of the heads for each reader would be large, because the chain has 64 shards.
func TestReadersOfADroppedPageShareMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 5000
		f := newShardSource()
		for i := range uint32(600) {
			f.grow(Place{0, uint64(2*(i%64)+1) << 57, 1 + i/64})
		}
		l := openShards(t, f, Options[shardBlock]{Window: 5})
		limitHeld(l, 1)
		synctest.Wait()
		before := heapInUse()
		f.paging = make(chan struct{})
		readers := make([]*Reader[shardBlock], n)
		for i := range readers {
			readers[i] = joinAt(t, l, blocksOf(), 200)
			expectNow(t, readers[i])
		}
		close(f.paging) // all readers wait for one page
		synctest.Wait()
		for i, r := range readers {
			for range 1 + i%90 {
				if item, err := r.Next(); err != nil || item.Payload == nil {
					t.Fatalf("Next returned %+v and error %v, want a block", item, err)
				}
			}
		}
		expectNow(t, joinAt(t, l, blocksOf(), 100)) // the page of this reader replaces the held page
		time.Sleep(holdTime)
		synctest.Wait()
		each := int(heapInUse()-before) / n
		t.Logf("a reader whose page was dropped uses %d bytes", each)
		if c := readers[0].catchUp; c == nil || len(c.heads[0]) != 64 || len(c.entries) > 0 {
			t.Errorf("the reader has %+v, want 64 heads and no entries", c)
		}
		if each > 1000 {
			t.Errorf("a reader whose page was dropped uses %d bytes, want at most 1000", each)
		}
		runtime.KeepAlive(readers)
	})
}

// docs/limits.md states this memory, which no limit counts.
func TestReaderThatWaitsForAPageOfItsOwnUsesTheDocumentedMemory(t *testing.T) {
	for _, shards := range []uint32{1, 64} {
		synctest.Test(t, func(t *testing.T) {
			const n = 1000
			f := newShardSource()
			for i := range uint32(n + 200) {
				f.grow(Place{0, uint64(2*(i%shards)+1) << 57, 1 + i/shards})
			}
			l := openShards(t, f, Options[shardBlock]{Window: 5})
			synctest.Wait()
			f.paging = make(chan struct{}) // the source hangs
			before := heapInUse()
			readers := make([]*Reader[shardBlock], n)
			for i := range readers {
				readers[i] = joinAt(t, l, blocksOf(), 1+i)
				expectNow(t, readers[i])
			}
			synctest.Wait()
			each, most := int(heapInUse()-before)/n, 1<<10*6/5 // the readers share the heads
			t.Logf("with %d shards, a reader that waits uses %d bytes", shards, each)
			if each > most {
				t.Errorf("with %d shards, a reader that waits uses %d bytes, want at most %d", shards, each, most)
			}
			close(f.paging)
			runtime.KeepAlive(readers)
		})
	}
}
