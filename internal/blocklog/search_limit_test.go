package blocklog

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql/internal/xsync"
)

// A reader with many blocks to evaluate must not block a goroutine that serves many readers for a long time.
func TestNextEvaluatesALimitedNumberOfBlocks(t *testing.T) {
	for limit, want := range map[int]int{0: 64, 1: 1, 5: 5, 65: 64} {
		t.Run(strconv.Itoa(limit), func(t *testing.T) { testSearchBlocks(t, limit, want) })
	}
}

func testSearchBlocks(t *testing.T, limit, most int) {
	synctest.Test(t, func(t *testing.T) {
		f := newShardSource()
		l := openShards(t, f, Options[shardBlock]{})
		synctest.Wait()
		for i := range uint32(10 * maxSearchBlocks) {
			f.grow(master(i + 1))
		}
		f.grow(base(1))
		synctest.Wait()
		i, after := blocksOf(0), cursorOf(1)
		eval, evaluated, woken := i.Eval, 0, false
		i.SearchBlocks, i.After, i.Wake = limit, &after, xsync.WakeFunc(func() { woken = true })
		i.Eval = func(p shardBlock) []byte {
			evaluated++
			return eval(p)
		}
		r, err := l.Join(i)
		if err != nil {
			t.Fatal(err)
		}
		for found := false; !found; {
			evaluated, woken = 0, false
			item, err := r.Next()
			if err != nil {
				t.Fatal(err)
			}
			if evaluated > most {
				t.Errorf("one call of Next evaluated %d blocks, want at most %d", evaluated, most)
			}
			if found = item.Payload != nil; found || woken {
				continue
			}
			if time.Sleep(time.Minute); !woken {
				t.Fatal("Next returned no block and Wake was not called, want one of both")
			}
		}
	})
}
