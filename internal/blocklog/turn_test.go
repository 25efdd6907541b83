package blocklog

import (
	"testing"
	"testing/synctest"
	"time"
)

// Whoever writes for many readers must not be kept for long by one that has much to evaluate.
func TestNextReturnsAfterAFewBlocksThatDoNotMatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newForest()
		l := openForest(t, f, Options[piece]{})
		synctest.Wait()
		for i := range uint32(10 * atOnce) {
			f.grow(master(i + 1))
		}
		f.grow(base(1))
		synctest.Wait()
		i, after := of(0), cursorOf(1)
		eval, evaluated, woken := i.Eval, 0, false
		i.After, i.Wake = &after, func() { woken = true }
		i.Eval = func(p piece) []byte {
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
			if evaluated > atOnce {
				t.Errorf("%d blocks were evaluated at once", evaluated)
			}
			if found = item.Payload != nil; found || woken {
				continue
			}
			if time.Sleep(time.Minute); !woken {
				t.Fatal("the block that matches is not reached")
			}
		}
	})
}
