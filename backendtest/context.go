package backendtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/chaingql/chaingql"
)

// A call is a call of a Backend method for data that is already stored, so that a correct
// Backend can return it at once.
type call struct {
	name string
	// make makes the call. fault describes a result that differs from the stored data, or an error that denies that the
	// data exist. It is "" if the result is correct, or if the call failed with another error.
	make func(context.Context) (fault string, err error)
}

// calls returns calls of each Backend method except Follow.
func (t *trial) calls() []call {
	addrs, want := t.manyAccounts()
	ask := func(q chaingql.BlocksQuery) call {
		return call{describe(q), func(ctx context.Context) (string, error) {
			page, err := t.Backend.Blocks(ctx, q)
			return faultOf(err, func() string { return pageFault(t.stored, q, page) })
		}}
	}
	calls := []call{
		ask(chaingql.BlocksQuery{First: 1}),
		ask(chaingql.BlocksQuery{First: chaingql.MaxPage}),
		ask(chaingql.BlocksQuery{Last: chaingql.MaxPage}),
		{"Balance", func(ctx context.Context) (string, error) {
			nano, err := t.Backend.Balance(ctx, addrs[0])
			if want[0] == nil && errors.Is(err, chaingql.ErrNotFound) {
				return "", err
			}
			return faultOf(err, func() string {
				if nano == nil || want[0] == nil || nano.Cmp(want[0]) != 0 {
					return fmt.Sprintf("returned %v, want %v", nano, want[0])
				}
				return ""
			})
		}},
	}
	if b, ok := t.Backend.(chaingql.BalanceBatcher); ok {
		calls = append(calls, call{"Balances", func(ctx context.Context) (string, error) {
			got, err := b.Balances(ctx, addrs)
			return faultOf(err, func() string { return balancesFault(addrs, want, got) })
		}})
	}
	lookups := t.allLookups()
	i := slices.IndexFunc(t.stored, func(b chaingql.Block) bool { return b.Workchain == masterchain })
	if i < 0 { // the lookup by time would find nothing
		lookups, i = t.lookups(), 0
	}
	for _, l := range lookups {
		calls = append(calls, call{l.name, func(ctx context.Context) (string, error) {
			got, err := l.find(ctx, &t.stored[i])
			return faultOf(err, func() string { return l.resultFault(&t.stored[i], got, nil, true) })
		}})
	}
	return calls
}

// faultOf returns the fault of a call for stored data that returned err. If err is nil, that of its result is returned.
func faultOf(err error, ofResult func() string) (string, error) {
	switch {
	case err == nil:
		return ofResult(), nil
	case answers(err):
		return fmt.Sprintf("returned error %v", err), err
	}
	return "", err
}

// attempt makes c like promptly, and checks its result. what describes the call in messages.
func (t *trial) attempt(ctx context.Context, limit time.Duration, what string, c call, want outcome) {
	var fault string
	t.promptly(limit, what, func() (err error) {
		fault, err = c.make(ctx)
		return err
	}, want)
	if fault != "" {
		t.Fatalf("%s %s; it must return an error, or the complete result", what, fault)
	}
}

func doneContextFails(t *trial) {
	t.fill(50, 0)
	ctx, cancel := context.WithCancel(t.ctx)
	cancel()
	for _, c := range t.calls() {
		t.attempt(ctx, Prompt, c.name+" with a done context", c, mustFail)
	}
}

// callReturnsWithItsContext makes calls with contexts that end at various moments during the call. A Backend that
// reads rows and does not check for an error after the last one would return a part of them. Pages are as large as
// possible, so that many of the contexts end between two rows.
func callReturnsWithItsContext(t *trial) {
	t.fill(chaingql.MaxPage, 0)
	for _, c := range t.calls() {
		var fault string
		var failed error
		t.promptly(t.Patience, c.name, func() error {
			fault, failed = c.make(t.ctx)
			return failed
		}, mayDoEither)
		if fault != "" || failed != nil {
			continue // the result is wrong without a deadline too, which other rules report
		}
		usual := t.Patience
		const steps = 30
		for i := range t.rounds(steps, 6) {
			start := time.Now()
			t.attempt(t.ctx, t.Patience, c.name, c, mayDoEither) // also connects again, if the Backend disconnected
			usual = min(usual, time.Since(start))
			t.interrupt(usual*time.Duration(i)/steps, c)
		}
	}
}

// interrupt makes c with a context that ends after delay.
func (t *trial) interrupt(delay time.Duration, c call) {
	ctx, cancel := context.WithCancel(t.ctx)
	ends := punctual{ctx, cancel, time.Now().Add(delay)}
	var ending sync.WaitGroup
	ending.Go(ends.wait)
	defer ending.Wait()
	defer cancel()
	t.attempt(ends, delay+Prompt, c.name+", whose context ended during the call,", c, mayDoEither)
}

// A punctual context ends at a time that may be microseconds away. A timer could be late by a millisecond, or by 10 ms
// if the processors are busy, and calls often take less.
type punctual struct {
	context.Context
	cancel context.CancelFunc
	end    time.Time
}

func (p punctual) Err() error {
	if !time.Now().Before(p.end) {
		p.cancel()
	}
	return p.Context.Err()
}

// wait returns when the context has ended. If a sleep takes only a microsecond, the runtime does not wait in the kernel
// until it ends, so it is not late.
func (p punctual) wait() {
	for p.Err() == nil {
		time.Sleep(max(time.Microsecond, time.Until(p.end)/1000))
	}
}

func stalledCallReturnsWithItsContext(t *trial) {
	t.fill(50, 0)
	f := t.follow(t.stored[len(t.stored)-1].Cursor) // stop checks that it returns although the source is stalled
	f.quiet()
	calls := t.calls() // before the source is stalled, because they set balances
	resume := sync.OnceFunc(t.Stall())
	defer resume()
	if e, ok := t.Backend.(chaingql.Epocher); ok { // Epoch must not wait for the source, and has no context
		t.promptly(Prompt, "Epoch, called while the source was stalled,", func() error {
			e.Epoch()
			return nil
		}, mustSucceed)
	}
	for _, c := range calls {
		ctx, cancel := context.WithTimeout(t.ctx, quietTime)
		what := c.name + ", whose context expired while the source was stalled,"
		t.attempt(ctx, quietTime+Prompt, what, c, mustFail)
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
	t.recovers(calls, "after the source had stalled")
	t.follow(t.stored[0].Cursor).expect(t.stored[1:])
}

// recovers checks that each call succeeds again within t.Patience. A Backend may need some calls to notice that its
// connections are broken. when describes the cause in messages.
func (t *trial) recovers(calls []call, when string) {
	for _, c := range calls {
		repeated := call{make: func(ctx context.Context) (string, error) {
			for {
				fault, err := c.make(ctx)
				switch {
				case !fails(err):
					return fault, nil
				case ctx.Err() != nil:
					return fault, err
				}
				time.Sleep(time.Millisecond)
			}
		}}
		ctx, cancel := context.WithTimeout(t.ctx, t.Patience)
		t.attempt(ctx, t.Patience+Prompt, c.name+", repeated "+when+",", repeated, mustSucceed)
		cancel()
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
	soon, cancel := context.WithTimeout(t.ctx, quietTime)
	t.read(soon, cancel, t.stored[n-1].Cursor).endsBecause("the deadline of its context has passed", quietTime+Prompt)
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
