package backendtest

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"time"

	"github.com/chaingql/chaingql"
)

// A reading is one call of Follow on its own goroutine. The rule reads the results at its
// own pace.
type reading struct {
	t        *trial
	name     string          // describes the call in messages
	last     chaingql.Cursor // cursor of the last block that the rule read, or the start cursor
	again    chaingql.Block  // the block that may be yielded once more; zero if there is none
	items    chan item
	cancel   context.CancelFunc
	left     chan struct{} // closed when the rule stops reading
	returned chan struct{} // closed when Follow has returned
	stopped  bool
	late     string // violation after the rule stopped reading; may be read after returned is closed
}

// An item is one result of a Follow: a block, an error, or a violation of the contract.
type item struct {
	block chaingql.Block
	err   error
	fault string // describes the violation
}

// follow calls Follow and returns the running call.
func (t *trial) follow(after chaingql.Cursor) *reading {
	ctx, cancel := context.WithCancel(t.ctx)
	return t.read(ctx, cancel, after)
}

// read is like follow with the given context. cancel must cancel ctx.
func (t *trial) read(ctx context.Context, cancel context.CancelFunc, after chaingql.Cursor) *reading {
	f := &reading{
		t: t, name: fmt.Sprintf("Follow(after %q)", after), last: after,
		items: make(chan item), cancel: cancel,
		left: make(chan struct{}), returned: make(chan struct{}),
	}
	t.readings = append(t.readings, f)
	backend := t.Backend // the rule may replace it
	go f.run(func() iter.Seq2[chaingql.Block, error] { return backend.Follow(ctx, after) })
	return f
}

// run calls follow and passes its results to the rule.
func (f *reading) run(follow func() iter.Seq2[chaingql.Block, error]) {
	defer close(f.returned)
	defer func() {
		if p := recover(); p != nil {
			f.say(item{fault: fmt.Sprintf("panicked: %v", p)})
		}
	}()
	var failed, left bool
	follow()(func(b chaingql.Block, err error) bool {
		switch {
		case left:
			f.late = "called yield again after yield had returned false: it must return"
			runtime.Goexit() // otherwise Follow might continue forever
		case failed:
			left = true
			f.say(item{fault: "called yield again after an error: it must yield only one error and then return"})
		case err != nil:
			failed = true // yield returns true, to check that Follow returns without another call of yield
			f.say(item{err: err})
		default:
			left = !f.say(item{block: b})
		}
		return !left
	})
	if !failed && !left {
		f.say(item{fault: "yielded no error before it returned: " +
			"it must yield one error when its context is done or its source fails"})
	}
}

// say passes an item to the rule. It returns false if the rule has stopped reading.
func (f *reading) say(it item) bool {
	select {
	case <-f.left:
		return false
	default:
	}
	select {
	case f.items <- it:
		return true
	case <-f.left:
		return false
	}
}

// next waits for the next item. due describes the expected item in messages.
func (f *reading) next(due string) item {
	return f.nextWithin(due, f.t.Patience)
}

// nextWithin is like next with the given time limit.
func (f *reading) nextWithin(due string, limit time.Duration) item {
	over, stop := within(limit)
	defer stop()
	for {
		select {
		case it := <-f.items:
			if it.fault != "" {
				f.t.Fatalf("%s %s", f.name, it.fault)
			}
			if f.repeats(it) {
				continue
			}
			return it
		case <-over:
			f.t.Fatalf("%s yielded nothing for %v after cursor %q; want %s", f.name, limit, f.last, due)
		}
	}
}

// repeats reports whether the item repeats the previous block. The contract allows this
// once, between the stored and the new blocks. The rule fails if the two copies differ.
func (f *reading) repeats(it item) bool {
	if it.err != nil || it.fault != "" || it.block.Cursor == "" || it.block.Cursor != f.again.Cursor {
		return false
	}
	if differs := blockFault(it.block, f.again); differs != "" {
		f.t.Fatalf("%s yielded cursor %q again %s", f.name, f.last, differs)
	}
	f.again = chaingql.Block{}
	return true
}

// expect checks that the next items are the blocks in want.
func (f *reading) expect(want []chaingql.Block) {
	for _, b := range want {
		it := f.next(fmt.Sprintf("cursor %q, which is stored", b.Cursor))
		if it.err != nil {
			f.t.Fatalf("%s ended after cursor %q with error %v; want cursor %q, which is stored",
				f.name, f.last, it.err, b.Cursor)
		}
		f.take(it.block, b)
	}
}

// take checks that Follow yielded the expected block, and records it as the last one.
func (f *reading) take(got, want chaingql.Block) {
	switch {
	case cursorFault(got.Cursor) != "":
		f.t.Fatalf("%s yielded cursor %q%s", f.name, got.Cursor, cursorFault(got.Cursor))
	case got.Cursor == f.last:
		f.t.Fatalf("%s yielded cursor %q again: blocks must ascend; only the newest stored block may be yielded twice",
			f.name, got.Cursor)
	case got.Cursor < f.last:
		f.t.Fatalf("%s yielded cursor %q after %q: blocks must ascend", f.name, got.Cursor, f.last)
	case got.Cursor > want.Cursor:
		f.t.Fatalf("%s skipped cursor %q: it yielded %q after %q", f.name, want.Cursor, got.Cursor, f.last)
	case got.Cursor < want.Cursor:
		f.t.Fatalf("%s yielded cursor %q, which no stored block has", f.name, got.Cursor)
	}
	if differs := blockFault(got, want); differs != "" {
		f.t.Fatalf("%s yielded cursor %q %s", f.name, got.Cursor, differs)
	}
	f.last, f.again = got.Cursor, got
}

// end reads until Follow yields an error, and returns that error. It checks that the blocks
// before the error are the next stored blocks, without a gap.
func (f *reading) end(due string, limit time.Duration) error {
	for {
		it := f.nextWithin(due, limit)
		if it.err != nil {
			return it.err
		}
		next := chaingql.PageOf(f.t.stored, chaingql.BlocksQuery{After: f.last, First: 1})
		if len(next) == 0 {
			f.t.Fatalf("%s yielded cursor %q, but no block after cursor %q is stored", f.name, it.block.Cursor, f.last)
		}
		f.take(it.block, next[0])
	}
}

// quietTime is the time for which a rule waits to see that Follow yields nothing.
const quietTime = 50 * time.Millisecond

// quiet checks that Follow yields nothing for quietTime.
func (f *reading) quiet() {
	timer := time.NewTimer(quietTime)
	defer timer.Stop()
	select {
	case <-timer.C:
	case it := <-f.items:
		switch {
		case f.repeats(it):
			f.quiet()
		case it.fault != "":
			f.t.Fatalf("%s %s", f.name, it.fault)
		case it.err != nil:
			f.t.Fatalf("%s ended after cursor %q with error %v: it must wait for new blocks", f.name, f.last, it.err)
		case it.block.Cursor <= f.last:
			f.t.Fatalf("%s yielded cursor %q after %q: blocks must ascend, and no block was expected",
				f.name, it.block.Cursor, f.last)
		default:
			f.t.Fatalf("%s yielded cursor %q after %q, but no block was expected", f.name, it.block.Cursor, f.last)
		}
	}
}

// stop cancels the context of the Follow and checks that the Follow returns. It also reports failures after the rule's
// context is done.
func (f *reading) stop() {
	if f.stopped {
		return
	}
	f.stopped = true
	f.cancel()
	select {
	case <-f.left:
	default:
		defer close(f.left)
	}
	over, stop := within(Prompt)
	defer stop()
	for {
		select {
		case it := <-f.items:
			if it.fault != "" {
				f.t.addf("%s %s", f.name, it.fault)
			}
		case <-f.returned:
			if f.late != "" {
				f.t.addf("%s %s", f.name, f.late)
			}
			return
		case <-over:
			f.t.addf("%s did not return within %v after its context was canceled", f.name, Prompt)
			return
		}
	}
}

// leave stops reading, like a break in a range loop, and checks that the Follow returns
// when it yields its next block.
func (f *reading) leave() {
	close(f.left)
	over, stop := within(Prompt)
	defer stop()
	select {
	case <-f.returned: // stop reports f.late
	case <-over:
		f.t.Fatalf("%s did not return within %v after its caller broke out of the loop", f.name, Prompt)
	}
}
