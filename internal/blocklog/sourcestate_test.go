package blocklog

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"
)

// A quiet chain has no block that would show that Follow works again.
func TestSourceOfAQuietChainIsLiveSoonAfterAFailure(t *testing.T) {
	for _, silence := range []time.Duration{0, -1} {
		synctest.Test(t, func(t *testing.T) {
			c := newChain(5)
			l := openStarted(t, c, Options[int]{Silence: silence})
			c.fail(errDown)
			synctest.Wait()
			if l.State().Live {
				t.Errorf("Silence %v: the source is live after a failure", silence)
			}
			c.fail(nil)
			time.Sleep(5 * time.Second)
			if s := l.State(); !s.Live {
				t.Errorf("Silence %v: the source is not live 5 s after it works again: %v", silence, s.Err)
			}
		})
	}
}

// A host may replace its chain often while the source is down.
func TestClosedLogIsFreedDuringAnOutage(t *testing.T) {
	freed := func() weak.Pointer[Log[int]] {
		c := newChain(5)
		c.fail(errDown)
		l := New(c.source(), Options[int]{Outage: time.Hour, Logger: quiet})
		l.Start()
		for l.State().Err == nil { // State does not report changes
			time.Sleep(time.Millisecond)
		}
		shut(t, l)
		return weak.Make(l)
	}()
	for range 100 { // goroutines that have ended may keep the Log for a moment
		if runtime.GC(); freed.Value() == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("a Log is in memory 1 s after it was closed, want it freed")
}
