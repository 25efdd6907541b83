package gqlws

import (
	"fmt"
	"testing"
	"testing/synctest"
)

// Limits hold up to the last byte, and 0 turns them off.
func TestConnectionIsHeldUpBeyondItsLimits(t *testing.T) {
	for _, row := range []struct {
		what                             string
		maxUnsent, unsent                int
		waiting                          int // queries
		full, crowded                    bool
		writeTimeout, countsMissingPongs bool
	}{
		{what: "no limits", unsent: 1, writeTimeout: true, countsMissingPongs: true},
		{what: "as many bytes as may be", maxUnsent: 10, unsent: 10, writeTimeout: true, countsMissingPongs: true},
		{what: "a byte more", maxUnsent: 10, unsent: 11, full: true, writeTimeout: true},
		{what: "a byte more, and writes wait forever", maxUnsent: 10, unsent: 11, full: true, countsMissingPongs: true},
		{what: "a query that waits", waiting: 1, crowded: true, writeTimeout: true},
	} {
		o := testOptions
		o.MaxUnsent = row.maxUnsent
		if !row.writeTimeout {
			o.WriteTimeout = 0
		}
		c := newConn(t.Context(), NewServer(o), legacy{}, nil)
		c.mu.Lock()
		c.unsent, c.waiting, c.pinged = row.unsent, make([]*operation, row.waiting), true
		if c.full() != row.full || c.crowded() != row.crowded {
			t.Errorf("%s: full %v, crowded %v", row.what, c.full(), c.crowded())
		}
		c.askAlive()
		if counts := c.missed == 1; counts != row.countsMissingPongs {
			t.Errorf("%s: a missing pong counts: %v", row.what, counts)
		}
		c.mu.Unlock()
		c.cancel()
	}
}

func TestQueriesRunWithoutLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions
		o.MaxQueries, o.MaxUnsent = 0, 0
		s, ss := NewServer(o), newScript(t)
		p := dial(t, s, ss).listen()
		for id := range 20 {
			p.say(fmt.Sprintf(startWait, id))
		}
		synctest.Wait()
		if ss.queries != 20 {
			t.Errorf("%d queries run, want 20", ss.queries)
		}
		close(ss.release)
		if got := heardAll(p); len(got) != 2*20 {
			t.Errorf("heard %d messages", len(got))
		}
		p.conn.Close()
		shutdown(t, s)
	})
}

// A query begins if the answers expected of the others just fit.
func TestQueryBeginsIfTheOthersLeaveRoom(t *testing.T) {
	for room, want := range map[int]int{9: 1, 10: 2, 19: 2, 20: 3} {
		o := testOptions
		o.MaxUnsent = room
		c := newConn(t.Context(), NewServer(o), legacy{}, nil)
		c.mu.Lock()
		began := 0
		for range 3 {
			c.waiting = append(c.waiting, &operation{size: 10, begin: func() {}})
		}
		c.begin()
		began = c.running
		c.mu.Unlock()
		if began != want {
			t.Errorf("with room for %d bytes %d queries of 10 began, want %d", room, began, want)
		}
		c.cancel()
	}
}
