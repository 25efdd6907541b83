package gqlws

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// A goroutine that wakes many connections lets others run now and then, unless that has taken too much time lately.
func TestYieldLetsOthersRunForALimitedTime(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, test := range []struct {
		yielded time.Duration
		runs    bool
	}{{0, true}, {2 * maxYielded, false}} {
		w := newWriterPool()
		w.yielded.Add(test.yielded / yieldFraction)
		var ran atomic.Bool
		go ran.Store(true)
		for range 10 * wakesPerYield { // a single Gosched may return to the same goroutine
			w.yield()
		}
		if ran.Load() != test.runs {
			t.Errorf("after %v of yields, another goroutine ran: %v, want %v", test.yielded, ran.Load(), test.runs)
		}
	}
}
