package blocklog

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// An eventLog records the Block, Failed and Recovered events, with the time of each in seconds.
type eventLog struct {
	mu      sync.Mutex
	start   time.Time
	entries []string
}

func (d *eventLog) events() Events[int] {
	d.start = time.Now()
	return Events[int]{
		Block: func(b int) { d.write("block", b) },
		Failed: func(err error, wait time.Duration) {
			if errors.Is(err, ErrSourceStalled) {
				d.write("silent", wait)
			} else {
				d.write("failed", wait)
			}
		},
		Recovered: func(down time.Duration) { d.write("recovered", down) },
	}
}

func (d *eventLog) write(what string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := time.Since(d.start).Round(time.Second)
	d.entries = append(d.entries, fmt.Sprint(at, " ", what, " ", fmt.Sprint(args...)))
}

func (d *eventLog) expect(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Equal(d.entries, want) {
		t.Errorf("got events\n%s\nwant\n%s", strings.Join(d.entries, "\n"), strings.Join(want, "\n"))
	}
	d.entries = nil
}

func TestSilenceOfSourceAndItsRecoveryAreReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(0)
		logger, text := logged()
		var d eventLog
		l := open(t, c, Options[int]{Silence: 20 * time.Second, Logger: logger, Events: d.events()})
		l.Start()
		time.Sleep(time.Hour)
		synctest.Wait()
		d.expect(t, "20s silent 0s")
		c.grow(2)
		synctest.Wait()
		d.expect(t, "1h0m0s recovered 1h0m0s", "1h0m0s block 1", "1h0m0s block 2")
		for range 5 {
			time.Sleep(19 * time.Second)
			c.grow(1)
			synctest.Wait()
		}
		d.mu.Lock()
		d.entries = nil
		d.mu.Unlock()
		time.Sleep(time.Minute)
		d.expect(t, "1h1m55s silent 0s")
		c.set(func() { c.down = errDown }) // the log is closed before the next silence
		time.Sleep(5 * time.Second)
		shut(t, l)
		got := text.String()
		if strings.Count(got, "level=WARN msg=\"block source is silent; checking it\" silent_ms=20000") != 2 ||
			strings.Count(got, "level=INFO msg=\"block source recovered\" down_ms=3.6e+06") != 1 {
			t.Errorf("want two lines about silence and one about a recovery of 1 h in the log:\n%s", got)
		}
		time.Sleep(time.Hour)
	})
}

func TestRepeatedBlocksDoNotEndSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d eventLog
		src, _, _ := scripted(func(yield func(int, error) bool) {
			for range 100 {
				time.Sleep(time.Second)
				if !yield(1, nil) {
					return
				}
			}
			yield(2, nil)
			time.Sleep(time.Second)
		})
		l := New(src, Options[int]{Logger: quiet, Events: d.events()})
		l.Start()
		time.Sleep(100500 * time.Millisecond)
		shut(t, l)
		d.expect(t, "1s block 1", "31s silent 0s", "1m40s recovered 1m39s", "1m40s block 2")
	})
}

func TestEveryFailureButOnlyOneRecoveryIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d eventLog
		src, _, _ := scripted(yields(nil, 1), yields(errDown), yields(errDown, 1), yields(nil, 2, 3))
		l := New(src, Options[int]{
			Logger: quiet, MinBackoff: time.Second, MaxBackoff: time.Second, Silence: time.Minute, Events: d.events(),
		})
		l.Start()
		time.Sleep(time.Hour)
		shut(t, l)
		d.expect(t, "0s block 1", "0s failed 1s", "1s failed 1s", "2s failed 1s",
			"3s recovered 3s", "3s block 2", "3s block 3", "3s failed 1s", "1m4s silent 0s")
	})
}

func TestDowntimeCountsFromFirstFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d eventLog
		src, _, _ := scripted(yields(errDown), func(yield func(int, error) bool) {
			time.Sleep(time.Minute)
			yield(1, nil)
		})
		l := New(src, Options[int]{
			Logger: quiet, MinBackoff: time.Second, MaxBackoff: time.Second, Events: d.events(),
		})
		l.Start()
		time.Sleep(61500 * time.Millisecond)
		shut(t, l)
		d.expect(t, "0s failed 1s", "31s silent 0s", "1m1s recovered 1m1s", "1m1s block 1", "1m1s failed 1s")
	})
}

func TestSilenceIsNotReportedBetweenCallsOfFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d eventLog
		c := newChain(0)
		c.fail(errDown)
		l := open(t, c, Options[int]{MinBackoff: time.Hour, Events: d.events()})
		l.Start()
		time.Sleep(59 * time.Minute)
		d.expect(t, "0s failed 1h0m0s")
	})
}

func TestPanickingEventFunctionsDoNotStopBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger, text := logged()
		f := newShardSource()
		f.grow(master(1))
		l := openShards(t, f, Options[shardBlock]{Logger: logger, Events: Events[shardBlock]{
			Block:     func(shardBlock) { panic("block") },
			Failed:    func(error, time.Duration) { panic("failed") },
			Recovered: func(time.Duration) { panic("recovered") },
			Gap:       func(int32, string, bool, int) { panic("gap") },
		}})
		synctest.Wait()
		r := joinAt(t, l, blocksOf())
		f.set(func() { f.down = errDown })
		time.Sleep(time.Minute)
		f.set(func() { f.down = nil })
		f.growSkipped([]int{2}, master(2), master(3))
		time.Sleep(time.Minute)
		synctest.Wait()
		expectNow(t, r, 2, 3)
		for _, event := range []string{"block", "failed", "recovered", "gap"} {
			if !strings.Contains(text.String(), `error="panic: `+event+`"`) {
				t.Errorf("the log does not contain the panic of the %s function", event)
			}
		}
	})
}

func TestEventFunctionsMayUseTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newShardSource()
		f.grow(master(1), base(1))
		var l *Log[shardBlock]
		called := map[string]bool{}
		use := func(event string) {
			called[event] = true
			l.Stats()
			l.Window()
			joinAt(t, l, blocksOf()).Close()
		}
		f.recents = 2
		l = New(f.source(), Options[shardBlock]{Logger: quiet, Events: Events[shardBlock]{
			Block:     func(shardBlock) { use("block") },
			Failed:    func(error, time.Duration) { use("failed") },
			Recovered: func(time.Duration) { use("recovered") },
			Gap: func(int32, string, bool, int) {
				use("gap")
				if at, ok := l.Arrived(); !ok || !at.Equal(time.Now()) {
					t.Errorf("Arrived is %v, %v when a missing block was found, want the current time", at, ok)
				}
			},
		}})
		l.Start()
		time.Sleep(time.Minute) // the source is silent
		synctest.Wait()
		f.growSkipped([]int{3}, base(2), master(2), base(3))
		synctest.Wait()
		if len(called) != 4 {
			t.Errorf("the event functions %v were called, want all four", called)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestCloseWaitsForRunningEventFunction(t *testing.T) {
	c := newChain(0)
	begun, end := make(chan struct{}), make(chan struct{})
	failed := func(error, time.Duration) {
		close(begun)
		<-end
	}
	l := New(c.source(), Options[int]{Silence: 1, Logger: quiet, Events: Events[int]{Failed: failed}})
	l.Start()
	<-begun
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		if err := l.Close(ctx); err != context.Canceled {
			t.Fatalf("Close returned %v, want the context's error", err)
		}
		runtime.Gosched()
	}
	close(end)
	shut(t, l)
}

// The timer of an outage may fire while the source recovers.
func TestLateOutageTimerEndsNoReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newChain(1)
		l := open(t, c, Options[int]{Outage: time.Second})
		r := join(t, l, 1)
		synctest.Wait()
		l.outageTimer = time.NewTimer(time.Hour)
		l.endForOutage()
		l.outageTimer.Stop()
		c.grow(1)
		synctest.Wait()
		expect(t, r, 2)
	})
}
