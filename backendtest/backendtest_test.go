package backendtest

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math/big"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// fullHarness returns a Harness that supports every rule except those about stalls and batches.
func fullHarness(c *memchain.Chain) Harness {
	return Harness{
		Backend:    c,
		Append:     func(blocks []chaingql.Block) error { return c.Append(blocks...) },
		SetBalance: func(a chaingql.Address, nano *big.Int) error { c.SetBalance(a, nano); return nil },
		Prune:      func(before chaingql.Cursor) error { c.Prune(before); return nil },
		Interrupt:  func() { c.Interrupt(nil) },
		Reopen:     func() (chaingql.Backend, error) { return c, nil },
	}
}

func TestMemchainPasses(t *testing.T) {
	t.Parallel()
	Run(t, func(*testing.T) Harness { return fullHarness(memchain.New()) })
}

func TestSequentialCursorsPass(t *testing.T) {
	checkAllRules(t, func() Harness {
		h := fullHarness(memchain.New())
		h.Cursor = chaingql.SeqCursor
		return h
	})
}

func TestPolledChainPasses(t *testing.T) {
	checkAllRules(t, func() Harness {
		c := memchain.New()
		h := fullHarness(c)
		h.Backend = polled{c}
		h.Interrupt = nil // Poll has no connection to interrupt
		return h
	})
}

type polled struct{ *memchain.Chain }

func (p polled) Follow(ctx context.Context, after chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	return chaingql.Poll(ctx, p.Blocks, cmp.Or(after, "0"), 2*time.Millisecond)
}

// A stallable is a chain. If it is stalled, its calls wait until it resumes or their context is done.
type stallable struct {
	*memchain.Chain
	silent *atomic.Pointer[chan struct{}]
}

func (s stallable) wait(ctx context.Context) error {
	if over := s.silent.Load(); over != nil {
		select {
		case <-*over:
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

func (s stallable) stall() (resume func()) {
	over := make(chan struct{})
	s.silent.Store(&over)
	return func() { s.silent.Store(nil); close(over) }
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

func TestStallableSourcePasses(t *testing.T) {
	checkAllRules(t, func() Harness {
		c := memchain.New()
		h := fullHarness(c)
		s := stallable{c, new(atomic.Pointer[chan struct{}])}
		h.Backend = s
		h.Stall = s.stall
		return h
	})
}

func TestHarnessWithRecordedBlocksPasses(t *testing.T) {
	t.Parallel()
	Run(t, func(t *testing.T) Harness {
		c := memchain.New()
		blocks := Chain(60, 1)
		if err := c.Append(blocks...); err != nil {
			t.Fatal(err)
		}
		addr := account(-1, "recorded")
		c.SetBalance(addr, pow120)
		return Harness{
			Backend: c, Blocks: blocks, Balances: map[chaingql.Address]*big.Int{addr: pow120},
			Prune: fullHarness(c).Prune, Interrupt: fullHarness(c).Interrupt,
		}
	})
}

func TestSkippedRulesAreNamed(t *testing.T) {
	h := fullHarness(memchain.New())
	h.Prune, h.Interrupt = nil, nil
	got := h.leavesOut()
	for _, want := range []string{
		fmt.Sprintf("left out 12 of %d rules", len(rules)),
		`"pruned history is ErrCursorTooOld" (no Harness.Prune)`,
		`"an interrupted Follow ends with one error and can be resumed" (no Harness.Interrupt)`,
		`(no Harness.Stall)`, `(no Harness.Balances)`,
	} {
		if !strings.Contains(got, want) || strings.Contains(got, "\n") {
			t.Errorf("got %q, want one line with %q", got, want)
		}
	}
}

func TestInvalidHarnessIsRefused(t *testing.T) {
	blocks := Chain(60, 1)
	swapped := slices.Clone(blocks)
	swapped[3], swapped[4] = swapped[4], swapped[3]
	for _, row := range []struct {
		h    Harness
		want string
	}{
		{Harness{}, "no Backend"},
		{Harness{Backend: memchain.New()}, "0 Blocks: at least 30 are needed"},
		{Harness{Backend: memchain.New(), Blocks: blocks[:29]}, "29 Blocks"},
		{Harness{Backend: memchain.New(), Blocks: swapped}, "they must ascend"},
		{Harness{Backend: memchain.New(), Blocks: blocks}, ""},
		{fullHarness(memchain.New()), ""},
	} {
		if got := row.h.fault(); !strings.Contains(got, row.want) || (row.want == "") != (got == "") {
			t.Errorf("got %q, want %q", got, row.want)
		}
	}
}

// A reportRecorder records the failures that rules report.
type reportRecorder struct {
	mu       sync.Mutex
	reported []string
}

func (n *reportRecorder) Helper() {}

func (n *reportRecorder) Errorf(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reported = append(n.reported, fmt.Sprintf(format, args...))
}

func (n *reportRecorder) Fatalf(format string, args ...any) {
	n.Errorf(format, args...)
	runtime.Goexit()
}

// ruleFailures runs each rule in a bubble and yields its failures, prefixed with the name of the rule.
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

func failuresOf(t *testing.T, ru rule, open func(context.Context, *memchain.Chain) Harness) []string {
	var n reportRecorder
	synctest.Test(t, func(*testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel() // ends goroutines that a broken Backend left
		h := open(ctx, memchain.New())
		if h.lacks(ru) != "" {
			return
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			ru.try(&n, h)
		}()
		<-done
	})
	return n.reported
}

// checkAllRules is like Run, but runs each rule in a bubble.
func checkAllRules(t *testing.T, open func() Harness) {
	t.Helper()
	for reported := range ruleFailures(t, func(context.Context, *memchain.Chain) Harness { return open() }) {
		t.Error(reported)
	}
}

func TestEachViolationIsReported(t *testing.T) {
	correct := func(_ context.Context, c *memchain.Chain) Harness { return fullHarness(c) }
	for reported := range ruleFailures(t, correct) {
		t.Fatalf("a correct Backend fails: %q", reported)
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
			t.Errorf("%s is allowed, but fails: %q", b.name, reported)
		}
	}
	for _, b := range slices.Concat(
		brokenAnswers, brokenFollows, brokenBatches, brokenPrunes, brokenValues, brokenPlaces, brokenCaches,
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
			t.Errorf("no rule reported %q, only\n%s", b.want, strings.Join(reported, "\n"))
		})
	}
}
