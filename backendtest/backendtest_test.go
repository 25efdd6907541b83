package backendtest

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math/big"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// fullHarness returns a Harness for c that sets every optional field except Stall, Blocks
// and Balances.
func fullHarness(c *memchain.Chain) Harness {
	chains := 0
	replace := func() error {
		chains++
		c.Replace(fmt.Sprint("e", chains))
		return nil
	}
	_ = replace() // the first chain has an epoch, too
	return Harness{
		Backend:    c,
		Append:     func(blocks []chaingql.Block) error { return c.Append(blocks...) },
		SetBalance: func(a chaingql.Address, nano *big.Int) error { c.SetBalance(a, nano); return nil },
		Prune:      func(before chaingql.Cursor) error { c.Prune(before); return nil },
		Interrupt:  func() { c.Interrupt(nil) },
		Reopen:     func() (chaingql.Backend, error) { return c, nil },
		Replace:    replace,
	}
}

func TestMemchainPassesAllRules(t *testing.T) {
	t.Parallel()
	Run(t, func(*testing.T) Harness { return fullHarness(memchain.New()) })
}

func TestBackendWithSeqCursorsPassesAllRules(t *testing.T) {
	checkAllRules(t, func() Harness {
		h := fullHarness(memchain.New())
		h.Cursor = chaingql.SeqCursor
		return h
	})
}

func TestBackendThatPollsPassesAllRules(t *testing.T) {
	checkAllRules(t, func() Harness {
		c := memchain.New()
		h := fullHarness(c)
		h.Backend = polled{c}
		h.Interrupt = nil // Poll has no connection to interrupt
		return h
	})
}

// polled is a chain. Its Follow polls Blocks.
type polled struct{ *memchain.Chain }

func (p polled) Follow(ctx context.Context, after chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	epoch := p.Epoch()
	page := func(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
		blocks, err := p.Blocks(ctx, q)
		if p.Epoch() != epoch {
			return nil, chaingql.ErrChainReplaced
		}
		return blocks, err
	}
	return chaingql.Poll(ctx, page, cmp.Or(after, "0"), 2*time.Millisecond)
}

// A stallable is a chain that can be stalled. While it is stalled, each call waits until
// the chain resumes or the context of the call is done. Each call takes at least delay.
type stallable struct {
	*memchain.Chain
	resumed *atomic.Pointer[chan struct{}] // nil if the chain is not stalled
	delay   time.Duration
}

func (s stallable) wait(ctx context.Context) error {
	if resumed := s.resumed.Load(); resumed != nil {
		select {
		case <-*resumed:
		case <-ctx.Done():
		}
	}
	if s.delay > 0 {
		select {
		case <-time.After(s.delay):
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

func (s stallable) stall() (resume func()) {
	resumed := make(chan struct{})
	s.resumed.Store(&resumed)
	return func() { s.resumed.Store(nil); close(resumed) }
}

func (s stallable) Balance(ctx context.Context, addr chaingql.Address) (*big.Int, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	return s.Chain.Balance(ctx, addr)
}

func (s stallable) Balances(ctx context.Context, addrs []chaingql.Address) ([]*big.Int, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	return s.Chain.Balances(ctx, addrs)
}

func (s stallable) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	return s.Chain.Blocks(ctx, q)
}

func (s stallable) BlockByHash(ctx context.Context, hash chaingql.Hash) (chaingql.Block, error) {
	if err := s.wait(ctx); err != nil {
		return chaingql.Block{}, err
	}
	return s.Chain.BlockByHash(ctx, hash)
}

func (s stallable) BlockBySeqNo(ctx context.Context, w int32, shard uint64, n uint32) (chaingql.Block, error) {
	if err := s.wait(ctx); err != nil {
		return chaingql.Block{}, err
	}
	return s.Chain.BlockBySeqNo(ctx, w, shard, n)
}

func (s stallable) MasterBlockByTime(ctx context.Context, at time.Time) (chaingql.Block, error) {
	if err := s.wait(ctx); err != nil {
		return chaingql.Block{}, err
	}
	return s.Chain.MasterBlockByTime(ctx, at)
}

func TestStallableBackendPassesAllRules(t *testing.T) {
	checkAllRules(t, func() Harness {
		c := memchain.New()
		h := fullHarness(c)
		s := stallable{Chain: c, resumed: new(atomic.Pointer[chan struct{}])}
		h.Backend = s
		h.Stall = s.stall
		return h
	})
}

func TestHarnessMayHaveBlocksInsteadOfAppend(t *testing.T) {
	t.Parallel()
	Run(t, func(t *testing.T) Harness {
		c := memchain.New()
		full := fullHarness(c)
		blocks := Chain(60, 1)
		if err := c.Append(blocks...); err != nil {
			t.Fatal(err)
		}
		addr := account(-1, "recorded")
		c.SetBalance(addr, pow120)
		return Harness{
			Backend: c, Blocks: blocks, Balances: map[chaingql.Address]*big.Int{addr: pow120},
			Prune: full.Prune, Interrupt: full.Interrupt,
		}
	})
}

func TestSkippedRulesAreLoggedInOneLine(t *testing.T) {
	h := fullHarness(memchain.New())
	h.Prune, h.Interrupt = nil, nil
	got := h.skippedRules()
	for _, want := range []string{
		fmt.Sprintf("skipped 15 of %d rules", len(rules)),
		`"a cursor before a pruned block is too old" (Harness.Prune is not set)`,
		`"an interrupted Follow yields one error and can be resumed" (Harness.Interrupt is not set)`,
		`(Harness.Stall is not set)`, `(Harness.Balances is not set)`,
	} {
		if !strings.Contains(got, want) || strings.Contains(got, "\n") {
			t.Errorf("got log text %q, want one line that contains %q", got, want)
		}
	}
}

func TestInvalidHarnessIsRejected(t *testing.T) {
	blocks := Chain(60, 1)
	swapped := slices.Clone(blocks)
	swapped[3], swapped[4] = swapped[4], swapped[3]
	for _, row := range []struct {
		h    Harness
		want string
	}{
		{Harness{}, "Backend is nil"},
		{Harness{Backend: memchain.New()}, "has 0 blocks: it needs at least 30"},
		{Harness{Backend: memchain.New(), Blocks: blocks[:29]}, "has 29 blocks"},
		{Harness{Backend: memchain.New(), Blocks: swapped}, "cursors must ascend"},
		{Harness{Backend: memchain.New(), Blocks: blocks}, ""},
		{fullHarness(memchain.New()), ""},
	} {
		if got := row.h.fault(); !strings.Contains(got, row.want) || (row.want == "") != (got == "") {
			t.Errorf("fault returned %q, want a text with %q", got, row.want)
		}
	}
}

// ruleFailures runs each rule in a synctest bubble and yields the failures, each with the
// name of its rule as a prefix.
func ruleFailures(t *testing.T, open func(context.Context, *memchain.Chain) Harness) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, ru := range rules {
			for _, line := range failuresOf(t, ru, open) {
				if !yield(ru.name + ": " + line) {
					return
				}
			}
		}
	}
}

// failuresOf runs ru in a synctest bubble and returns the failures that it reports.
func failuresOf(
	t *testing.T, ru rule, open func(context.Context, *memchain.Chain) Harness,
) (failures []string) {
	synctest.Test(t, func(*testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel() // ends the goroutines that a broken Backend left running
		h := open(ctx, memchain.New())
		if h.lacks(ru) != "" {
			return
		}
		failures = ru.try(h)
	})
	return failures
}

// checkAllRules is like Run, but runs each rule in a synctest bubble.
func checkAllRules(t *testing.T, open func() Harness) {
	t.Helper()
	for reported := range ruleFailures(t, func(context.Context, *memchain.Chain) Harness { return open() }) {
		t.Error(reported)
	}
}

func TestEachBrokenBackendFailsARule(t *testing.T) {
	correct := func(_ context.Context, c *memchain.Chain) Harness { return fullHarness(c) }
	for reported := range ruleFailures(t, correct) {
		t.Fatalf("a correct Backend failed a rule: %q", reported)
	}
	broken := func(b brokenBackend) func(context.Context, *memchain.Chain) Harness {
		return func(ctx context.Context, c *memchain.Chain) Harness {
			h := fullHarness(c)
			b.breaks(ctx, c, &h)
			return h
		}
	}
	for _, b := range unusual {
		for reported := range ruleFailures(t, broken(b)) {
			t.Errorf("the contract allows %s, but a rule failed: %q", b.name, reported)
		}
	}
	for _, b := range slices.Concat(
		brokenResults, brokenFollows, brokenBatches, brokenPrunes, brokenRarePrunes, brokenValues, brokenPlaces,
		brokenCaches, brokenLookups, brokenEpochs, brokenCalls, brokenReplacements, brokenBusy, brokenLags,
	) {
		t.Run(b.name, func(t *testing.T) {
			var reported []string
			for line := range ruleFailures(t, broken(b)) {
				if strings.Contains(line, b.want) {
					t.Log(line)
					return
				}
				reported = append(reported, line)
			}
			t.Errorf("no rule reported a text with %q; all reports:\n%s", b.want, strings.Join(reported, "\n"))
		})
	}
}
