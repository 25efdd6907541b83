package backendtest_test

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/backendtest"
	"github.com/chaingql/chaingql/memchain"
)

func chainOf(t testing.TB, blocks []chaingql.Block) *memchain.Chain {
	t.Helper()
	chain := memchain.New()
	if err := chain.Append(blocks...); err != nil {
		t.Fatal(err)
	}
	return chain
}

// heard is one Follow from beginning to end: the numbers of the blocks that
// came, and how it ended.
type heard struct {
	numbers []int
	err     error
	panic   any
	took    time.Duration
}

// hear follows until the Follow ends, or the chain has no more.
func hear(t testing.TB, b chaingql.Backend, blocks []chaingql.Block) (h heard) {
	number := make(map[chaingql.Cursor]int, len(blocks))
	for i, block := range blocks {
		number[block.Cursor] = i
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	start := time.Now()
	defer func() {
		h.took, h.panic = time.Since(start), recover()
	}()
	for block, err := range b.Follow(ctx, "") {
		if err != nil {
			h.err = err
			break
		}
		h.numbers = append(h.numbers, number[block.Cursor])
		if block.Cursor == blocks[len(blocks)-1].Cursor {
			break
		}
	}
	return h
}

func TestChaosWithoutRatesKeepsTheContract(t *testing.T) {
	t.Parallel()
	keepsTheContract(t, backendtest.ChaosOptions{})
}

func TestASlowSourceKeepsTheContract(t *testing.T) {
	t.Parallel()
	keepsTheContract(t, backendtest.ChaosOptions{Stall: 0.02, PageSlow: 0.1, Longest: 2 * time.Millisecond})
}

func TestACalmedSourceKeepsTheContract(t *testing.T) {
	t.Parallel()
	keepsTheContract(t, backendtest.ChaosOptions{
		Fail: 1, End: 1, Panic: 1, Stall: 1, Hole: 1, Duplicate: 1, Replay: 1, Swap: 1,
		PageFail: 1, PagePanic: 1, PageSlow: 1, PageHang: 1,
	}, (*backendtest.ChaosBackend).Calm)
}

func keepsTheContract(t *testing.T, o backendtest.ChaosOptions, with ...func(*backendtest.ChaosBackend)) {
	backendtest.Run(t, func(*testing.T) backendtest.Harness {
		chain := memchain.New()
		chaos := backendtest.Chaos(chain, o)
		for _, do := range with {
			do(chaos)
		}
		return backendtest.Harness{
			Backend:    chaos,
			Append:     func(blocks []chaingql.Block) error { return chain.Append(blocks...) },
			SetBalance: func(a chaingql.Address, n *big.Int) error { chain.SetBalance(a, n); return nil },
			Prune:      func(before chaingql.Cursor) error { chain.Prune(before); return nil },
			Interrupt:  func() { chain.Interrupt(nil) },
		}
	})
}

// TestEachFaultOfFollowShows puts a Follow through one fault at a time.
func TestEachFaultOfFollowShows(t *testing.T) {
	blocks := backendtest.Chain(400, 1)
	for _, row := range []struct {
		name    string
		options backendtest.ChaosOptions
		want    func(h heard, n backendtest.ChaosCounts) bool
	}{
		{"none", backendtest.ChaosOptions{}, func(h heard, n backendtest.ChaosCounts) bool {
			return len(h.numbers) == 400 && h.order() == order{} && n == backendtest.ChaosCounts{Follows: 1}
		}},
		{"fail", backendtest.ChaosOptions{Fail: 0.02}, func(h heard, n backendtest.ChaosCounts) bool {
			return errors.Is(h.err, backendtest.ErrChaos) && n.Failures == 1 && h.order() == order{}
		}},
		{"end", backendtest.ChaosOptions{End: 0.02}, func(h heard, n backendtest.ChaosCounts) bool {
			return len(h.numbers) < 400 && h.err == nil && h.panic == nil && n.Failures == 1 && h.order() == order{}
		}},
		{"panic", backendtest.ChaosOptions{Panic: 0.02}, func(h heard, n backendtest.ChaosCounts) bool {
			return h.panic == backendtest.ErrChaos && n.Failures == 1 && n.Panics == 1 && h.order() == order{}
		}},
		{"stall", backendtest.ChaosOptions{Stall: 0.1, Longest: time.Minute}, func(h heard, n backendtest.ChaosCounts) bool {
			stalls := time.Duration(n.Stalls)
			return stalls > 0 && h.took >= stalls*6*time.Second && h.took <= stalls*time.Minute && h.order() == order{}
		}},
		{"hole", backendtest.ChaosOptions{Hole: 0.1}, func(h heard, n backendtest.ChaosCounts) bool {
			return h.order() == order{missing: n.Holes} && n.Holes > 0
		}},
		{"duplicate", backendtest.ChaosOptions{Duplicate: 0.1}, func(h heard, n backendtest.ChaosCounts) bool {
			return h.order() == order{again: n.Duplicates} && n.Duplicates > 0
		}},
		{"replay", backendtest.ChaosOptions{Replay: 0.1}, func(h heard, n backendtest.ChaosCounts) bool {
			return h.order() == order{below: n.Reordered} && n.Reordered > 0
		}},
		{"swap", backendtest.ChaosOptions{Swap: 0.1}, func(h heard, n backendtest.ChaosCounts) bool {
			slices.Sort(h.numbers)
			return h.order() == order{} && n.Reordered > 0
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				row.options.Seed = 7
				chaos := backendtest.Chaos(chainOf(t, blocks), row.options)
				h := hear(t, chaos, blocks)
				if n := chaos.Counts(); !row.want(h, n) {
					t.Errorf("counts %+v\nheard %+v\norder %+v", n, h, h.order())
				}
			})
		})
	}
}

// order is in what a Follow was not as it should be.
type order struct{ missing, again, below int }

func (h heard) order() (o order) {
	newest := -1
	seen := map[int]bool{}
	for _, n := range h.numbers {
		switch {
		case n == newest:
			o.again++
		case n < newest:
			o.below++
		default:
			newest = n
		}
		seen[n] = true
	}
	o.missing = newest + 1 - len(seen)
	return o
}

func TestSwappedNeighboursComeInTheOtherOrder(t *testing.T) {
	blocks := backendtest.Chain(6, 1)
	chaos := backendtest.Chaos(chainOf(t, blocks), backendtest.ChaosOptions{Swap: 1})
	if h := hear(t, chaos, blocks[:5]); fmt.Sprint(h.numbers) != "[1 0 3 2 0 4]" {
		t.Errorf("heard %v", h.numbers) // number 5 is not among those known, and reads as 0
	}
}

var everything = backendtest.ChaosOptions{
	Seed: 3, Fail: 0.01, End: 0.005, Panic: 0.005, Stall: 0.02, Hole: 0.05, Duplicate: 0.05, Replay: 0.05, Swap: 0.05,
	PageFail: 0.1, PagePanic: 0.05, PageSlow: 0.1, PageHang: 0.1, Longest: time.Second,
}

func TestChaosIsTheSameForTheSameSeed(t *testing.T) {
	blocks := backendtest.Chain(300, 1)
	run := func(seed uint64) (all string) {
		synctest.Test(t, func(t *testing.T) {
			o := everything
			o.Seed = seed
			chaos := backendtest.Chaos(chainOf(t, blocks), o)
			for range 5 {
				all += fmt.Sprintln(hear(t, chaos, blocks))
				all += fmt.Sprintln(ask(t, chaos))
			}
			all += fmt.Sprintln(chaos.Counts())
		})
		return all
	}
	if a, b := run(1), run(1); a != b {
		t.Errorf("two runs of one seed differ:\n%s\n%s", a, b)
	}
	if run(1) == run(2) {
		t.Error("two seeds did the same")
	}
}

// asked is one call of Blocks.
type asked struct {
	page  int // blocks
	err   error
	panic any
	took  time.Duration
}

func ask(t testing.TB, b chaingql.Backend) (a asked) {
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

func TestEachFaultOfBlocksShows(t *testing.T) {
	chain := chainOf(t, backendtest.Chain(20, 1))
	for _, row := range []struct {
		name    string
		options backendtest.ChaosOptions
		want    asked // took is the least
		counts  backendtest.ChaosCounts
	}{
		{"none", backendtest.ChaosOptions{}, asked{page: 10}, backendtest.ChaosCounts{Pages: 1}},
		{"fail", backendtest.ChaosOptions{PageFail: 1}, asked{err: backendtest.ErrChaos}, backendtest.ChaosCounts{Pages: 1, PagesFailed: 1}},
		{"panic", backendtest.ChaosOptions{PagePanic: 1}, asked{panic: backendtest.ErrChaos}, backendtest.ChaosCounts{Pages: 1, PagesFailed: 1}},
		{"slow", backendtest.ChaosOptions{PageSlow: 1, Longest: time.Minute}, asked{page: 10, took: 6 * time.Second}, backendtest.ChaosCounts{Pages: 1, PagesSlow: 1}},
		{"hang", backendtest.ChaosOptions{PageHang: 1}, asked{err: context.DeadlineExceeded, took: time.Hour}, backendtest.ChaosCounts{Pages: 1, PagesHung: 1}},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				chaos := backendtest.Chaos(chain, row.options)
				got, counts := ask(t, chaos), chaos.Counts()
				if got.page != row.want.page || !errors.Is(got.err, row.want.err) || got.panic != row.want.panic || got.took < row.want.took || got.took > row.want.took*10 || counts != row.counts {
					t.Errorf("got %+v with counts %+v, want %+v with %+v", got, counts, row.want, row.counts)
				}
			})
		})
	}
}

func TestCalmLetsStalledCallsGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := backendtest.Chain(50, 1)
		chaos := backendtest.Chaos(chainOf(t, blocks), backendtest.ChaosOptions{Stall: 1, PageHang: 1, Longest: 24 * time.Hour})
		followed, paged := make(chan heard), make(chan asked)
		go func() { followed <- hear(t, chaos, blocks) }()
		go func() { paged <- ask(t, chaos) }()
		time.Sleep(time.Second)
		chaos.Calm()
		chaos.Calm()
		if h := <-followed; len(h.numbers) != 50 || h.took != time.Second || h.order() != (order{}) {
			t.Errorf("Follow: %+v", h)
		}
		if a := <-paged; a.page != 10 || a.took != time.Second {
			t.Errorf("Blocks: %+v", a)
		}
	})
}

func TestStalledCallsEndWithTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		chaos := backendtest.Chaos(chainOf(t, backendtest.Chain(50, 1)), backendtest.ChaosOptions{Stall: 1, PageSlow: 1, Longest: 24 * time.Hour})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		var ends []error
		for _, err := range chaos.Follow(ctx, "") {
			ends = append(ends, err)
		}
		if _, err := chaos.Blocks(ctx, chaingql.BlocksQuery{First: 1}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Blocks: %v", err)
		}
		if len(ends) != 1 || !errors.Is(ends[0], context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("Follow yielded %v within %v", ends, time.Since(start))
		}
		if n := chaos.Counts(); n.Failures != 0 {
			t.Errorf("the end of a context counts as %d failures", n.Failures)
		}
	})
}

// TestTheTruthRemainsWithinReach reads a chain whole, as a Handler does: it
// follows again from where it was, and looks holes up with Blocks.
func TestTheTruthRemainsWithinReach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := backendtest.Chain(2000, 5)
		chaos := backendtest.Chaos(chainOf(t, blocks), everything)
		var got []chaingql.Block
		last := func() chaingql.Cursor {
			if len(got) == 0 {
				return ""
			}
			return got[len(got)-1].Cursor
		}
		attempt := func() {
			defer func() { _ = recover() }()
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			for b, err := range chaos.Follow(ctx, last()) {
				if err != nil {
					return
				}
				if b.Cursor <= last() {
					continue
				}
				missed, err := chaos.Blocks(ctx, chaingql.BlocksQuery{After: last(), Before: b.Cursor, First: chaingql.MaxPage})
				if err != nil {
					return
				}
				if got = append(append(got, missed...), b); len(got) == len(blocks) {
					return
				}
			}
		}
		for range 10_000 {
			if attempt(); last() == blocks[len(blocks)-1].Cursor {
				break
			}
		}
		if !slices.Equal(got, blocks) {
			t.Errorf("got %d blocks up to %q of %d", len(got), last(), len(blocks))
		}
		n := chaos.Counts()
		for what, count := range map[string]int{
			"failures": n.Failures, "panics": n.Panics, "stalls": n.Stalls, "duplicates": n.Duplicates, "reordered": n.Reordered,
			"holes": n.Holes, "pages failed": n.PagesFailed, "pages slow": n.PagesSlow, "pages hung": n.PagesHung,
		} {
			if count == 0 {
				t.Errorf("no %s: %+v", what, n)
			}
		}
	})
}
