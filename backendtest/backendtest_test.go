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

// whole is a harness of a source that can do all that can be asked of it.
func whole(c *memchain.Chain) Harness {
	return Harness{
		Backend:    c,
		Append:     func(blocks []chaingql.Block) error { return c.Append(blocks...) },
		SetBalance: func(a chaingql.Address, nano *big.Int) error { c.SetBalance(a, nano); return nil },
		Prune:      func(before chaingql.Cursor) error { c.Prune(before); return nil },
		Interrupt:  func() { c.Interrupt(nil) },
		Reopen:     func() (chaingql.Backend, error) { return c, nil },
	}
}

func TestChainInMemoryKeepsEveryRule(t *testing.T) {
	t.Parallel()
	Run(t, func(*testing.T) Harness { return whole(memchain.New()) })
}

func TestChainThatNumbersItsBlocksKeepsEveryRule(t *testing.T) {
	keepsEveryRule(t, func() Harness {
		h := whole(memchain.New())
		h.Cursor = chaingql.SeqCursor
		return h
	})
}

func TestPolledChainKeepsEveryRule(t *testing.T) {
	keepsEveryRule(t, func() Harness {
		c := memchain.New()
		h := whole(c)
		h.Backend = polled{c}
		h.Interrupt = nil // a poll has nothing to lose
		return h
	})
}

type polled struct{ *memchain.Chain }

func (p polled) Follow(ctx context.Context, after chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	return chaingql.Poll(ctx, p.Blocks, cmp.Or(after, "0"), 2*time.Millisecond)
}

// A stallable is a source that can fall silent, and heeds its contexts then.
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

func TestSourceThatFallsSilentKeepsEveryRule(t *testing.T) {
	keepsEveryRule(t, func() Harness {
		c := memchain.New()
		h := whole(c)
		s := stallable{c, new(atomic.Pointer[chan struct{}])}
		h.Backend = s
		h.Stall = s.stall
		return h
	})
}

func TestRecordedChainIsCheckedToo(t *testing.T) {
	t.Parallel()
	Run(t, func(t *testing.T) Harness {
		c := memchain.New()
		blocks := Chain(60, 1)
		if err := c.Append(blocks...); err != nil {
			t.Fatal(err)
		}
		addr := account(-1, "recorded")
		c.SetBalance(addr, pow120)
		return Harness{Backend: c, Blocks: blocks, Balances: map[chaingql.Address]*big.Int{addr: pow120}, Prune: whole(c).Prune, Interrupt: whole(c).Interrupt}
	})
}

func TestRulesThatASourceCannotBePutThroughAreNamed(t *testing.T) {
	h := whole(memchain.New())
	h.Prune, h.Interrupt = nil, nil
	got := h.leavesOut()
	for _, want := range []string{
		fmt.Sprintf("left out 11 of %d rules", len(rules)),
		`"pruned history is ErrCursorTooOld" (no Harness.Prune)`,
		`"an interrupted Follow ends with one error and can be resumed" (no Harness.Interrupt)`,
		`(no Harness.Stall)`, `(no Harness.Balances)`,
	} {
		if !strings.Contains(got, want) || strings.Contains(got, "\n") {
			t.Errorf("said %q, not in one line %q", got, want)
		}
	}
}

func TestHarnessThatCannotBeCheckedIsRefused(t *testing.T) {
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
		{whole(memchain.New()), ""},
	} {
		if got := row.h.fault(); !strings.Contains(got, row.want) || (row.want == "") != (got == "") {
			t.Errorf("said %q, not %q", got, row.want)
		}
	}
}

// notes takes down what the rules report.
type notes struct {
	mu   sync.Mutex
	said []string
}

func (n *notes) Helper() {}

func (n *notes) Errorf(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.said = append(n.said, fmt.Sprintf(format, args...))
}

func (n *notes) Fatalf(format string, args ...any) {
	n.Errorf(format, args...)
	runtime.Goexit()
}

// reports puts a source through one rule after the other, in no time, and yields what
// they say, each behind the name of the rule.
func reports(t *testing.T, open func(context.Context, *memchain.Chain) Harness) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, ru := range rules {
			for _, line := range reportsOf(t, ru, open) {
				if !yield(ru.name + ": " + line) {
					return
				}
			}
		}
	}
}

func reportsOf(t *testing.T, ru rule, open func(context.Context, *memchain.Chain) Harness) []string {
	var n notes
	synctest.Test(t, func(*testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel() // frees what a broken backend left hanging
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
	return n.said
}

// keepsEveryRule is Run, in no time.
func keepsEveryRule(t *testing.T, open func() Harness) {
	t.Helper()
	for said := range reports(t, func(context.Context, *memchain.Chain) Harness { return open() }) {
		t.Error(said)
	}
}

func TestEveryBrokenRuleIsNamed(t *testing.T) {
	for said := range reports(t, func(_ context.Context, c *memchain.Chain) Harness { return whole(c) }) {
		t.Fatalf("a backend that keeps every rule is told: %q", said)
	}
	broken := func(b breach) func(context.Context, *memchain.Chain) Harness {
		return func(ctx context.Context, c *memchain.Chain) Harness {
			h := whole(c)
			b.breaks(ctx, c, &h)
			return h
		}
	}
	for _, b := range unusual {
		for said := range reports(t, broken(b)) {
			t.Errorf("%s, which is right, is told: %q", b.name, said)
		}
	}
	for _, b := range slices.Concat(brokenAnswers, brokenFollows, brokenBatches, brokenPrunes, brokenValues) {
		t.Run(b.name, func(t *testing.T) {
			var said []string
			for line := range reports(t, broken(b)) {
				if strings.Contains(line, b.want) {
					t.Log(line)
					return
				}
				said = append(said, line)
			}
			t.Errorf("nothing says %q:\n%s", b.want, strings.Join(said, "\n"))
		})
	}
}
