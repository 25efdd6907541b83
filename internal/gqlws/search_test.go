package gqlws

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql/internal/xsync"
)

// Thousands of searches at once would delay everything else. These connections have blocking writes, as those over TLS.
func TestFewConnectionsSearchAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(withoutPings()), newFakeSession(t)
		ss.shared = true
		s.writers.maxWorkers = 2
		gate := make(chan struct{})
		var running atomic.Int64
		var peers []*peer
		for i := range 10 {
			p := dial(t, s, ss).startReading()
			p.sendText(startA)
			peers = append(peers, p)
			st := ss.stream(i + 1)
			searchAgain(st, func() {
				running.Add(1)
				<-gate
				running.Add(-1)
			})
			synctest.Wait()
		}
		if n := running.Load(); n != 2 {
			t.Errorf("%d searches run at once, want 2", n)
		}
		for i := range peers {
			ss.stream(i + 1).stopSearching(fmt.Sprint(i))
		}
		close(gate)
		for i, p := range peers {
			p.expect(fmt.Sprintf(`{"type":"data","id":"a","payload":%d}`, i))
			p.conn.Close()
		}
		shutdown(t, s)
	})
}

// searchAgain makes Next search until stopSearching is called, and call search in all searches except the first. The
// connection knows only after the first one that the stream searches.
func searchAgain(st *fakeStream, search func()) {
	first := true
	st.startSearching(func() {
		if !first {
			search()
		}
		first = false
	})
}

// A client may start hundreds of subscriptions at once, from old cursors. The only worker is busy here.
func TestNewSearchesWaitForTheTurnToSearch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(withoutPings()), newFakeSession(t)
		ss.shared = true
		s.writers.maxWorkers = 1
		gate := make(chan struct{})
		busy, p := dial(t, s, ss).startReading(), dial(t, s, ss).startReading()
		busy.sendText(startA)
		searchAgain(ss.stream(1), func() { <-gate })
		synctest.Wait()
		ss.searches = true
		const n = 3
		for i := range n {
			p.sendText(fmt.Sprintf(`{"id":"%d","type":"start","payload":{"query":"subscription{a}"}}`, i))
		}
		for i := range n {
			if calls := ss.stream(i + 2).countNextCalls(); calls > 0 {
				t.Errorf("subscription %d searches without a turn", i)
			}
		}
		ss.stream(1).stopSearching("1")
		close(gate)
		for i := range n {
			ss.stream(i + 2).push(fmt.Sprint(i))
			p.expect(fmt.Sprintf(`{"type":"data","id":"%d","payload":%d}`, i, i))
		}
		busy.conn.Close()
		p.conn.Close()
		shutdown(t, s)
	})
}

// A searcher is a Stream that finds nothing and counts the calls to Next.
type searcher struct {
	queryResult
	calls int
}

func (s *searcher) Behind() bool { return true }

func (s *searcher) Next() (payload []byte, more bool, err error) {
	s.calls++
	return nil, true, nil
}

// An endless Stream always has a payload.
type endless struct{ queryResult }

func (*endless) Next() (payload []byte, more bool, err error) { return []byte("1"), true, nil }

// newSearchingConn returns a connection that is not served by workers. Its operations call Next of a searcher, which
// has already found nothing, and of stream.
func newSearchingConn(t *testing.T, stream Stream) (*conn, *searcher) {
	c := newConn(t.Context(), NewServer(testOptions), legacy{}, nil)
	c.server.writers = newWriterPool()
	c.server.writers.maxWorkers = 0
	c.net, c.hasWriter = &netConn{}, true
	search := new(searcher)
	for i, st := range []Stream{search, stream} {
		op := &operation{id: operationID{key: fmt.Sprint(i)}, ctx: xsync.WithTimeout(c.ctx, 0), phase: opActive}
		op.stream, op.pace = st, []pace{paceSearching, paceLive}[i]
		c.mu.Lock()
		c.ops[op.id.key] = op
		c.queueNext(op)
		c.mu.Unlock()
	}
	return c, search
}

// Many connections would otherwise delay each other by a search for each payload.
func TestPayloadIsSentWithoutASearch(t *testing.T) {
	c, search := newSearchingConn(t, &queryResult{payload: []byte("1")})
	want := appendText(nil, []byte(`{"type":"data","payload":1}`))
	want = appendText(want, []byte(`{"type":"complete","payload":null}`))
	var b []byte
	if next := c.gather(&b, batchSize); next != taskSend || !bytes.Equal(b, want) || search.calls > 0 {
		t.Errorf("gather returned %q and task %d after %d searches, want %q and task %d without a search",
			b, next, search.calls, want, taskSend)
	}
	if next := c.gather(&b, batchSize); next != taskRequeue || search.calls > 0 {
		t.Errorf("the second gather returned task %d after %d searches, want %d without a search", next, search.calls,
			taskRequeue)
	}
	c.requeue()
	if got, turn := c.server.writers.dequeue(); got != c || turn != paceSearching || !c.beginTurn(turn) {
		t.Fatal("the connection does not wait for a turn to search")
	}
	if c.gather(&b, batchSize); search.calls != 1 {
		t.Errorf("%d searches in the turn of the searches, want 1", search.calls)
	}
}

func TestSearchIsServedWhileAnotherStreamAlwaysHasPayloads(t *testing.T) {
	for name, enough := range map[string]int{"writes that do not wait": batchSize, "writes that wait": 1} {
		t.Run(name, func(t *testing.T) {
			c, search := newSearchingConn(t, new(endless))
			w := c.server.writers
			if enough == batchSize {
				c.raw = noRawConn{}
			}
			var b []byte
			for n := 0; c.gather(&b, enough) == taskSend && enough == 1; n++ { // it ends only if it must
				if n == 1000 {
					t.Fatal("the writer does not end")
				}
				if got, turn := w.dequeue(); got != nil && (turn != paceSearching || c.beginTurn(turn)) {
					t.Fatal("the connection has two writers")
				}
			}
			c.requeue()
			if got, turn := w.dequeue(); got != c || turn != paceSearching || !c.beginTurn(turn) {
				t.Fatal("the connection, which has live payloads, does not get its turn to search")
			}
			if got, _ := w.dequeue(); got != nil {
				t.Error("the connection has two writers")
			}
			if c.gather(&b, batchSize); search.calls != 1 {
				t.Errorf("%d searches in the turn of the searches, want 1", search.calls)
			}
		})
	}
}

// Searches of thousands of connections take seconds. The only worker is busy with one of them here.
func TestLivePayloadDoesNotWaitForTheTurnToSearch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(withoutPings()), newFakeSession(t)
		ss.shared = true
		s.writers.maxWorkers = 1
		gate := make(chan struct{})
		busy, p := dial(t, s, ss).startReading(), dial(t, s, ss).startReading()
		busy.sendText(startA)
		searchAgain(ss.stream(1), func() { <-gate })
		synctest.Wait()
		var searches atomic.Int64
		p.sendText(startA)
		ss.stream(2).startSearching(func() { searches.Add(1) })
		synctest.Wait()
		p.sendText(`{"id":"b","type":"start","payload":{"query":"subscription{b}"}}`)
		for i := range 3 {
			ss.stream(3).push(fmt.Sprint(i))
			p.expect(fmt.Sprintf(`{"type":"data","id":"b","payload":%d}`, i))
		}
		if n := searches.Load(); n != 1 {
			t.Errorf("%d searches without a turn, want 1", n)
		}
		ss.stream(1).stopSearching("1")
		ss.stream(2).stopSearching("2")
		close(gate)
		p.expect(`{"type":"data","id":"a","payload":2}`)
		busy.conn.Close()
		p.conn.Close()
		shutdown(t, s)
	})
}

// A client may subscribe to rare blocks and, on the same socket, resume another subscription.
func TestNewStreamDoesNotWaitForASearchOnItsSocket(t *testing.T) {
	c, search := newSearchingConn(t, &queryResult{payload: []byte("1")})
	searches, resumes := c.ready[0], c.ready[1]
	searches.setPace(false, true, true, c.usage)
	resumes.pace = paceFirst
	c.requeue()
	if got, turn := c.server.writers.dequeue(); got != c || turn != paceFirst || !c.beginTurn(turn) {
		t.Fatalf("the connection has turn %d first, want %d", turn, paceFirst)
	}
	var b []byte
	want := appendText(nil, []byte(`{"type":"data","payload":1}`))
	if c.gather(&b, batchSize); !bytes.HasPrefix(b, want) || search.calls > 0 {
		t.Errorf("gathered %q after %d searches, want %q without a search", b, search.calls, want)
	}
}

func TestPaceFollowsTheLastCallOfNext(t *testing.T) {
	op := &operation{pace: paceFirst}
	for i, next := range []struct {
		found, more, behind bool
		want                pace
	}{
		{false, false, true, paceFirst}, // waits for its page
		{false, true, true, paceSearching},
		{false, false, true, paceSearching},
		{true, true, true, paceBehind},
		{false, false, true, paceBehind},
		{false, true, true, paceSearching},
		{false, false, false, paceLive},
		{true, true, true, paceRecent}, // after a burst
		{false, true, true, paceRecent},
		{true, true, true, paceRecent},
		{false, false, true, paceFirst}, // waits for its page
		{true, true, true, paceBehind},
		{true, true, false, paceLive},
		{false, false, true, paceFirst},
	} {
		if op.setPace(next.found, next.more, next.behind, new(xsync.Usage)); op.pace != next.want {
			t.Errorf("after call %d of Next, the pace is %d, want %d", i+1, op.pace, next.want)
		}
	}
}

// A client may end its operations and start them anew, again and again.
func TestOperationsOfAPeerThatHasReadMuchTakeLongTurns(t *testing.T) {
	for _, next := range []struct {
		used                time.Duration
		found, more, behind bool
		want                pace
	}{
		{xsync.MuchUsage, true, true, true, paceBehind},
		{2 * xsync.MuchUsage, false, false, true, paceFirst},
		{2 * xsync.MuchUsage, true, true, true, paceBehindLong},
		{2 * xsync.MuchUsage, false, true, true, paceSearchingLong},
		{2 * xsync.MoreUsage, true, true, true, paceBehindLonger},
		{2 * xsync.MoreUsage, false, true, true, paceSearchingLonger},
		{2 * xsync.MoreUsage, true, true, false, paceLive},
		{2 * xsync.MoreUsage, true, true, true, paceRecent},
	} {
		var usage xsync.Usage
		usage.Add(next.used)
		op := &operation{pace: paceFirst}
		if next.want == paceRecent {
			op.pace = paceLive
		}
		if op.setPace(next.found, next.more, next.behind, &usage); op.pace != next.want {
			t.Errorf("after a call of Next with the result %+v, the pace is %d", next, op.pace)
		}
	}
}
