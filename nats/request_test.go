package natschain_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	natschain "github.com/chaingql/chaingql/nats"
	"github.com/nats-io/nats.go"
)

// TestRepeatedRequestsBackOff makes all attempts of many calls fail at once. The attempts must become rarer, and those
// of different calls must not coincide.
func TestRepeatedRequestsBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seconds []time.Duration // when the second attempt of each call began
		for range 20 {
			b, began, attempts := natschain.Bare(nil, nil), time.Now(), 0
			err := b.Retry(t.Context(), func(context.Context) error {
				if attempts++; attempts == 2 {
					seconds = append(seconds, time.Since(began))
				}
				return nats.ErrNoResponders
			})
			if err == nil || time.Since(began) > natschain.DefaultTimeout+time.Second {
				t.Fatalf("got error %v after %v, want an error after the timeout", err, time.Since(began))
			}
			if attempts < 10 || attempts > 60 {
				t.Errorf("got %d attempts in %v, want 10 to 60", attempts, natschain.DefaultTimeout)
			}
		}
		slices.Sort(seconds)
		if n := len(slices.Compact(seconds)); n < 10 {
			t.Errorf("second attempts began at %d different times, want at least 10", n)
		}
	})
}
