package blocklog

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
)

// Many different readers do not take their payloads. No reader misses a block because of the limit, and payloads of
// readers that take them are kept.
func TestUnreadPayloadsStayWithinKeptBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const bound, readers, blocks = 1 << 20, 3000, 12
		c := newChain(0)
		l := open(t, c, Options[int]{KeptBytes: bound})
		join := func(key string) *Reader[int] {
			r, err := l.Join(Interest[int]{Key: key, Eval: func(b int) []byte {
				return fmt.Append(make([]byte, 0, 3000), b)
			}})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		deaf := make([]*Reader[int], readers)
		for i := range deaf {
			deaf[i] = join(fmt.Sprint("deaf ", i))
		}
		quick := join("quick")
		synctest.Wait()
		before := heapInUse()
		for n := range blocks {
			c.grow(1)
			synctest.Wait()
			if item, err := quick.Next(); err != nil || item.Cursor != cursorOf(n+1) || item.Origin != OriginLive {
				t.Fatalf("a reader that takes its blocks has %+v, %v", item, err)
			}
			if kept := l.kept.Load(); kept > bound {
				t.Fatalf("%d bytes are kept after %d blocks", kept, n+1)
			}
		}
		const place = 300 // of a group's items, and of the block
		if grown := int(heapInUse() - before); grown > bound*5/4+readers*place {
			t.Errorf("%d readers that take nothing keep %d bytes", readers, grown)
		}
		live := 0
		for _, r := range deaf {
			for n := range blocks {
				item, err := r.Next()
				if err != nil || item.Cursor != cursorOf(n+1) || string(item.Payload) != fmt.Sprint(n+1) {
					t.Fatalf("block %d is %+v, %v", n+1, item, err)
				}
				if item.Origin == OriginLive {
					live++
				}
			}
			r.Close()
		}
		if live < 200 || live > bound/3000 {
			t.Errorf("%d payloads were kept", live)
		}
		if kept := l.kept.Load(); kept != 0 {
			t.Errorf("%d bytes are kept when all have been taken", kept)
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
			t.Errorf("%d bytes are kept of two blocks", kept)
		}
		c.grow(1) // ends the other one, which can still read earlier blocks
		synctest.Wait()
		if kept := l.kept.Load(); kept != 0 {
			t.Errorf("%d bytes are kept for readers that have left or ended", kept)
		}
		for n := range 2 {
			if item, err := bad.Next(); err != nil || item.Cursor != cursorOf(n+1) {
				t.Errorf("%+v, %v", item, err)
			}
		}
	})
}
