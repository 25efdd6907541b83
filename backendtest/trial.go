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

// A reporter is what the rules use of a testing.T. The kit's own tests put one
// in its place that takes down what is said.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any) // only on the rule's own goroutine
}

// A trial is one rule tried on one source.
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

// fill gives the source n blocks, with more to come, where it can be given any.
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

// strangers returns well-formed cursors that are no block's: between the
// stored ones and past them. Of a source that cannot append none are known.
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

// balance reads a balance that must be there.
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

// page reads a page that must be there.
func (t *trial) page(q chaingql.BlocksQuery) []chaingql.Block {
	t.Helper()
	var got []chaingql.Block
	t.promptly(t.Patience, describe(q), func() (err error) {
		got, err = t.Backend.Blocks(t.ctx, q)
		return err
	}, mustSucceed)
	return got
}

// expectPage reads a page and compares it with what is stored.
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

// promptly makes a call that must be back in time, with or without an error.
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

// A wait is for what must come in time, in steps: where the whole process is
// held up, a step or two are lost, and what it waits for has the others.
type wait struct {
	*time.Ticker
	left int
}

func within(limit time.Duration) *wait {
	const steps = 10
	return &wait{time.NewTicker(max(1, limit/steps)), steps}
}

// over is asked at each tick.
func (w *wait) over() bool {
	w.left--
	return w.left == 0
}

func pick[T any](rng *rand.Rand, from []T) T { return from[rng.IntN(len(from))] }
