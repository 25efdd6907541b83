package blocklog

import (
	"testing"
	"testing/synctest"
	"time"
)

// The log searches for up to five seconds. Readers of stored blocks also wait for up to five seconds.
func TestMissingBlockStoredBeforeTheTimeoutIsFound(t *testing.T) {
	for _, in := range []string{"new blocks", "stored blocks"} {
		t.Run(in, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newShardSource()
				f.grow(master(1), master(2))
				f.lacks[3] = true
				l := openShards(t, f, Options[shardBlock]{})
				if in == "stored blocks" {
					f.grow(master(3), master(4))
				}
				synctest.Wait()
				r := joinAt(t, l, blocksOf(), 2)
				synctest.Wait()
				if _, err := takeAll(r); err != nil {
					t.Fatal(err)
				}
				if in == "new blocks" {
					f.growSkipped([]int{3}, master(3), master(4))
				}
				time.Sleep(repairTimeout - 2*repairInterval)
				f.set(func() { delete(f.lacks, 3) })
				time.Sleep(repairInterval)
				synctest.Wait()
				expectNow(t, r, 3, 4)
			})
		})
	}
}
