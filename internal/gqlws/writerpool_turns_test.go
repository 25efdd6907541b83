package gqlws

import (
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql/internal/xsync"
)

type noRawConn struct{ syscall.RawConn }

// Thousands of clients that read stored blocks must not delay the blocks of other clients, and those that find nothing
// must not delay those that catch up. But all of them have turns.
func TestConnectionsThatReadStoredDataHaveTurnsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriterPool()
		w.maxWorkers, w.liveUntil = 0, xsync.Clock(0)
		server := &Server{writers: w}
		queued := func(p pace) *conn {
			c := &conn{server: server, raw: noRawConn{}, ready: []*operation{{pace: p}}}
			c.scheduleWriter()
			return c
		}
		next := func(what string, want *conn, wantTurn pace) {
			t.Helper()
			if got, turn := w.dequeue(); got != want || turn != wantTurn {
				t.Errorf("%s: got another connection, or the turn %d", what, turn)
			}
		}
		search, search2, search3 := queued(paceSearching), queued(paceSearching), queued(paceSearching)
		catchUp, resume := queued(paceBehind), queued(paceFirst)
		live, live2, live3 := queued(paceLive), queued(paceLive), queued(paceLive)
		next("at first", resume, paceFirst)
		next("after a turn whose end is not recorded", catchUp, paceBehind)
		begun := xsync.Clock(0)
		time.Sleep(time.Millisecond)
		w.endSlowTurn(paceBehind, begun)
		next("after a slow turn", live, paceLive)
		time.Sleep(3*time.Millisecond - 1)
		next("before three times its duration", live2, paceLive)
		time.Sleep(time.Nanosecond)
		next("after that time", search, paceSearching)
		w.endSlowTurn(paceSearching, begun)
		next("after a turn of 4 ms", live3, paceLive)
		next("without new data", search2, paceSearching)
		both := queued(paceSearching)
		both.ready = append(both.ready, &operation{})
		both.scheduleWriter()
		time.Sleep(maxAlone - 1)
		next("less than maxAlone after a turn of 4 ms", both, paceLive)
		live.requeue()
		time.Sleep(time.Nanosecond)
		next("after maxAlone", search3, paceSearching)
		next("after a turn whose end is not recorded", both, paceSearching)
		next("at last", live, paceLive)
		next("at the end", nil, paceLive)
	})
}

// The turns of clients that catch up and leave early are short. If turns were counted, clients that search would have
// almost all of the time.
func TestConnectionsWithAFasterPaceHaveThreeQuartersOfTheTimeOfSlowTurns(t *testing.T) {
	const short, long = time.Microsecond, time.Millisecond
	for _, tc := range []struct {
		faster, slower         pace
		fasterTime, slowerTime time.Duration
	}{
		{paceFirst, paceBehind, short, long},
		{paceFirst, paceSearching, long, long},
		{paceBehind, paceSearching, short, long},
		{paceBehind, paceSearching, long, long},
		{paceBehind, paceSearching, long, short},
	} {
		synctest.Test(t, func(t *testing.T) {
			var duration [paces]time.Duration
			duration[tc.faster], duration[tc.slower] = tc.fasterTime, tc.slowerTime
			w := newWriterPool()
			w.maxWorkers = 0
			server := &Server{writers: w}
			serve := func(total time.Duration, waiting ...pace) (slower time.Duration) {
				var taken [paces]time.Duration
				for _, p := range waiting {
					(&conn{server: server, raw: noRawConn{}, ready: []*operation{{pace: p}}}).scheduleWriter()
				}
				for taken[tc.faster]+taken[tc.slower] < total {
					c, turn := w.dequeue()
					begun := xsync.Clock(0)
					time.Sleep(duration[turn])
					taken[turn] += duration[turn]
					w.endSlowTurn(turn, begun)
					c.beginTurn(turn)
					c.requeue()
				}
				w.queues = [paces]connQueue{}
				return taken[tc.slower]
			}
			serve(50*time.Millisecond, tc.slower) // must not count later
			got := serve(100*time.Millisecond, tc.faster, tc.slower)
			if got < 20*time.Millisecond || got > 30*time.Millisecond {
				t.Errorf("paces %d and %d: the latter took %v of 100 ms, want a quarter", tc.faster, tc.slower, got)
			}
			serve(50*time.Millisecond, tc.faster)
			got = serve(100*time.Millisecond, tc.faster, tc.slower)
			if got < 25*time.Millisecond || got > 35*time.Millisecond {
				t.Errorf("paces %d and %d: after a time without slower turns, they took %v, want about a quarter",
					tc.faster, tc.slower, got)
			}
		})
	}
}

// A connection with live payloads would otherwise search less often than one without.
func TestConnectionKeepsItsPlaceAmongTheSearchesDuringOtherWork(t *testing.T) {
	w := newWriterPool()
	w.maxWorkers, w.liveUntil = 0, xsync.Clock(time.Hour)
	newConn := func() *conn {
		c := &conn{server: &Server{writers: w}, raw: noRawConn{}, ready: []*operation{{pace: paceSearching}}}
		c.scheduleWriter()
		return c
	}
	c, after := newConn(), newConn()
	for range 2 {
		c.ready = append(c.ready, &operation{})
		c.scheduleWriter()
		if got, turn := w.dequeue(); got != c || turn != paceLive {
			t.Fatal("the payload waits for the turn to search")
		}
		c.ready = c.ready[:1] // the payload was sent
		c.requeue()
	}
	for _, want := range []*conn{c, after, nil} {
		if got, turn := w.dequeue(); got != want || want != nil && turn != paceSearching {
			t.Error("the connection has lost its place, or has two")
		}
	}
}

// A connection that is about to write, when its turn comes, must not have two writers.
func TestTurnToSearchIsNotTakenDuringAWrite(t *testing.T) {
	w := newWriterPool()
	w.maxWorkers = 0
	c := &conn{server: &Server{writers: w}, raw: noRawConn{}, ready: []*operation{{pace: paceSearching}}}
	c.scheduleWriter()
	c.hasWriter = true
	if w.dequeue(); c.beginTurn(paceSearching) || c.turn != paceLive {
		t.Error("a second writer has begun")
	}
	c.requeue()
	if got, turn := w.dequeue(); got != c || turn != paceSearching || !c.beginTurn(turn) {
		t.Error("the connection does not wait for another turn after the write")
	}
}

// Clients that connect, subscribe and leave would otherwise occupy sockets and memory until it is their turn. The only
// worker is busy here.
func TestConnectionThatWaitsForATurnEndsWhenItsPeerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(withoutPings()), newFakeSession(t)
		ss.shared = true
		s.writers.maxWorkers = 1
		gate := make(chan struct{})
		busy := dial(t, s, ss).startReading()
		busy.sendText(startA)
		searchAgain(ss.stream(1), func() { <-gate })
		synctest.Wait()
		ss.searches = true
		var leaving []*peer
		for range 3 {
			p := dial(t, s, ss).startReading()
			p.sendText(startA)
			synctest.Wait()
			leaving = append(leaving, p)
		}
		for i, k := range []int{1, 2, 0} { // from the middle, the end and the beginning of the queue
			leaving[k].conn.Close()
			synctest.Wait()
			if n, want := s.sockets.Members(), 3-i; n != want {
				t.Errorf("%d connections are open, want %d", n, want)
			}
		}
		ss.stream(1).stopSearching("1")
		close(gate)
		busy.expect(`{"type":"data","id":"a","payload":1}`)
		busy.conn.Close()
		shutdown(t, s)
	})
}

// A connection may have hundreds of live subscriptions, and a search whose turn comes only after a second.
func TestLivePayloadsDoNotWaitForASearchThatTheyHavePassedOver(t *testing.T) {
	c, search := newSearchingConn(t, new(endless))
	c.raw = noRawConn{}
	w := c.server.writers
	w.liveUntil = xsync.Clock(time.Hour)
	var b []byte
	for i := range 10 {
		c.gather(&b, batchSize)
		c.requeue()
		if got, turn := w.dequeue(); got != c || turn != paceLive || search.calls > 0 {
			t.Fatalf("after %d batches, the next turn is %d after %d searches", i+1, turn, search.calls)
		}
	}
}
