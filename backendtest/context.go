package backendtest

import (
	"context"
	"errors"
	"math/big"
	"sync"
	"time"

	"github.com/chaingql/chaingql"
)

// A call is a call of a Backend method for data that is already stored, so that a correct
// Backend can return it at once.
type call struct {
	name string
	make func(context.Context) error
}

// calls returns a call of each Backend method except Follow.
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
	for _, l := range t.allLookups() {
		calls = append(calls, call{l.name, func(ctx context.Context) error {
			_, err := l.find(ctx, &t.stored[0])
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
		t.promptly(Prompt, c.name+" with a done context", func() error { return c.make(ctx) }, mustFail)
	}
}

// callReturnsWithItsContext makes calls with contexts that expire after various short delays.
func callReturnsWithItsContext(t *trial) {
	t.fill(50, 0)
	for _, c := range t.calls() {
		for i := range 20 {
			ctx, cancel := context.WithTimeout(t.ctx, time.Duration(i)*20*time.Microsecond)
			what := c.name + ", whose context expired during the call,"
			t.promptly(Prompt, what, func() error { return c.make(ctx) }, mayDoEither)
			cancel()
		}
	}
}

func stalledCallReturnsWithItsContext(t *trial) {
	t.fill(50, 0)
	f := t.follow(t.stored[len(t.stored)-1].Cursor) // stop checks that it returns although the source is stalled
	f.quiet()
	resume := sync.OnceFunc(t.Stall())
	defer resume()
	if e, ok := t.Backend.(chaingql.Epocher); ok { // Epoch must not wait for the source, and has no context
		t.promptly(Prompt, "Epoch, called while the source was stalled,", func() error {
			e.Epoch()
			return nil
		}, mustSucceed)
	}
	for _, c := range t.calls() {
		ctx, cancel := context.WithTimeout(t.ctx, quietTime)
		what := c.name + ", whose context expired while the source was stalled,"
		t.promptly(quietTime+Prompt, what, func() error { return c.make(ctx) }, mustFail)
		cancel()
	}
	f.stop()
	g := t.follow(t.stored[0].Cursor)
	select {
	case <-time.After(quietTime):
	case <-g.returned:
	}
	g.stop()
	resume()
	t.recovers("after the source had stalled")
	t.follow(t.stored[0].Cursor).expect(t.stored[1:])
}

// recovers checks that each call succeeds again within t.Patience. A Backend may need some calls to notice that its
// connections are broken. when describes the cause in messages.
func (t *trial) recovers(when string) {
	for _, c := range t.calls() {
		t.promptly(t.Patience+Prompt, c.name+", repeated "+when+",", func() error {
			ctx, cancel := context.WithTimeout(t.ctx, t.Patience)
			defer cancel()
			for {
				err := c.make(ctx)
				switch {
				case !fails(err):
					return nil
				case ctx.Err() != nil:
					return err
				}
				time.Sleep(time.Millisecond)
			}
		}, mustSucceed)
	}
}

// fails reports whether a call failed, in contrast to a source that lacks the account or the block.
func fails(err error) bool {
	return err != nil && !errors.Is(err, chaingql.ErrNotFound) && !errors.Is(err, chaingql.ErrBlockNotFound) &&
		!errors.Is(err, chaingql.ErrLookupNotSupported)
}

func followEndsWithItsContext(t *trial) {
	t.fill(300, 0)
	n := len(t.stored)
	done, cancel := context.WithCancel(t.ctx)
	cancel()
	for _, from := range []int{0, n - 1} { // the context is done before Follow starts
		t.read(done, cancel, t.stored[from].Cursor).endsBecause("its context is done", Prompt)
	}
	for _, from := range []int{0, n - 1} { // the context is canceled while Follow catches up or waits
		f := t.follow(t.stored[from].Cursor)
		f.expect(t.stored[from+1 : min(n, from+20)])
		f.cancel()
		f.endsBecause("its context is done", Prompt)
	}
}

// endsBecause checks that the Follow yields exactly one error within limit and then returns.
func (f *reading) endsBecause(why string, limit time.Duration) {
	err := f.end("an error because "+why, limit)
	if answers(err) {
		f.t.Fatalf("%s yielded error %v because %s: this error is an answer, which the source did not give",
			f.name, err, why)
	}
	over, stop := within(Prompt)
	defer stop()
	select {
	case <-f.returned:
	case it := <-f.items:
		f.t.Fatalf("%s %s", f.name, it.fault)
	case <-over:
		f.t.Fatalf("%s yielded error %v because %s, but did not return within %v: it must return after an error",
			f.name, err, why, Prompt)
	}
}
