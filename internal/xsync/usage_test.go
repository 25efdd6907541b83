package xsync_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql/internal/xsync"
)

func TestUsageFallsByAThousandthOfTheTimeThatPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var u xsync.Usage
		expect := func(when string, want time.Duration) {
			t.Helper()
			if got := u.Time(); got != want {
				t.Errorf("%s, the usage is %v, want %v", when, got, want)
			}
		}
		expect("at first", 0)
		u.Add(3 * time.Millisecond)
		u.Add(2 * time.Millisecond)
		expect("after work for 5 ms", 5*time.Millisecond)
		time.Sleep(time.Second)
		expect("a second later", 4*time.Millisecond)
		time.Sleep(time.Minute)
		expect("a minute later", 0)
		u.Add(time.Hour)
		expect("after work for an hour", time.Second)
	})
}
