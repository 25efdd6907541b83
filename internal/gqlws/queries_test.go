package gqlws

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

const (
	startWait   = `{"id":%d,"type":"start","payload":{"query":"{wait}"}}`
	tooManySaid = `{"type":"error","id":%d,"payload":{"message":"Too many queries at once on one connection",` +
		`"extensions":{"code":"SERVICE_UNAVAILABLE"}}}`
)

// crowd starts as many queries as may run, and one more, which is not answered
// before one of them has ended.
func crowd(p *peer) {
	for id := range testOptions.MaxQueries + 1 {
		p.say(fmt.Sprintf(startWait, id))
	}
	p.expectSilence()
}

// heardAll takes all that was heard so far, in an order that does not depend on
// which query was faster.
func heardAll(p *peer) (lines []string) {
	for line := p.next(); line != ""; line = p.next() {
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

func TestQueriesBeyondTheLimitAreAnsweredLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newScript(t)
		p := dial(t, s, ss).listen()
		const n = 100
		go func() {
			for id := range n {
				p.say(fmt.Sprintf(startWait, id))
			}
		}()
		synctest.Wait()
		if ss.queries != testOptions.MaxQueries {
			t.Errorf("%d queries run at once, want %d", ss.queries, testOptions.MaxQueries)
		}
		close(ss.release)
		if got := heardAll(p); len(got) != 2*n || len(ss.limits) != 0 {
			t.Errorf("heard %d messages of %d queries, and limits %v", len(got), n, ss.limits)
		}
		p.conn.Close()
		shutdown(t, s)
	})
}

// A query that was refused makes way for the next message, which may be another
// query that waits.
func TestEachQueryThatWaitsHasItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newScript(t)
		p := dial(t, s, ss).listen()
		crowd(p)
		go p.say(fmt.Sprintf(startWait, 4), fmt.Sprintf(startWait, 5))
		for id := 3; id <= 5; id++ {
			time.Sleep(testOptions.QueryWait - time.Millisecond)
			p.expectSilence()
			time.Sleep(time.Millisecond)
			p.expect(fmt.Sprintf(tooManySaid, id))
		}
		if want := []string{"SocketQueries", "SocketQueries", "SocketQueries"}; !slices.Equal(ss.limits, want) {
			t.Errorf("the session learned of %v", ss.limits)
		}
		close(ss.release)
		if got := heardAll(p); len(got) != 2*testOptions.MaxQueries {
			t.Errorf("heard %q", got)
		}
		p.conn.Close()
		shutdown(t, s)
	})
}

// A peer that is not read cannot show that it is there.
func TestPingsGoUnansweredWhileQueriesWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions
		o.QueryWait = 0 // for as long as they like
		s, ss := NewServer(o), newScript(t)
		p := dial(t, s, ss).listen()
		time.Sleep(time.Second)
		crowd(p)
		time.Sleep(10 * time.Minute)
		if left(s) != 1 {
			t.Fatalf("the peer was cut: %v", ss.why)
		}
		close(ss.release)
		if got := heardAll(p); len(got) != 2*(o.MaxQueries+1) {
			t.Errorf("heard %q", got)
		}
		p.say(startA) // is in use
		time.Sleep(time.Minute)
		p.quiet()
		time.Sleep(time.Duration(maxMissed+1) * o.KeepAlive)
		if left(s) != 0 {
			t.Error("a peer that answers no ping any more is kept")
		}
		shutdown(t, s)
	})
}

// What a peer sends while it is not read is not read at once through its fault.
func TestTimeInWhichAPeerIsNotReadCountsForItsRate(t *testing.T) {
	const rate = 10
	const all = 13 * rate // in 10 s, and 3 s as a burst
	for n, closed := range map[int]bool{all: false, all + 1: true} {
		synctest.Test(t, func(t *testing.T) {
			o := testOptions
			o.MessageRate = rate
			s, ss := NewServer(o), newScript(t)
			p := dial(t, s, ss).listen()
			crowd(p)
			time.Sleep(5 * time.Second)
			done := make(chan struct{})
			go func() {
				defer close(done)
				for range n - (o.MaxQueries + 1) {
					p.say(`{"type":"stop"}`)
				}
			}()
			time.Sleep(5 * time.Second)
			close(ss.release)
			<-done
			heardAll(p)
			if got := len(ss.limits) > 0; got != closed {
				t.Errorf("after 10 s, %d messages were too many: %v, want %v", n, got, closed)
			}
			p.conn.Close()
			shutdown(t, s)
		})
	}
}

func TestShutdownAnswersQueriesThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newScript(t)
		p := dial(t, s, ss).listen()
		crowd(p)
		over := make(chan struct{})
		go func() { defer close(over); shutdown(t, s) }()
		time.Sleep(time.Second)
		close(ss.release)
		<-over
		got := heardAll(p)
		if want := 2*(testOptions.MaxQueries+1) + 2; len(got) != want || !slices.Contains(got, "CLOSE 1001 shutting down") {
			t.Errorf("heard %q", got)
		}
	})
}

// That a peer has left shows at the latest when a query has waited long enough.
func TestPeerThatLeavesWhileItsQueriesWaitIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, ss := NewServer(testOptions), newScript(t)
		p := dial(t, s, ss).listen()
		crowd(p)
		p.conn.Close()
		time.Sleep(testOptions.QueryWait)
		if left(s) != 0 || ss.queries != 0 {
			t.Errorf("%d connections and %d queries are left", left(s), ss.queries)
		}
		shutdown(t, s)
	})
}
