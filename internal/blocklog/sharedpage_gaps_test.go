package blocklog

import (
	"testing"
	"testing/synctest"
	"time"
)

// Two readers wait for the same page. The first one passed the place of a missing block before the block was stored.
// The second one received the block.
func TestGapIsReportedEvenIfAnotherReaderOfThePageLacksNoBlock(t *testing.T) {
	for name, tt := range map[string]struct{ first, alone bool }{
		"the reader that lacks the block requests the page first":          {true, false},
		"the reader that lacks the block requests the page last":           {false, false},
		"the reader that lacks the block requests it after the other left": {false, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newShardSource()
				masters := uint32(0)
				for n := 1; n <= 400; n++ {
					switch n {
					case 120:
						f.grow(base(1))
					case 150:
						f.grow(base(2))
					case 240:
						f.grow(base(3))
					default:
						masters++
						f.grow(master(masters))
					}
				}
				f.lacks[150] = true
				l := openShards(t, f, Options[shardBlock]{Window: 5})
				synctest.Wait()
				takes := func(r *Reader[shardBlock], n int) {
					t.Helper()
					for range n {
						item, err := r.Next()
						for ; err == nil && item.Payload == nil; item, err = r.Next() {
							synctest.Wait()
						}
						if err != nil {
							t.Fatal(err)
						}
					}
				}
				lacks := joinAt(t, l, blocksOf(), 102)
				takes(lacks, 100) // up to 203
				f.set(func() { delete(f.lacks, 150) })
				i := blocksOf()
				i.Key = "has"
				has := joinAt(t, l, i, 3)
				takes(has, 200) // up to 203
				f.paging = make(chan struct{})
				ask := []*Reader[shardBlock]{lacks, has}
				if !tt.first {
					ask = []*Reader[shardBlock]{has, lacks}
				}
				for _, r := range ask {
					if item, err := r.Next(); err != nil || item.Payload != nil {
						t.Fatalf("Next returned %+v and error %v, want nothing yet", item, err)
					}
					synctest.Wait()
					if r == has && tt.alone {
						has.Close()
					}
				}
				close(f.paging)
				time.Sleep(time.Minute)
				if got, gap := readToEnd(t, lacks); gap != cursorOf(120) {
					t.Errorf("the reader that lacks the block received %d blocks and gap %q, want a gap after 120",
						len(got), gap)
				}
			})
		})
	}
}
