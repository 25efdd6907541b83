package xsync

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestSpreadIs10MsPerClientUpToHalfOfTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tc := range []struct {
			n             int
			timeout, want time.Duration // a timeout of 0 means no deadline
		}{
			{0, 0, 0},
			{1, 0, 0},
			{1, time.Second, 0},
			{2, time.Second, 10 * time.Millisecond},
			{200, 10 * time.Second, 1990 * time.Millisecond},
			{200, time.Second, 500 * time.Millisecond},
			{200, -time.Second, 0},
			{1001, 0, 10 * time.Second},
			{50000, 0, 10 * time.Second},
			{50000, time.Minute, 30 * time.Second},
		} {
			ctx, cancel := context.Background(), func() {}
			if tc.timeout != 0 {
				ctx, cancel = context.WithTimeout(ctx, tc.timeout)
			}
			if got := Spread(ctx, tc.n); got != tc.want {
				t.Errorf("Spread for %d clients and a timeout of %v is %v, want %v", tc.n, tc.timeout, got, tc.want)
			}
			cancel()
		}
	})
}

// The calls, and timers that fire late, must not add to the time.
func TestSpreadOutEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		SpreadOut(t.Context(), 1001, func(i int) { time.Sleep(time.Duration(i%2) * 20 * time.Millisecond) })
		if took := time.Since(begun); took != 10*time.Second+10*time.Millisecond && took != 10*time.Second {
			t.Errorf("1,001 calls took %v, want 10 s", took)
		}
	})
}
