package blocklog

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
)

// Many readers with different keys do not read their payloads. The limit makes no reader miss a block, and payloads for
// readers that read at once are kept.
func TestUnreadPayloadsStayWithinKeptBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit, readers, blocks = 1 << 20, 3000, 12
		c := newChain(0)
		l := open(t, c, Options[int]{KeptBytes: limit})
		join := func(key string) *Reader[int] {
			r, err := l.Join(Interest[int]{Key: key, Eval: func(b int) []byte {
				return fmt.Append(make([]byte, 0, 3000), b)
			}})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		idle := make([]*Reader[int], readers)
		for i := range idle {
			idle[i] = join(fmt.Sprint("idle ", i))
		}
		quick := join("quick")
		synctest.Wait()
		before := heapInUse()
		for n := range blocks {
			c.grow(1)
			synctest.Wait()
			if item, err := quick.Next(); err != nil || item.Cursor != cursorOf(n+1) || item.Origin != OriginLive {
				t.Fatalf("a reader that reads at once received %+v and error %v, want live block %d", item, err, n+1)
			}
			if kept := l.kept.Load(); kept > limit {
				t.Fatalf("%d bytes are kept after %d blocks, want at most %d", kept, n+1, limit)
			}
		}
		const overhead = 300 // size of a group's items and of the block
		if grown, most := int(heapInUse()-before), limit*5/4+readers*overhead; grown > most {
			t.Errorf("%d readers that do not read use %d bytes, want at most %d", readers, grown, most)
		}
		live := 0
		for _, r := range idle {
			for n := range blocks {
				item, err := r.Next()
				if err != nil || item.Cursor != cursorOf(n+1) || string(item.Payload) != fmt.Sprint(n+1) {
					t.Fatalf("received %+v and error %v, want block %d", item, err, n+1)
				}
				if item.Origin == OriginLive {
					live++
				}
			}
			r.Close()
		}
		if live < 200 || live > limit/3000 {
			t.Errorf("%d payloads were kept, want 200 to %d", live, limit/3000)
		}
		if kept := l.kept.Load(); kept != 0 {
			t.Errorf("%d bytes are kept after all payloads have been read, want 0", kept)
		}
		runtime.KeepAlive(l)
	})
}

func TestPayloadsOfEndedReadersAreReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(0)
		l := open(t, c, Options[int]{})
		heads, _ := l.Join(Interest[int]{Key: "heads", Eval: every(1)})
		bad, _ := l.Join(Interest[int]{Key: "bad", Eval: func(b int) []byte {
			if b == 3 {
				panic("three")
			}
			return []byte{1}
		}})
		synctest.Wait()
		c.grow(2)
		synctest.Wait()
		heads.Close()
		if kept := l.kept.Load(); kept < 2*matchBytes || kept >= 3*matchBytes {
			t.Errorf("%d bytes are kept for two payloads of one reader, want those of two small payloads", kept)
		}
		c.grow(1) // ends the other reader, which can still read earlier blocks
		synctest.Wait()
		if kept := l.kept.Load(); kept != 0 {
			t.Errorf("%d bytes are kept for readers that were closed or have ended, want 0", kept)
		}
		for n := range 2 {
			if item, err := bad.Next(); err != nil || item.Cursor != cursorOf(n+1) {
				t.Errorf("Next returned %+v and error %v, want block %d", item, err, n+1)
			}
		}
	})
}
