package backendtest

import (
	"context"
	"fmt"
	"math/big"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/chaingql/chaingql"
)

// A reporter has the methods of testing.T that the rules use. The tests of this package
// replace it with one that records messages.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any) // only on the rule's own goroutine
}

// A trial runs one rule on one source.
type trial struct {
	reporter
	Harness
	ctx      context.Context
	stored   []chaingql.Block // what the source holds
	coming   []chaingql.Block // what can be appended to it
	readings []*reading
}

func (ru rule) try(r reporter, h Harness) {
	if h.Patience <= 0 {
		h.Patience = defaultPatience
	}
	if h.Foreign == "" {
		h.Foreign = defaultForeign
	}
	ctx, cancel := context.WithCancel(context.Background())
	t := &trial{reporter: r, Harness: h, ctx: ctx}
	defer func() {
		cancel()
		for _, f := range t.readings {
			f.stop()
		}
	}()
	ru.check(t)
}

// fill appends n blocks and prepares more for grow. If the source has no Append, its
// own blocks are used.
func (t *trial) fill(n, more int) {
	t.Helper()
	if t.Append == nil {
		t.stored = t.Blocks
		return
	}
	t.coming = Chain(n+more, 1)
	if t.Cursor != nil {
		for i := range t.coming {
			t.coming[i].Cursor = t.Cursor(2 * uint64(i+1))
		}
	}
	t.grow(n)
}

// grow appends the next n blocks.
func (t *trial) grow(n int) {
	t.Helper()
	for n > 0 {
		batch := min(n, 100)
		if err := t.Append(t.coming[:batch:batch]); err != nil {
			t.Fatalf("Harness.Append of %d blocks, the first at %q: %v", batch, t.coming[0].Cursor, err)
		}
		t.stored = append(t.stored[:len(t.stored):len(t.stored)], t.coming[:batch]...)
		t.coming = t.coming[batch:]
		n -= batch
	}
}

func (t *trial) reopen() {
	t.Helper()
	var err error
	if t.Backend, err = t.Reopen(); err != nil {
		t.Fatalf("Harness.Reopen: %v", err)
	}
}

// strangers returns well-formed cursors without a block, between and past the stored
// ones. If the source has no Append, none are known.
func (t *trial) strangers() []chaingql.Cursor {
	if t.Append == nil {
		return nil
	}
	taken := make(map[chaingql.Cursor]bool)
	for _, b := range t.stored {
		taken[b.Cursor] = true
	}
	var cursors []chaingql.Cursor
	for i, b := range Chain(len(t.stored)+len(t.coming), 2) {
		c := b.Cursor
		if t.Cursor != nil {
			c = t.Cursor(2*uint64(i) + 1)
		}
		if !taken[c] {
			cursors = append(cursors, c)
		}
	}
	return cursors
}

// balance reads a balance that must exist.
func (t *trial) balance(addr chaingql.Address) *big.Int {
	t.Helper()
	var got *big.Int
	t.promptly(t.Patience, fmt.Sprintf("Balance(%v)", addr), func() (err error) {
		got, err = t.Backend.Balance(t.ctx, addr)
		if err == nil && got == nil {
			err = fmt.Errorf("a nil balance and no error")
		}
		return err
	}, mustSucceed)
	return got
}

// page reads a page, which must not fail.
func (t *trial) page(q chaingql.BlocksQuery) []chaingql.Block {
	t.Helper()
	var got []chaingql.Block
	t.promptly(t.Patience, describe(q), func() (err error) {
		got, err = t.Backend.Blocks(t.ctx, q)
		return err
	}, mustSucceed)
	return got
}

// expectPage reads a page and compares it with the stored blocks.
func (t *trial) expectPage(q chaingql.BlocksQuery) {
	t.Helper()
	if fault := pageFault(t.stored, q, t.page(q)); fault != "" {
		t.Fatalf("%s %s", describe(q), fault)
	}
}

type outcome string

const (
	mustSucceed outcome = "succeed"
	mustFail    outcome = "fail"
	mayDoEither outcome = ""
)

// promptly makes a call that must return in time, with or without an error.
func (t *trial) promptly(limit time.Duration, what string, call func() error, want outcome) error {
	t.Helper()
	type answer struct {
		err   error
		panic string
	}
	back := make(chan answer, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				back <- answer{panic: fmt.Sprintf("%v\n%s", p, debug.Stack())}
			}
		}()
		back <- answer{err: call()}
	}()
	w := within(limit)
	defer w.Stop()
	for {
		select {
		case a := <-back:
			switch {
			case a.panic != "":
				t.Fatalf("%s panicked: %s", what, a.panic)
			case a.err != nil && want == mustSucceed:
				t.Fatalf("%s returned %v", what, a.err)
			case a.err == nil && want == mustFail:
				t.Fatalf("%s returned no error: a call whose context is done must fail", what)
			}
			return a.err
		case <-w.C:
			if w.over() {
				t.Fatalf("%s did not return within %v", what, limit)
				return nil
			}
		}
	}
}

// A wait limits the time for a result, counted in ticks: if the whole process pauses,
// only one or two ticks are lost, and the result can still arrive in the others.
type wait struct {
	*time.Ticker
	left int
}

func within(limit time.Duration) *wait {
	const steps = 10
	return &wait{time.NewTicker(max(1, limit/steps)), steps}
}

// over counts a tick and reports whether it was the last.
func (w *wait) over() bool {
	w.left--
	return w.left == 0
}

func pick[T any](rng *rand.Rand, from []T) T { return from[rng.IntN(len(from))] }
