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
