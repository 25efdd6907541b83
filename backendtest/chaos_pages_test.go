package backendtest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/backendtest"
)

// pageResult is the result of one call of Blocks.
type pageResult struct {
	page  int // number of blocks
	err   error
	panic any
	took  time.Duration
}

// readPage calls Blocks with a context that expires after an hour.
func readPage(t testing.TB, b chaingql.Backend) (a pageResult) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	start := time.Now()
	defer func() {
		a.took, a.panic = time.Since(start), recover()
	}()
	page, err := b.Blocks(ctx, chaingql.BlocksQuery{First: 10})
	a.page, a.err = len(page), err
	return a
}

func TestEachFaultOfBlocksOccursAndIsCounted(t *testing.T) {
	chain := chainOf(t, backendtest.Chain(20, 1))
	for _, row := range []struct {
		name    string
		options backendtest.ChaosOptions
		want    pageResult // want.took is the minimum
		counts  backendtest.ChaosCounts
	}{
		{"none", backendtest.ChaosOptions{}, pageResult{page: 10}, backendtest.ChaosCounts{Pages: 1}},
		{
			"fail", backendtest.ChaosOptions{PageFail: 1}, pageResult{err: backendtest.ErrChaos},
			backendtest.ChaosCounts{Pages: 1, PagesFailed: 1},
		},
		{
			"panic", backendtest.ChaosOptions{PagePanic: 1}, pageResult{panic: backendtest.ErrChaos},
			backendtest.ChaosCounts{Pages: 1, PagesFailed: 1},
		},
		{
			"slow", backendtest.ChaosOptions{PageSlow: 1, Longest: time.Minute},
			pageResult{page: 10, took: 6 * time.Second},
			backendtest.ChaosCounts{Pages: 1, PagesSlow: 1},
		},
		{
			"hang", backendtest.ChaosOptions{PageHang: 1}, pageResult{err: context.DeadlineExceeded, took: time.Hour},
			backendtest.ChaosCounts{Pages: 1, PagesHung: 1},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				chaos := backendtest.Chaos(chain, row.options)
				got, counts := readPage(t, chaos), chaos.Counts()
				want := row.want
				same := got.page == want.page && errors.Is(got.err, want.err) && got.panic == want.panic
				if !same || got.took < want.took || got.took > want.took*10 || counts != row.counts {
					t.Errorf("got %+v with counts %+v, want %+v with %+v", got, counts, row.want, row.counts)
				}
			})
		})
	}
}

func TestCalmEndsPausesOfRunningCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := backendtest.Chain(50, 1)
		options := backendtest.ChaosOptions{Stall: 1, PageHang: 1, Longest: 24 * time.Hour}
		chaos := backendtest.Chaos(chainOf(t, blocks), options)
		followed, paged := make(chan followResult), make(chan pageResult)
		go func() { followed <- follow(t, chaos, blocks) }()
		go func() { paged <- readPage(t, chaos) }()
		time.Sleep(time.Second)
		chaos.Calm()
		chaos.Calm()
		if h := <-followed; len(h.numbers) != 50 || h.took != time.Second || h.faults() != (faults{}) {
			t.Errorf("Follow returned %+v, want all 50 blocks after 1s without faults", h)
		}
		if a := <-paged; a.page != 10 || a.took != time.Second {
			t.Errorf("Blocks returned %+v, want 10 blocks after 1s", a)
		}
	})
}

func TestPausedCallsReturnWhenTheirContextIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		options := backendtest.ChaosOptions{Stall: 1, PageSlow: 1, Longest: 24 * time.Hour}
		chaos := backendtest.Chaos(chainOf(t, backendtest.Chain(50, 1)), options)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		var ends []error
		for _, err := range chaos.Follow(ctx, "") {
			ends = append(ends, err)
		}
		if _, err := chaos.Blocks(ctx, chaingql.BlocksQuery{First: 1}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Blocks returned error %v, want DeadlineExceeded", err)
		}
		if len(ends) != 1 || !errors.Is(ends[0], context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("Follow yielded errors %v within %v, want one DeadlineExceeded after 1s", ends, time.Since(start))
		}
		if n := chaos.Counts(); n.Failures != 0 {
			t.Errorf("Counts has %d failures, want 0: a Follow whose context is done is no failure", n.Failures)
		}
	})
}
