package blocklog

import (
	"testing"
	"testing/synctest"
	"time"
)

// The search lasts five seconds, and so does the wait of readers of stored blocks.
func TestBlockThatTurnsUpBeforeTheEndOfTheSearchIsFound(t *testing.T) {
	for _, in := range []string{"live", "stored"} {
		t.Run(in, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newForest()
				f.grow(master(1), master(2))
				f.lacks[3] = true
				l := openForest(t, f, Options[piece]{})
				if in == "stored" {
					f.grow(master(3), master(4))
				}
				synctest.Wait()
				r := enter(t, l, of(), 2)
				synctest.Wait()
				if _, err := taken(r); err != nil {
					t.Fatal(err)
				}
				if in == "live" {
					f.without([]int{3}, master(3), master(4))
				}
				time.Sleep(healPatience - 2*healInterval)
				f.set(func() { delete(f.lacks, 3) })
				time.Sleep(healInterval)
				synctest.Wait()
				has(t, r, 3, 4)
			})
		})
	}
}
