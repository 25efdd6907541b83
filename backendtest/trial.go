package backendtest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/big"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chaingql/chaingql"
)

// A report collects the first failures of a rule. Its method may be called concurrently.
type report struct {
	mu       sync.Mutex
	failures []string
}

// maxFailures is the maximum number of failures of a rule. A rule that makes many calls could have thousands.
const maxFailures = 16

// addf adds a failure.
func (r *report) addf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.failures) < maxFailures {
		r.failures = append(r.failures, fmt.Sprintf(format, args...))
	}
}

// A trial is one run of a rule, with its own source.
type trial struct {
	report
	Harness
	ctx      context.Context
	cancel   context.CancelFunc // also ends the goroutines of the rule that change the source
	stored   []chaingql.Block   // the blocks in the source
	coming   []chaingql.Block   // the blocks that grow will append
	readings []*reading         // all Follow calls of the rule
	slow     atomic.Bool        // see rounds
}

// Errorf adds a failure, unless the rule's context is done. The rule has given up then, for example because a call did
// not return, and other calls fail only because of that.
func (t *trial) Errorf(format string, args ...any) {
	if t.ctx.Err() == nil {
		t.addf(format, args...)
	}
}

// Fatalf is like Errorf, and ends the goroutine. If that is not the one that runs the rule, the caller must also cancel
// the rule's context.
func (t *trial) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	runtime.Goexit()
}

// try checks ru with h and returns the failures.
func (ru rule) try(h Harness) []string {
	if h.Patience <= 0 {
		h.Patience = defaultPatience
	}
	if h.Foreign == "" {
		h.Foreign = defaultForeign
	}
	ctx, cancel := context.WithCancel(context.Background())
	t := &trial{Harness: h, ctx: ctx, cancel: cancel}
	done := make(chan struct{})
	go func() { // because Fatalf ends the goroutine
		defer close(done)
		defer func() {
			cancel()
			for _, f := range t.readings {
				f.stop()
			}
		}()
		ru.check(t)
	}()
	<-done
	t.mu.Lock() // a call that did not return in time may still try to add a failure
	defer t.mu.Unlock()
	return t.failures
}

// rounds yields the numbers from 0 to n-1. If one of the rule's loops over rounds takes longer than t.Patience, the
// Backend is slow: rounds then yields only about few of the other numbers, always including the last one.
func (t *trial) rounds(n, few int) iter.Seq[int] {
	return func(yield func(int) bool) {
		began, step := time.Now(), 1
		for i := 0; i < n && yield(i); i += max(1, min(step, n-1-i)) {
			if time.Since(began) > t.Patience {
				t.slow.Store(true)
			}
			if step == 1 && t.slow.Load() {
				step = max(1, (n-i)/few)
			}
		}
	}
}

// fill generates n+more blocks and appends the first n of them; grow appends the others
// later. If Append is nil, fill uses the blocks in Harness.Blocks instead.
func (t *trial) fill(n, more int) {
	if t.Append == nil {
		t.stored = t.Blocks
		return
	}
	t.coming = t.generate(n + more)
	t.grow(n)
}

// generate returns n blocks with cursors that the source accepts.
func (t *trial) generate(n int) []chaingql.Block {
	blocks := Chain(n, 1)
	if t.Cursor != nil {
		for i := range blocks {
			blocks[i].Cursor = t.Cursor(2 * uint64(i+1))
		}
	}
	return blocks
}

// grow appends the next n blocks.
func (t *trial) grow(n int) {
	for n > 0 {
		batch := min(n, 100)
		if err := t.Append(t.coming[:batch:batch]); err != nil {
			t.Fatalf("Harness.Append failed for %d blocks from cursor %q: %v", batch, t.coming[0].Cursor, err)
		}
		t.stored = append(t.stored[:len(t.stored):len(t.stored)], t.coming[:batch]...)
		t.coming = t.coming[batch:]
		n -= batch
	}
}

// reopen replaces the Backend with the one that Harness.Reopen returns, and checks that both have the same epoch.
func (t *trial) reopen() {
	var err error
	epoch := t.epoch()
	if t.Backend, err = t.Reopen(); err != nil {
		t.Fatalf("Harness.Reopen failed: %v", err)
	}
	if now := t.epoch(); now != epoch {
		t.Fatalf("Epoch returned %q and, after a restart, %q: it must change only if the chain is replaced", epoch, now)
	}
}

// unusedCursors returns valid cursors that no stored block has. Some of them are between
// stored blocks, some after the newest. If Append is nil, it returns nil because the
// format of the cursors is unknown.
func (t *trial) unusedCursors() []chaingql.Cursor {
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

// balance reads a balance. The rule fails if Balance returns an error.
func (t *trial) balance(addr chaingql.Address) *big.Int {
	got, _ := result(t, fmt.Sprintf("Balance(%v)", addr), mustSucceed, func() (*big.Int, error) {
		nano, err := t.Backend.Balance(t.ctx, addr)
		if err == nil && nano == nil {
			err = errors.New("neither a balance nor an error")
		}
		return nano, err
	})
	return got
}

// page reads a page. The rule fails if Blocks returns an error.
func (t *trial) page(q chaingql.BlocksQuery) []chaingql.Block {
	got, _ := t.readPage(q, mustSucceed)
	return got
}

func (t *trial) readPage(q chaingql.BlocksQuery, want outcome) ([]chaingql.Block, error) {
	return result(t, describe(q), want, func() ([]chaingql.Block, error) { return t.Backend.Blocks(t.ctx, q) })
}

// expectPages checks that Blocks returns the pages that the queries select from the stored blocks.
func (t *trial) expectPages(queries ...chaingql.BlocksQuery) {
	for _, q := range queries {
		if fault := pageFault(t.stored, q, t.page(q)); fault != "" {
			t.Fatalf("%s %s", describe(q), fault)
		}
	}
}

// An outcome says whether a call must return an error.
type outcome string

const (
	mustSucceed outcome = "succeed"
	mustFail    outcome = "fail"
	mayDoEither outcome = ""
)

// A panicError is the value and the stack of a panic.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("%v\n%s", e.value, e.stack) }

// promptly makes a call that must return within limit and with the wanted outcome, and
// returns its error. what describes the call in messages. If the call does not return or
// panics, promptly cancels t.ctx and ends the goroutine.
func (t *trial) promptly(limit time.Duration, what string, call func() error, want outcome) error {
	back := make(chan error, 1)
	go func() {
		defer func() {
			if p := recover(); p != nil {
				back <- &panicError{p, debug.Stack()}
			}
		}()
		back <- call()
	}()
	over, stop := within(limit)
	defer stop()
	select {
	case err := <-back:
		var p *panicError
		switch {
		case errors.As(err, &p):
			defer t.cancel()
			t.Fatalf("%s panicked: %v", what, p)
		case err != nil && want == mustSucceed:
			t.Fatalf("%s failed: %v", what, err)
		case want == mustFail && answers(err):
			t.Fatalf("%s returned error %v: this error is an answer, which the source did not give", what, err)
		case err == nil && want == mustFail:
			t.Fatalf("%s returned no error: a call whose context is done must fail", what)
		}
		return err
	case <-over:
		defer t.cancel()
		t.Fatalf("%s did not return within %v", what, limit)
		return nil
	}
}

// answers reports whether err is an answer of the source, in contrast to a failed call.
func answers(err error) bool {
	for _, answer := range []error{
		chaingql.ErrNotFound, chaingql.ErrBlockNotFound, chaingql.ErrBadCursor, chaingql.ErrCursorTooOld,
		chaingql.ErrChainReplaced,
	} {
		if errors.Is(err, answer) {
			return true
		}
	}
	return false
}

// result is like promptly for a call with a result, within t.Patience.
func result[T any](t *trial, what string, want outcome, call func() (T, error)) (got T, err error) {
	err = t.promptly(t.Patience, what, func() (err error) {
		got, err = call()
		return err
	}, want)
	return got, err
}

// within returns a channel that is closed after limit, unless stop is called first. It counts
// ticks instead of comparing times: a pause of the whole process then costs only one or two
// ticks, and the expected result can still arrive during the remaining ticks.
func within(limit time.Duration) (over <-chan struct{}, stop func()) {
	const steps = 10
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		defer stop()
		ticker := time.NewTicker(max(1, limit/steps))
		defer ticker.Stop()
		for range steps {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx.Done(), stop
}

// pick returns a random element.
func pick[T any](rng *rand.Rand, from []T) T { return from[rng.IntN(len(from))] }
