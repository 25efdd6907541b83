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

// chainOf returns a new chain with blocks.
func chainOf(t testing.TB, blocks []chaingql.Block) *memchain.Chain {
	t.Helper()
	chain := memchain.New()
	if err := chain.Append(blocks...); err != nil {
		t.Fatal(err)
	}
	return chain
}

// followResult holds the blocks that a Follow yielded, and how it ended.
type followResult struct {
	numbers []int // the index of each block in the chain
	err     error
	panic   any
	took    time.Duration
}

// follow reads from Follow until Follow ends or yields the last of blocks.
func follow(t testing.TB, b chaingql.Backend, blocks []chaingql.Block) (h followResult) {
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

func TestChaosWithoutFaultsPassesAllRules(t *testing.T) {
	t.Parallel()
	checkContract(t, backendtest.ChaosOptions{})
}

func TestChaosWithPausesPassesAllRules(t *testing.T) {
	t.Parallel()
	checkContract(t, backendtest.ChaosOptions{Stall: 0.02, PageSlow: 0.1, Longest: 2 * time.Millisecond})
}

func TestChaosPassesAllRulesAfterCalm(t *testing.T) {
	t.Parallel()
	checkContract(t, backendtest.ChaosOptions{
		Fail: 1, End: 1, Panic: 1, Stall: 1, Hole: 1, Duplicate: 1, Replay: 1, Swap: 1,
		PageFail: 1, PagePanic: 1, PageSlow: 1, PageHang: 1,
	}, (*backendtest.ChaosBackend).Calm)
}

// checkContract runs the rules with a ChaosBackend, to which it first applies the
// functions in with.
func checkContract(t *testing.T, o backendtest.ChaosOptions, with ...func(*backendtest.ChaosBackend)) {
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

func TestEachFaultOfFollowOccursAndIsCounted(t *testing.T) {
	blocks := backendtest.Chain(400, 1)
	for _, row := range []struct {
		name    string
		options backendtest.ChaosOptions
		want    func(h followResult, n backendtest.ChaosCounts) bool
	}{
		{"none", backendtest.ChaosOptions{}, func(h followResult, n backendtest.ChaosCounts) bool {
			return len(h.numbers) == 400 && h.faults() == faults{} && n == backendtest.ChaosCounts{Follows: 1}
		}},
		{"fail", backendtest.ChaosOptions{Fail: 0.02}, func(h followResult, n backendtest.ChaosCounts) bool {
			return errors.Is(h.err, backendtest.ErrChaos) && n.Failures == 1 && h.faults() == faults{}
		}},
		{"end", backendtest.ChaosOptions{End: 0.02}, func(h followResult, n backendtest.ChaosCounts) bool {
			return len(h.numbers) < 400 && h.err == nil && h.panic == nil && n.Failures == 1 && h.faults() == faults{}
		}},
		{"panic", backendtest.ChaosOptions{Panic: 0.02}, func(h followResult, n backendtest.ChaosCounts) bool {
			return h.panic == backendtest.ErrChaos && n.Failures == 1 && n.Panics == 1 && h.faults() == faults{}
		}},
		{"stall", backendtest.ChaosOptions{Stall: 0.1, Longest: time.Minute}, func(
			h followResult, n backendtest.ChaosCounts,
		) bool {
			stalls := time.Duration(n.Stalls)
			return stalls > 0 && h.took >= stalls*6*time.Second && h.took <= stalls*time.Minute &&
				h.faults() == faults{}
		}},
		{"hole", backendtest.ChaosOptions{Hole: 0.1}, func(h followResult, n backendtest.ChaosCounts) bool {
			return h.faults() == faults{missing: n.Holes} && n.Holes > 0
		}},
		{"duplicate", backendtest.ChaosOptions{Duplicate: 0.1}, func(h followResult, n backendtest.ChaosCounts) bool {
			return h.faults() == faults{repeated: n.Duplicates} && n.Duplicates > 0
		}},
		{"replay", backendtest.ChaosOptions{Replay: 0.1}, func(h followResult, n backendtest.ChaosCounts) bool {
			return h.faults() == faults{descending: n.Reordered} && n.Reordered > 0
		}},
		{"swap", backendtest.ChaosOptions{Swap: 0.1}, func(h followResult, n backendtest.ChaosCounts) bool {
			slices.Sort(h.numbers)
			return h.faults() == faults{} && n.Reordered > 0
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				row.options.Seed = 7
				chaos := backendtest.Chaos(chainOf(t, blocks), row.options)
				h := follow(t, chaos, blocks)
				if n := chaos.Counts(); !row.want(h, n) {
					t.Errorf("wrong result\ncounts: %+v\nresult: %+v\nfaults: %+v", n, h, h.faults())
				}
			})
		})
	}
}

// faults holds the numbers of blocks that a Follow skipped, yielded twice in a row, or
// yielded after a newer block.
type faults struct{ missing, repeated, descending int }

func (h followResult) faults() (o faults) {
	newest := -1
	seen := map[int]bool{}
	for _, n := range h.numbers {
		switch {
		case n == newest:
			o.repeated++
		case n < newest:
			o.descending++
		default:
			newest = n
		}
		seen[n] = true
	}
	o.missing = newest + 1 - len(seen)
	return o
}

func TestSwapYieldsNeighborsInReverseOrder(t *testing.T) {
	blocks := backendtest.Chain(6, 1)
	chaos := backendtest.Chaos(chainOf(t, blocks), backendtest.ChaosOptions{Swap: 1})
	if h := follow(t, chaos, blocks[:5]); fmt.Sprint(h.numbers) != "[1 0 3 2 0 4]" {
		// follow knows only five of the six blocks and reports the sixth as 0, before the 4.
		t.Errorf("got blocks %v, want [1 0 3 2 0 4]", h.numbers)
	}
}

// everything has all faults.
var everything = backendtest.ChaosOptions{
	Seed: 3, Fail: 0.01, End: 0.005, Panic: 0.005, Stall: 0.02, Hole: 0.05, Duplicate: 0.05, Replay: 0.05, Swap: 0.05,
	PageFail: 0.1, PagePanic: 0.05, PageSlow: 0.1, PageHang: 0.1, Longest: time.Second,
}

func TestSameSeedCausesSameFaults(t *testing.T) {
	blocks := backendtest.Chain(300, 1)
	run := func(seed uint64) (all string) {
		synctest.Test(t, func(t *testing.T) {
			o := everything
			o.Seed = seed
			chaos := backendtest.Chaos(chainOf(t, blocks), o)
			for range 5 {
				all += fmt.Sprintln(follow(t, chaos, blocks))
				all += fmt.Sprintln(readPage(t, chaos))
			}
			all += fmt.Sprintln(chaos.Counts())
		})
		return all
	}
	if a, b := run(1), run(1); a != b {
		t.Errorf("two runs with seed 1 differ:\n%s\n%s", a, b)
	}
	if run(1) == run(2) {
		t.Error("runs with seeds 1 and 2 do not differ")
	}
}

// Like a Handler, the reader in this test calls Follow again after each failure, from the
// last cursor that it received, and uses Blocks to read blocks that Follow skipped.
func TestReaderCanRecoverAllBlocksFromChaos(t *testing.T) {
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
				q := chaingql.BlocksQuery{After: last(), Before: b.Cursor, First: chaingql.MaxPage}
				missed, err := chaos.Blocks(ctx, q)
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
			t.Errorf("got %d blocks up to cursor %q, want all %d blocks", len(got), last(), len(blocks))
		}
		n := chaos.Counts()
		for what, count := range map[string]int{
			"failures": n.Failures, "panics": n.Panics, "stalls": n.Stalls,
			"duplicates": n.Duplicates, "reordered": n.Reordered,
			"holes": n.Holes, "pages failed": n.PagesFailed, "pages slow": n.PagesSlow, "pages hung": n.PagesHung,
		} {
			if count == 0 {
				t.Errorf("the count of %s is 0, so the test did not check this fault; all counts: %+v", what, n)
			}
		}
	})
}
