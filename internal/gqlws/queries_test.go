package gqlws

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

const (
	startWait      = `{"id":%d,"type":"start","payload":{"query":"{wait}"}}`
	tooManyQueries = `{"type":"error","id":%d,"payload":{"message":"Too many queries at once on one connection",` +
		`"extensions":{"code":"SERVICE_UNAVAILABLE"}}}`
)

// startMaxQueries starts MaxQueries queries and sends one more, which has to wait until another one has ended.
func startMaxQueries(p *peer) {
	for id := range testOptions.MaxQueries + 1 {
		p.sendText(fmt.Sprintf(startWait, id))
	}
	p.expectNothing()
}

// receivedAll removes and returns all recorded lines in sorted order, because queries may end in any order.
func receivedAll(p *peer) (lines []string) {
	for line := p.next(); line != ""; line = p.next() {
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

func TestQueriesBeyondMaxQueriesAreDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newFakeSession(t)
		p := dial(t, s, ss).startReading()
		const n = 100
		go func() {
			for id := range n {
				p.sendText(fmt.Sprintf(startWait, id))
			}
		}()
		synctest.Wait()
		if ss.queries != testOptions.MaxQueries {
			t.Errorf("%d queries run, want %d", ss.queries, testOptions.MaxQueries)
		}
		close(ss.release)
		if got := receivedAll(p); len(got) != 2*n || len(ss.limits) != 0 {
			t.Errorf("received %d messages and limits %v, want %d messages and no limits", len(got), ss.limits, 2*n)
		}
		p.conn.Close()
		shutdown(t, s)
	})
}

// When a waiting query is refused, the server reads the next message. That may be another query, which then has to
// wait.
func TestEachWaitingQueryHasItsOwnTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newFakeSession(t)
		p := dial(t, s, ss).startReading()
		startMaxQueries(p)
		go p.sendText(fmt.Sprintf(startWait, 4), fmt.Sprintf(startWait, 5))
		for id := 3; id <= 5; id++ {
			time.Sleep(testOptions.QueryWait - time.Millisecond)
			p.expectNothing()
			time.Sleep(time.Millisecond)
			p.expect(fmt.Sprintf(tooManyQueries, id))
		}
		if want := []string{"SocketQueries", "SocketQueries", "SocketQueries"}; !slices.Equal(ss.limits, want) {
			t.Errorf("Limit was called with %v, want %v", ss.limits, want)
		}
		close(ss.release)
		if got := receivedAll(p); len(got) != 2*testOptions.MaxQueries {
			t.Errorf("received %q, want %d lines", got, 2*testOptions.MaxQueries)
		}
		p.conn.Close()
		shutdown(t, s)
	})
}

// While the server does not read from a peer, it does not read the pongs of the peer either.
func TestMissingPongsDoNotCountWhileQueriesWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions
		o.QueryWait = 0 // no limit
		s, ss := NewServer(o), newFakeSession(t)
		p := dial(t, s, ss).startReading()
		time.Sleep(time.Second)
		startMaxQueries(p)
		time.Sleep(10 * time.Minute)
		if remainingSockets(s) != 1 {
			t.Fatalf("the connection was cut with %v, want it open", ss.why)
		}
		close(ss.release)
		if got := receivedAll(p); len(got) != 2*(o.MaxQueries+1) {
			t.Errorf("received %q, want %d lines", got, 2*(o.MaxQueries+1))
		}
		p.sendText(startA) // so that UnusedTimeout does not apply
		time.Sleep(time.Minute)
		p.stopAnswering()
		time.Sleep(time.Duration(maxMissedPongs+1) * o.KeepAliveInterval)
		if remainingSockets(s) != 0 {
			t.Error("a peer that responds to no pings is still connected")
		}
		shutdown(t, s)
	})
}

// While the server does not read from a peer, the peer's messages accumulate. When the server then reads them at once,
// they must not count as a burst.
func TestTimeWithoutReadingIsCreditedToMessageRate(t *testing.T) {
	const rate = 10
	const all = 13 * rate // 10 s at the rate, and a burst of 3 s
	for n, closed := range map[int]bool{all: false, all + 1: true} {
		synctest.Test(t, func(t *testing.T) {
			o := testOptions
			o.MessageRate = rate
			s, ss := NewServer(o), newFakeSession(t)
			p := dial(t, s, ss).startReading()
			startMaxQueries(p)
			time.Sleep(5 * time.Second)
			done := make(chan struct{})
			go func() {
				defer close(done)
				for range n - (o.MaxQueries + 1) {
					p.sendText(`{"type":"stop"}`)
				}
			}()
			time.Sleep(5 * time.Second)
			close(ss.release)
			<-done
			receivedAll(p)
			if got := len(ss.limits) > 0; got != closed {
				t.Errorf("%d messages in 10 s exceeded MessageRate: %v, want %v", n, got, closed)
			}
			p.conn.Close()
			shutdown(t, s)
		})
	}
}

func TestShutdownAnswersWaitingQueries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newFakeSession(t)
		p := dial(t, s, ss).startReading()
		startMaxQueries(p)
		over := make(chan struct{})
		go func() { defer close(over); shutdown(t, s) }()
		time.Sleep(time.Second)
		close(ss.release)
		<-over
		got := receivedAll(p)
		if want := 2*(testOptions.MaxQueries+1) + 2; len(got) != want ||
			!slices.Contains(got, "CLOSE 1001 shutting down") {
			t.Errorf("received %q, want %d lines with the close frame", got, want)
		}
	})
}

// At the latest after QueryWait, the server notices that the peer has disconnected.
func TestDisconnectWithWaitingQueriesReleasesConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newFakeSession(t)
		p := dial(t, s, ss).startReading()
		startMaxQueries(p)
		p.conn.Close()
		time.Sleep(testOptions.QueryWait)
		if remainingSockets(s) != 0 || ss.queries != 0 {
			t.Errorf("%d connections and %d queries are left, want none", remainingSockets(s), ss.queries)
		}
		shutdown(t, s)
	})
}

// A refusingAccount is an Account that refuses the waiting queries when it is told to.
type refusingAccount struct {
	noAccount
	refuse func()
}

func (a *refusingAccount) Hold(_ int, refuse func()) func() {
	a.refuse = refuse
	return func() {}
}

// The client of a waiting query may read well, so it keeps its connection and its other operations.
func TestWaitingQueryWhoseMemoryIsNeededIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		account := new(refusingAccount)
		o := testOptions
		o.Account = func(Session, func()) Account { return account }
		s, ss := NewServer(o), newFakeSession(t)
		p := dial(t, s, ss).startReading()
		startMaxQueries(p)
		account.refuse()
		p.expect(fmt.Sprintf(`{"type":"error","id":%d,"payload":{"message":"Too many answers at once.",`+
			`"extensions":{"code":"SERVICE_UNAVAILABLE"}}}`, testOptions.MaxQueries))
		if want := []string{"PendingResponseBytes"}; !slices.Equal(ss.limits, want) {
			t.Errorf("Limit was called with %v, want %v", ss.limits, want)
		}
		close(ss.release)
		if got := receivedAll(p); len(got) != 2*testOptions.MaxQueries {
			t.Errorf("received %q, want %d lines", got, 2*testOptions.MaxQueries)
		}
		p.conn.Close()
		shutdown(t, s)
	})
}
