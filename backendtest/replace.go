package backendtest

import (
	"errors"
	"time"

	"github.com/chaingql/chaingql"
)

// generation returns n blocks of the chain that the source has after number calls of Replace. All generations have the
// same cursors, so that a cursor belongs to a different block of each. The hashes of the blocks begin with number.
func (t *trial) generation(number, n int) []chaingql.Block {
	blocks := t.generate(n)
	for i := range blocks {
		blocks[i].Hash[0] = byte(number)
	}
	return blocks
}

// replace starts a new chain. grow then appends the blocks of the generation number.
func (t *trial) replace(number, n int) {
	if err := t.Replace(); err != nil {
		t.Fatalf("Harness.Replace failed: %v", err)
	}
	t.stored, t.coming = nil, t.generation(number, n)
}

// existingEpoch returns the epoch. The rule fails if there is none.
func (t *trial) existingEpoch() string {
	epoch := t.epoch()
	if epoch == "" {
		t.Fatalf("Harness.Replace is set, but the Backend has no epoch, so clients cannot recognize a new chain")
	}
	return epoch
}

// followEndsWithItsChain replaces the chain under a Follow that waits and one with a slow caller.
func followEndsWithItsChain(t *trial) {
	t.coming = t.generation(0, 60)
	t.grow(60)
	epoch, old := t.existingEpoch(), t.stored
	waits, slow := t.follow(old[20].Cursor), t.follow(old[4].Cursor)
	waits.expect(old[21:])
	waits.quiet()
	slow.expect(old[5:8])
	t.replace(1, 90)
	t.grow(90)
	waits.endsWithChain(old, epoch)
	slow.endsWithChain(old, epoch)
	t.expectNewChain(old, epoch)
}

// firstCallNoticesNewChain replaces the chain while no call runs. The cursor of the next call is too old in the new
// chain.
func firstCallNoticesNewChain(t *trial) {
	t.coming = t.generation(0, 60)
	t.grow(60)
	for number, call := range []func(after chaingql.Cursor, epoch string){
		t.expectReplacedPage,
		func(after chaingql.Cursor, epoch string) {
			if t.epoch() == epoch {
				t.follow(after).endsWithChain(nil, epoch)
			}
		},
	} {
		epoch, old := t.existingEpoch(), t.stored
		t.replace(number+1, 40)
		t.grow(40)
		if t.Prune != nil {
			t.pruneBelow(10)
		}
		call(old[0].Cursor, epoch)
		t.expectNewChain(old, epoch)
	}
	epoch, old := t.existingEpoch(), t.stored
	t.replace(3, 40) // a Backend must not remember which blocks of the old chain were pruned
	t.grow(40)
	t.expectReplacedPage(old[0].Cursor, epoch)
	t.expectNewChain(old, epoch)
	for i, l := range t.allLookups() {
		epoch, old := t.existingEpoch(), &t.stored[20]
		t.replace(4+i, 40)
		t.grow(40)
		t.expectReplaced(l.call(old), epoch, func() error {
			_, err := l.find(t.ctx, old)
			return err
		})
	}
}

// expectNewChain checks that the Backend serves the chain that replaced the old one.
func (t *trial) expectNewChain(old []chaingql.Block, epoch string) {
	if now := t.existingEpoch(); now == epoch {
		t.Fatalf("Epoch returned %q before and after the chain was replaced: it must return a new epoch", now)
	}
	t.expectPages(chaingql.BlocksQuery{First: 100}, chaingql.BlocksQuery{Last: 5})
	t.follow(t.stored[0].Cursor).expect(t.stored[1:])
	t.expectLookups(t.stored, true)
	t.expectTimes()
	for _, l := range t.lookups() {
		if gone := &old[len(old)-1]; l.name == "BlockByHash" {
			if fault := l.fault(t.ctx, gone, false); fault != "" {
				t.Fatalf("%s, of a block of the old chain, %s", l.call(gone), fault)
			}
		}
	}
}

// retries is the maximum number of times that a rule repeats a call that fails because the source is being replaced.
const retries = 100

// expectReplacedPage reads a page of a chain that was replaced, and checks that Blocks returns ErrChainReplaced.
func (t *trial) expectReplacedPage(after chaingql.Cursor, epoch string) {
	q := chaingql.BlocksQuery{First: 5, After: after}
	t.expectReplaced(describe(q), epoch, func() error {
		_, err := t.Backend.Blocks(t.ctx, q)
		return err
	})
}

// expectReplaced makes a call for a chain that was replaced, and checks that it returns ErrChainReplaced. It makes no
// call if the Backend's Epoch shows already that the chain was replaced.
func (t *trial) expectReplaced(what, epoch string, call func() error) {
	for range retries {
		if t.epoch() != epoch {
			return
		}
		err := t.promptly(t.Patience, what, call, mayDoEither)
		if t.replacedError(what, err, epoch) {
			return
		}
		if err == nil {
			t.Fatalf("%s succeeded after the chain was replaced, but Epoch has not changed: it must return "+
				"ErrChainReplaced", what)
		}
		time.Sleep(t.Patience / retries)
	}
	t.Fatalf("%s failed for %v after the chain was replaced, but never with ErrChainReplaced", what, t.Patience)
}

// replacedError reports whether err ends a call that began before the chain with this epoch was replaced. If it does
// not, the call must be repeated, because the source may be absent for a moment.
func (t *trial) replacedError(what string, err error, epoch string) bool {
	now := t.epoch()
	switch {
	case errors.Is(err, chaingql.ErrCursorTooOld), errors.Is(err, chaingql.ErrBadCursor),
		errors.Is(err, chaingql.ErrBlockNotFound):
		if now != epoch {
			return true
		}
		t.Fatalf("%s ended with error %v after the chain was replaced: it must return ErrChainReplaced", what, err)
	case errors.Is(err, chaingql.ErrChainReplaced) && now == epoch:
		t.Fatalf("%s returned ErrChainReplaced, but Epoch still returned %q: it must return the new epoch first",
			what, now)
	}
	return errors.Is(err, chaingql.ErrChainReplaced) || now != epoch
}

// endsWithChain checks that the Follow yields only blocks of the old chain, whose epoch is given, and then ends.
func (f *reading) endsWithChain(old []chaingql.Block, epoch string) {
	next := 0
	for next < len(old) && old[next].Cursor <= f.last {
		next++
	}
	for range retries {
		it := f.next("ErrChainReplaced, because the chain was replaced")
		for ; it.err == nil; next++ {
			if next == len(old) || it.block != old[next] {
				f.t.Fatalf("%s yielded cursor %q with hash %v, a block of the old chain: it must yield "+
					"ErrChainReplaced", f.name, it.block.Cursor, it.block.Hash)
			}
			f.take(it.block, old[next])
			it = f.next("ErrChainReplaced, because the chain was replaced")
		}
		if f.t.replacedError(f.name, it.err, epoch) {
			return
		}
		time.Sleep(f.t.Patience / retries)
		f = f.t.follow(f.last)
	}
	f.t.Fatalf("%s failed for %v after the chain was replaced, but never with ErrChainReplaced", f.name, f.t.Patience)
}
