package blocklog

import (
	"testing"
	"testing/synctest"

	"github.com/chaingql/chaingql/internal/xsync"
)

func TestUnreadPayloadsOfReadersWithEqualKeysAreLimited(t *testing.T) {
	for _, window := range []int{10, 1000} {
		synctest.Test(t, func(t *testing.T) {
			c := newChain(0)
			l := open(t, c, Options[int]{Window: window})
			r := join(t, l, 1)
			synctest.Wait()
			c.grow(100)
			synctest.Wait()
			if want := min(window, groupItems); len(r.group.items) != want {
				t.Errorf("the group keeps %d payloads with a window of %d, want %d", len(r.group.items), window, want)
			}
		})
	}
}

func TestSlowReaderOfEmptyChainReceivesFirstBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(0)
		l := open(t, c, Options[int]{Window: 5})
		r := join(t, l, 1)
		synctest.Wait()
		c.grow(150)
		synctest.Wait()
		expectAll(t, r, upTo(1, 150, 1)...)
	})
}

func TestReaderWithFutureCursorBecomesLiveWhenLogReachesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(10)
		l := openStarted(t, c, Options[int]{})
		woken, after := 0, cursorOf(12)
		r, err := l.Join(Interest[int]{After: &after, Eval: every(1), Wake: xsync.WakeFunc(func() { woken++ })})
		if err != nil {
			t.Fatal(err)
		}
		expectAll(t, r)
		woken = 0
		for n := range 2 {
			c.grow(1)
			synctest.Wait()
			expect(t, r)
			if behind := l.Stats().CatchingUp; woken != n || behind != 1-n {
				t.Errorf("after %d blocks: %d wakes and %d readers that catch up, want %d and %d",
					n+1, woken, behind, n, 1-n)
			}
		}
		c.grow(1)
		synctest.Wait()
		expect(t, r, 13)
	})
}
