package gqlws

import (
	"testing"
	"testing/synctest"
	"time"
)

// What keeps the place of a peer that sends no connection_init, and what does not,
// is in testdata/graphql-ws.
func TestConnectionInitKeepsThePlace(t *testing.T) {
	const query, init = `{"id":"1","type":"start","payload":{"query":"{info{version}}"}}`, `{"type":"connection_init"}`
	for name, say := range map[string][]string{
		"alone":              {init},
		"after an operation": {query, init},
		"before one":         {init, query},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := testOptions
				o.KeepAlive = 0
				s, ss := NewServer(o), newScript(t)
				p := dial(t, s, ss).listen()
				time.Sleep(o.UnusedTimeout - time.Second)
				p.say(say...)
				time.Sleep(time.Hour)
				if left(s) != 1 {
					t.Errorf("the peer was closed: %v", ss.why)
				}
				p.conn.Close()
				shutdown(t, s)
			})
		})
	}
}
