package gqlws

import (
	"testing"
	"testing/synctest"
	"time"
)

// The transcripts in testdata/graphql-ws cover peers that send no connection_init.
func TestConnectionInitStopsUnusedTimeout(t *testing.T) {
	const query, init = `{"id":"1","type":"start","payload":{"query":"{info{version}}"}}`, `{"type":"connection_init"}`
	for name, messages := range map[string][]string{
		"alone":               {init},
		"after an operation":  {query, init},
		"before an operation": {init, query},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := testOptions
				o.KeepAliveInterval = 0
				s, ss := NewServer(o), newFakeSession(t)
				p := dial(t, s, ss).startReading()
				time.Sleep(o.UnusedTimeout - time.Second)
				p.sendText(messages...)
				time.Sleep(time.Hour)
				if remainingSockets(s) != 1 {
					t.Errorf("the connection was closed with the reason %v, want it open", ss.why)
				}
				p.conn.Close()
				shutdown(t, s)
			})
		})
	}
}
