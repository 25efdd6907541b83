package xsync

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A lateCount counts the calls of SetDeadline.
type lateCount struct {
	calls atomic.Int32
	block chan struct{} // if not nil, SetDeadline waits until it is closed
}

func (c *lateCount) SetDeadline() {
	c.calls.Add(1)
	if c.block != nil {
		<-c.block
	}
}

func TestDeadlineIsSetOnceForWhatLastsAndNeverForWhatEndsSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewLateDeadlines()
		var owners [5]lateCount
		var late [5]Late
		for i := range late {
			late[i].Owner = &owners[i]
		}
		for i := range 4 {
			d.Begin(&late[i], 0, Clock(0))
		}
		time.Sleep(LateAfter / 2)
		late[0].End()
		late[2].End()
		d.Begin(&late[4], 0, Clock(0))
		time.Sleep(LateAfter)
		synctest.Wait()
		for i, want := range []int32{0, 1, 0, 1, 0} {
			if got := owners[i].calls.Load(); got != want {
				t.Errorf("number %d: deadline was set %d times, want %d", i, got, want)
			}
		}
		time.Sleep(10 * LateAfter)
		synctest.Wait()
		for i, want := range []int32{0, 1, 0, 1, 1} {
			if got := owners[i].calls.Load(); got != want {
				t.Errorf("number %d at the end: deadline was set %d times, want %d", i, got, want)
			}
			late[i].End()
			late[i].End() // has no effect
		}
		d.Begin(&late[0], 0, Clock(0)) // after a time with nothing in progress
		time.Sleep(2 * LateAfter)
		synctest.Wait()
		if got := owners[0].calls.Load(); got != 1 {
			t.Errorf("after a pause: deadline was set %d times, want once", got)
		}
		late[0].End()
	})
}

// The owner may be reused after End, for another connection.
func TestEndWaitsForADeadlineThatIsBeingSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewLateDeadlines()
		owner := &lateCount{block: make(chan struct{})}
		l := Late{Owner: owner}
		d.Begin(&l, 0, Clock(0))
		time.Sleep(2 * LateAfter)
		var ended atomic.Bool
		go func() {
			l.End()
			ended.Store(true)
		}()
		synctest.Wait()
		if ended.Load() {
			t.Error("End returned while the deadline was being set")
		}
		other := Late{Owner: new(lateCount)} // is not delayed
		d.Begin(&other, 0, Clock(0))
		other.End()
		close(owner.block)
		synctest.Wait()
		if !ended.Load() {
			t.Error("End did not return")
		}
	})
}

func TestLateDeadlinesAreSafeForConcurrentUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewLateDeadlines()
		var all sync.WaitGroup
		for n := range uint32(8) {
			all.Go(func() {
				for i := range 200 {
					owner := new(lateCount)
					l := Late{Owner: owner}
					d.Begin(&l, n, Clock(0))
					time.Sleep(time.Duration(i) * time.Millisecond)
					l.End()
					if i < 100 && owner.calls.Load() > 0 || owner.calls.Load() > 1 {
						t.Errorf("after %d ms, the deadline was set %d times", i, owner.calls.Load())
					}
				}
			})
		}
		all.Wait()
	})
}

// BenchmarkLateDeadlines compares a read and a write whose deadlines are not due with setting and clearing both
// deadlines of a connection.
func BenchmarkLateDeadlines(b *testing.B) {
	b.Run("late", func(b *testing.B) {
		d := NewLateDeadlines()
		l := Late{Owner: new(lateCount)}
		for b.Loop() {
			for range 2 {
				d.Begin(&l, 0, Clock(0))
				l.End()
			}
		}
	})
	b.Run("set", func(b *testing.B) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		defer l.Close()
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		for b.Loop() {
			_ = conn.SetReadDeadline(Time(Clock(time.Minute)))
			_ = conn.SetReadDeadline(time.Time{})
			_ = conn.SetWriteDeadline(Time(Clock(time.Minute)))
			_ = conn.SetWriteDeadline(time.Time{})
		}
	})
}
