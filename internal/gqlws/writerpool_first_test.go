package gqlws

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql/internal/xsync"
)

// A stored Stream has stored data without end.
type stored struct {
	queryResult
	op    *operation
	found []byte
	takes time.Duration
	calls int
}

func (*stored) Behind() bool { return true }

func (s *stored) Next() (payload []byte, more bool, err error) {
	s.calls++
	time.Sleep(s.takes)
	if s.found == nil {
		s.op.Wake()
	}
	return s.found, true, nil
}

// openStored starts an operation with a stored Stream.
func (c *conn) openStored(t *testing.T, found []byte) *stored {
	s := &stored{found: found, takes: time.Millisecond}
	id := fmt.Sprint(len(c.ops))
	s.op = &operation{conn: c, id: operationID{key: id}, ctx: xsync.WithTimeout(c.ctx, 0), phase: opActive}
	if err := c.callOpen(Operation{Open: func(xsync.Waker) (Stream, error) { return s, nil }}, s.op); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ops[id] = s.op
	c.queueNext(s.op)
	return s
}

// storedConns returns functions that connect and that give the next connection its turn.
func storedConns(t *testing.T) (connect func() *conn, serve func()) {
	server, w := NewServer(testOptions), newWriterPool()
	server.writers, w.maxWorkers = w, 0
	connect = func() *conn {
		c := newConn(t.Context(), server, legacy{}, nil)
		c.net, c.raw = &netConn{}, noRawConn{}
		return c
	}
	var b []byte
	return connect, func() {
		c, turn := w.dequeue()
		begun := xsync.Clock(0)
		if turn == paceLive || c.beginTurn(turn) {
			c.gather(&b, batchSize)
			c.requeue()
		}
		if turn != paceLive {
			c.usage.Add(w.endSlowTurn(turn, begun))
		}
	}
}

// A client that resumes may share its socket with a subscription that has rare matches.
func TestConnectionThatResumesDoesNotWaitForOthers(t *testing.T) {
	for name, others := range map[string][]byte{"that find payloads": []byte("1"), "that search": nil} {
		for _, rare := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, with a rare one: %t", name, rare), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					connect, serve := storedConns(t)
					for range 100 {
						connect().openStored(t, others)
					}
					for range 200 {
						serve()
					}
					c := connect()
					if rare {
						c.openStored(t, nil)
					}
					resumes := c.openStored(t, []byte("1"))
					turns := 0
					for ; resumes.calls == 0 && turns < 200; turns++ {
						serve()
					}
					if turns > 4 {
						t.Errorf("the first call of Next was in turn %d", turns)
					}
				})
			})
		}
	}
}

// A client that needs few payloads does not wait for those that have read many, even if these all have data.
func TestConnectionThatNeedsLittleDoesNotWaitForThoseThatReadMuch(t *testing.T) {
	for name, others := range map[string][]byte{"that find payloads": []byte("1"), "that search": nil} {
		for _, found := range [][]byte{[]byte("1"), nil} {
			t.Run(fmt.Sprintf("%s, for a client that finds: %t", name, found != nil), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					connect, serve := storedConns(t)
					for range 20 {
						connect().openStored(t, others)
					}
					for range 20 * 15 { // a call of Next takes a millisecond
						serve()
					}
					needsLittle := connect().openStored(t, found)
					turns := 0
					for ; needsLittle.calls < 8 && turns < 300; turns++ {
						serve()
					}
					if turns > 20 {
						t.Errorf("8 calls of Next took %d turns", turns)
					}
				})
			})
		}
	}
}

// A first turn is short, so that clients that start streams again and again do not delay others. But a stream that has
// found something continues, because it then waits for those that catch up.
func TestFirstTurnIsShort(t *testing.T) {
	const short, long = maxFirstTime / 10, maxFirstTime + 1
	for name, tc := range map[string]struct {
		found []byte
		takes time.Duration
		want  [2][2]int // calls of Next of two streams after two turns
	}{
		"finds quickly":     {[]byte("1"), short, [2][2]int{{1, 10}, {1, 10}}},
		"finds slowly":      {[]byte("1"), long, [2][2]int{{1, 0}, {1, 1}}},
		"searches slowly":   {nil, long, [2][2]int{{1, 0}, {1, 1}}},
		"searches together": {nil, short, [2][2]int{{1, 1}, {1, 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				connect, serve := storedConns(t)
				c := connect()
				first, second := c.openStored(t, tc.found), c.openStored(t, tc.found)
				first.takes, second.takes = tc.takes, tc.takes
				for i, want := range tc.want {
					c.server.writers.credit = [paces]time.Duration{}
					if c.server.writers.queues[paceFirst].first != nil {
						serve()
					}
					if calls := [2]int{first.calls, second.calls}; calls != want {
						t.Errorf("after turn %d, Next was called %d times, want %d", i+1, calls, want)
					}
				}
			})
		})
	}
}

// After a burst of blocks, live streams read blocks that were new while they were being written to.
func TestConnectionThatWasLiveDoesNotWaitForOthers(t *testing.T) {
	for name, others := range map[string]struct {
		found  []byte
		served int // turns of the others
	}{
		"that find payloads": {[]byte("1"), 200},
		"that search":        {nil, 200},
		"that resume":        {[]byte("1"), 100}, // none of them has had its first turn
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				connect, serve := storedConns(t)
				for range 100 {
					connect().openStored(t, others.found)
				}
				for range others.served {
					serve()
				}
				live := connect().openStored(t, []byte("1"))
				live.op.pace, live.takes = paceLive, maxFirstTime/10
				turns := 0
				for ; live.calls < 100 && turns < 200; turns++ {
					serve()
				}
				if turns > 30 {
					t.Errorf("Next was called %d times in %d turns", live.calls, turns)
				}
			})
		})
	}
}
