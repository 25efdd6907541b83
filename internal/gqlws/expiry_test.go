package gqlws

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestConnectionExpiresWithEarliestCredentialInUse(t *testing.T) {
	const (
		short   = `{"type":"connection_init","payload":{"ttl":"10s"}}`
		long    = `{"type":"connection_init","payload":{"ttl":"1h"}}`
		forever = `{"type":"connection_init"}`

		startB = `{"id":"b","type":"start","payload":{"query":"subscription{b}"}}`
		query  = `{"id":"b","type":"start","payload":{"query":"{wait}"}}`
		stopA  = `{"id":"a","type":"stop"}`
	)
	for name, tc := range map[string]struct {
		frames  []string
		expires time.Duration // 0 means not within a day
	}{
		"started under the shorter one":          {[]string{short, startA, long}, 10 * time.Second},
		"then one without expiry":                {[]string{short, startA, forever}, 10 * time.Second},
		"a running query":                        {[]string{short, query, long}, 10 * time.Second},
		"the second one expires earlier":         {[]string{long, startA, short}, 10 * time.Second},
		"nothing started under the shorter one":  {[]string{short, long, startA}, time.Hour},
		"operation stopped":                      {[]string{short, startA, long, stopA}, time.Hour},
		"operation restarted":                    {[]string{short, startA, long, startA}, time.Hour},
		"all stopped, without expiry":            {[]string{short, startA, forever, stopA}, 0},
		"one of two stopped":                     {[]string{short, startA, startB, long, stopA}, 10 * time.Second},
		"three credentials":                      {[]string{long, startA, short, startB, forever}, 10 * time.Second},
		"three credentials, the shortest unused": {[]string{long, startB, short, startA, forever, stopA}, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, ss := NewServer(testOptions), newFakeSession(t)
				p := dial(t, s, ss).startReading()
				begun := time.Now()
				p.sendText(tc.frames...)
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
					t.Errorf("the session expired after %v, want %v", got, tc.expires)
				}
				close(ss.release)
				p.conn.Close()
				shutdown(t, s)
			})
		})
	}
}
