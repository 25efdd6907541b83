package gqlws

import "testing"

// Limits hold up to the last byte and query, and 0 turns them off.
func TestConnectionIsHeldUpBeyondItsLimits(t *testing.T) {
	for _, row := range []struct {
		what                             string
		maxUnsent, unsent                int
		maxQueries, running              int
		full, crowded                    bool
		writeTimeout, countsMissingPongs bool
	}{
		{what: "no limits", unsent: 1, running: 1, writeTimeout: true, countsMissingPongs: true},
		{what: "as many bytes as may be", maxUnsent: 10, unsent: 10, writeTimeout: true, countsMissingPongs: true},
		{what: "a byte more", maxUnsent: 10, unsent: 11, full: true, writeTimeout: true},
		{what: "a byte more, and writes wait forever", maxUnsent: 10, unsent: 11, full: true, countsMissingPongs: true},
		{what: "as many queries as may be", maxQueries: 2, running: 2, writeTimeout: true, countsMissingPongs: true},
		{what: "a query more", maxQueries: 2, running: 3, crowded: true, writeTimeout: true},
	} {
		o := testOptions
		o.MaxUnsent, o.MaxQueries = row.maxUnsent, row.maxQueries
		if !row.writeTimeout {
			o.WriteTimeout = 0
		}
		c := newConn(t.Context(), NewServer(o), legacy{}, nil)
		c.mu.Lock()
		c.unsent, c.running, c.pinged = row.unsent, row.running, true
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
