package gqlws

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestEarliestExpiryOfAllRunningOperationsApplies(t *testing.T) {
	const (
		short, long, forever = `{"type":"connection_init","payload":{"ttl":"10s"}}`, `{"type":"connection_init","payload":{"ttl":"1h"}}`, `{"type":"connection_init"}`

		startB = `{"id":"b","type":"start","payload":{"query":"subscription{b}"}}`
		query  = `{"id":"b","type":"start","payload":{"query":"{wait}"}}`
		stopA  = `{"id":"a","type":"stop"}`
	)
	for name, tc := range map[string]struct {
		frames  []string
		expires time.Duration // 0: not within a day
	}{
		"started under the earlier one":              {[]string{short, startA, long}, 10 * time.Second},
		"started under one, then one without expiry": {[]string{short, startA, forever}, 10 * time.Second},
		"a query":                                {[]string{short, query, long}, 10 * time.Second},
		"the second one expires earlier":         {[]string{long, startA, short}, 10 * time.Second},
		"nothing was started under the earlier":  {[]string{short, long, startA}, time.Hour},
		"what was started is stopped":            {[]string{short, startA, long, stopA}, time.Hour},
		"what was started is started again":      {[]string{short, startA, long, startA}, time.Hour},
		"all is stopped, and nothing expires":    {[]string{short, startA, forever, stopA}, 0},
		"one of two is stopped":                  {[]string{short, startA, startB, long, stopA}, 10 * time.Second},
		"three sessions":                         {[]string{long, startA, short, startB, forever}, 10 * time.Second},
		"three sessions, and the short one goes": {[]string{long, startB, short, startA, forever, stopA}, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, ss := NewServer(testOptions), newScript(t)
				p := dial(t, s, ss).listen()
				begun := time.Now()
				p.say(tc.frames...)
				for {
					synctest.Wait()
					line := p.next()
					if strings.Contains(line, "Session expired") || time.Since(begun) > 24*time.Hour {
						break
					}
					if line == "" {
						time.Sleep(time.Second)
					}
				}
				if got := time.Since(begun); got != tc.expires && (tc.expires > 0 || got < 24*time.Hour) {
					t.Errorf("expired after %v, want %v", got, tc.expires)
				}
				close(ss.release)
				p.conn.Close()
				shutdown(t, s)
			})
		})
	}
}
