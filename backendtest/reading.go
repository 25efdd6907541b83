package backendtest

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/chaingql/chaingql"
)

// A reading runs one Follow, whose results a rule reads at its own pace.
type reading struct {
	t        *trial
	name     string
	last     chaingql.Cursor // the newest that was read
	again    chaingql.Block  // the newest that was read; without a cursor before the first, and once it has come twice
	items    chan item
	cancel   context.CancelFunc
	left     chan struct{} // closed when nothing will be read any more
	returned chan struct{} // closed when the Follow has returned
	stopped  bool
	late     string // how it misbehaved when nothing was read any more; read after returned
}

// An item is one result of a Follow: a block, an error, or a violation of the protocol.
type item struct {
	block chaingql.Block
	err   error
	fault string
}

func (t *trial) follow(after chaingql.Cursor) *reading {
	ctx, cancel := context.WithCancel(t.ctx)
	return t.read(ctx, cancel, after)
}

func (t *trial) read(ctx context.Context, cancel context.CancelFunc, after chaingql.Cursor) *reading {
	f := &reading{
		t: t, name: fmt.Sprintf("Follow(after %q)", after), last: after,
		items: make(chan item), cancel: cancel,
		left: make(chan struct{}), returned: make(chan struct{}),
	}
	t.readings = append(t.readings, f)
	go f.run(func() iter.Seq2[chaingql.Block, error] { return t.Backend.Follow(ctx, after) })
	return f
}

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
			f.late = "went on after its loop was left: it must return once yield returned false"
			runtime.Goexit() // else it might go on for ever
		case failed:
			left = true
			f.say(item{fault: "yielded again after its error: it must yield one error and end"})
		case err != nil:
			failed = true // and let it go on, to see that it does not
			f.say(item{err: err})
		default:
			left = !f.say(item{block: b})
		}
		return !left
	})
	if !failed && !left {
		f.say(item{fault: "ended without an error: it must yield one when its context is done or its source fails"})
	}
}

// say passes an item to the rule, unless the rule has stopped reading.
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

// next waits for the next item.
func (f *reading) next(due string) item {
	f.t.Helper()
	return f.nextWithin(due, f.t.Patience)
}

func (f *reading) nextWithin(due string, limit time.Duration) item {
	f.t.Helper()
	w := within(limit)
	defer w.Stop()
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
		case <-w.C:
			if w.over() {
				f.t.Fatalf("%s yielded nothing for %v after cursor %q, want %s", f.name, limit, f.last, due)
				return item{}
			}
		}
	}
}

// repeats reports whether the newest block was yielded a second time, which is allowed
// between the stored blocks and the new ones.
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

// expect reads the next items, which must be these blocks.
func (f *reading) expect(want []chaingql.Block) {
	f.t.Helper()
	for _, b := range want {
		it := f.next(fmt.Sprintf("cursor %q, which is stored", b.Cursor))
		if it.err != nil {
			f.t.Fatalf("%s ended after cursor %q before cursor %q: %v", f.name, f.last, b.Cursor, it.err)
		}
		f.take(it.block, b)
	}
}

// take compares a block with the expected one.
func (f *reading) take(got, want chaingql.Block) {
	f.t.Helper()
	switch {
	case !printable(got.Cursor):
		f.t.Fatalf("%s yielded cursor %q%s", f.name, got.Cursor, notPrintable)
	case got.Cursor == f.last:
		f.t.Fatalf("%s yielded cursor %q again: blocks must ascend, and only the newest may come twice", f.name, got.Cursor)
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

// end reads up to the expected error. The blocks before it must be the stored ones
// without a gap.
func (f *reading) end(due string, limit time.Duration) error {
	f.t.Helper()
	for {
		it := f.nextWithin(due, limit)
		if it.err != nil {
			return it.err
		}
		i, found := slices.BinarySearchFunc(f.t.stored, f.last, func(b chaingql.Block, c chaingql.Cursor) int {
			return strings.Compare(string(b.Cursor), string(c))
		})
		if found {
			i++
		}
		if i == len(f.t.stored) {
			f.t.Fatalf("%s yielded cursor %q after %q, which was the newest", f.name, it.block.Cursor, f.last)
		}
		f.take(it.block, f.t.stored[i])
	}
}

// calm is the time for which a Follow must stay quiet if no block is expected.
const calm = 50 * time.Millisecond

// quiet checks that the Follow yields nothing.
func (f *reading) quiet() {
	f.t.Helper()
	timer := time.NewTimer(calm)
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
			f.t.Fatalf("%s ended after cursor %q: it must wait for new blocks: %v", f.name, f.last, it.err)
		case it.block.Cursor <= f.last:
			f.t.Fatalf("%s yielded cursor %q after %q: blocks must ascend, and no block was expected", f.name, it.block.Cursor, f.last)
		default:
			f.t.Fatalf("%s yielded cursor %q after %q, but no block was expected", f.name, it.block.Cursor, f.last)
		}
	}
}

// stop cancels the Follow's context and checks that it returns.
func (f *reading) stop() {
	f.t.Helper()
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
	w := within(Prompt)
	defer w.Stop()
	for {
		select {
		case it := <-f.items:
			if it.fault != "" {
				f.t.Errorf("%s %s", f.name, it.fault)
			}
		case <-f.returned:
			if f.late != "" {
				f.t.Errorf("%s %s", f.name, f.late)
			}
			return
		case <-w.C:
			if w.over() {
				f.t.Errorf("%s did not return within %v after its context ended", f.name, Prompt)
				return
			}
		}
	}
}

// leave stops reading, like a break in a range loop, and checks that the Follow returns
// at its next block.
func (f *reading) leave() {
	f.t.Helper()
	close(f.left)
	w := within(Prompt)
	defer w.Stop()
	for {
		select {
		case <-f.returned: // stop will see how
			return
		case <-w.C:
			if w.over() {
				f.t.Fatalf("%s did not return within %v after its caller left the loop", f.name, Prompt)
			}
		}
	}
}
