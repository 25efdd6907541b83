package backendtest

import (
	"context"
	"math/big"
	"time"

	"github.com/chaingql/chaingql"
)

// A call reads something from a Backend that is available at once.
type call struct {
	name string
	make func(context.Context) error
}

func (t *trial) calls() []call {
	addr := account(0, "one")
	if t.SetBalance != nil {
		t.setBalance(addr, big.NewInt(1))
	}
	ask := func(q chaingql.BlocksQuery) call {
		return call{describe(q), func(ctx context.Context) error {
			_, err := t.Backend.Blocks(ctx, q)
			return err
		}}
	}
	calls := []call{
		ask(chaingql.BlocksQuery{First: 1}),
		ask(chaingql.BlocksQuery{Last: chaingql.MaxPage}),
		{"Balance", func(ctx context.Context) error {
			_, err := t.Backend.Balance(ctx, addr)
			return err
		}},
	}
	if b, ok := t.Backend.(chaingql.BalanceBatcher); ok {
		calls = append(calls, call{"Balances", func(ctx context.Context) error {
			_, err := b.Balances(ctx, []chaingql.Address{addr, account(-1, "nobody")})
			return err
		}})
	}
	return calls
}

func doneContextFails(t *trial) {
	t.fill(50, 0)
	ctx, cancel := context.WithCancel(t.ctx)
	cancel()
	for _, c := range t.calls() {
		t.promptly(Prompt, c.name+" with a context that is done", func() error { return c.make(ctx) }, mustFail)
	}
}

// callReturnsWithItsContext cancels calls after slightly different delays.
func callReturnsWithItsContext(t *trial) {
	t.fill(50, 0)
	for _, c := range t.calls() {
		for i := range 20 {
			ctx, cancel := context.WithTimeout(t.ctx, time.Duration(i)*20*time.Microsecond)
			t.promptly(Prompt, c.name+" whose context ends meanwhile", func() error { return c.make(ctx) }, mayDoEither)
			cancel()
		}
	}
}

func stalledCallReturnsWithItsContext(t *trial) {
	t.fill(50, 0)
	f := t.follow(t.stored[len(t.stored)-1].Cursor) // which must return at the end, stalled or not
	f.quiet()
	resume := t.Stall()
	defer resume()
	for _, c := range t.calls() {
		ctx, cancel := context.WithTimeout(t.ctx, calm)
		t.promptly(calm+Prompt, c.name+" to a stalled source, whose context ends meanwhile,", func() error { return c.make(ctx) }, mustFail)
		cancel()
	}
	f.stop()
	g := t.follow(t.stored[0].Cursor)
	select {
	case <-time.After(calm):
	case <-g.returned:
	}
	g.stop()
}

func followEndsWithItsContext(t *trial) {
	t.fill(300, 0)
	n := len(t.stored)
	done, cancel := context.WithCancel(t.ctx)
	cancel()
	for _, from := range []int{0, n - 1} { // before it begins
		t.read(done, cancel, t.stored[from].Cursor).endsBecause("its context is done", Prompt)
	}
	for _, from := range []int{0, n - 1} { // while it catches up, and while it waits
		f := t.follow(t.stored[from].Cursor)
		f.expect(t.stored[from+1 : min(n, from+20)])
		f.cancel()
		f.endsBecause("its context is done", Prompt)
	}
}

// endsBecause checks that a Follow ends in time with exactly one error.
func (f *reading) endsBecause(why string, limit time.Duration) {
	f.t.Helper()
	err := f.end("an error, because "+why+",", limit)
	w := within(Prompt)
	defer w.Stop()
	for {
		select {
		case <-f.returned:
			return
		case it := <-f.items:
			f.t.Fatalf("%s %s", f.name, it.fault)
		case <-w.C:
			if w.over() {
				f.t.Fatalf("%s yielded its error (%v), because %s, and did not return: it must end with it", f.name, err, why)
			}
		}
	}
}
