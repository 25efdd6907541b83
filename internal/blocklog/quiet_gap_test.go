package blocklog

import (
	"testing"
	"testing/synctest"
	"time"
)

// The log has had no block of the base chain when one is lost: only the stored one before it shows that.
func TestBlockOfAQuietShardThatIsLostIsTold(t *testing.T) {
	for name, lost := range map[string]bool{"lost": true, "stored": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newForest()
				f.grow(base(1))
				for n := range uint32(2 * recentBlocks) {
					f.grow(master(1 + n))
				}
				l := openForest(t, f, Options[piece]{})
				synctest.Wait()
				start := len(f.all)
				r := enter(t, l, of())
				f.lacks[start+1] = lost
				f.without([]int{start + 1}, base(2), base(3))
				time.Sleep(healPatience + time.Second)
				synctest.Wait()
				if lost {
					hasGap(t, r, start)
				} else {
					has(t, r, start+1, start+2)
				}
			})
		})
	}
}
