package blocklog

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chaingql/chaingql/internal/xsync"
)

// groupsPerGoroutine is the minimum number of groups per goroutine. With fewer than twice that number, deliverAll
// starts no goroutine and serves all groups itself.
const groupsPerGoroutine = 64

// deliverAll delivers b, the newest block, to all groups in l.delivering. It uses all processors.
func (l *Log[B]) deliverAll(b B, before position, v *view[B]) {
	workers := min(runtime.GOMAXPROCS(0), len(l.delivering)/groupsPerGoroutine)
	if workers < 2 {
		for _, g := range l.delivering {
			l.wakes = l.deliver(g, b, before, v, l.wakes)
		}
		return
	}
	var next atomic.Int64
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			var wakes []xsync.Waker
			for i := int(next.Add(1)) - 1; i < len(l.delivering); i = int(next.Add(1)) - 1 {
				wakes = l.deliver(l.delivering[i], b, before, v, wakes)
			}
		})
	}
	all.Wait()
}

// deliver evaluates b, the newest block of v, for group g. before is the position before b. If b matches, deliver calls
// the wake functions of the group's readers. It returns wakes as an empty slice for reuse.
//
// If the groups of a client have taken liveTime for b, deliver does not evaluate b for its further groups: their
// readers do, as slow readers do. Otherwise one client with many subscriptions could delay the blocks of all others.
func (l *Log[B]) deliver(g *shareGroup[B], b B, before position, v *view[B], wakes []xsync.Waker) []xsync.Waker {
	use, began := g.liveUse(), xsync.Clock(0)
	if use.isOver(before.next) {
		wakes = g.skip(before, v.newest, wakes)
	} else {
		wakes = l.evaluate(g, b, before, v, wakes)
	}
	l.callAll(wakes)
	use.add(before.next, xsync.Clock(0)-began)
	clear(wakes)
	return wakes[:0]
}

// evaluate evaluates b for group g, and appends the wake functions of the readers that it concerns to wakes.
func (l *Log[B]) evaluate(g *shareGroup[B], b B, before position, v *view[B], wakes []xsync.Waker) []xsync.Waker {
	payload, err := g.evaluate(b)
	switch {
	case err != nil:
		l.logPanic("block evaluation panicked; its subscriptions end", err, v.newest.cursor)
		l.mu.Lock()
		wakes = l.end(g, before, err, wakes)
		l.mu.Unlock()
	case payload != nil:
		wakes = g.put(payload, before, v.newest, v.arrived, wakes)
		l.shrink()
	}
	return wakes
}

// liveTime is the time that the evaluation of one block for the groups of one client may take before its other groups
// are skipped. It is the time of some thousand small subscriptions.
const liveTime = 20 * time.Millisecond

// A LiveUse counts the time that the groups of one client have taken for the newest block. The zero LiveUse is ready to
// use.
type LiveUse struct{ block, nanoseconds atomic.Int64 }

// isOver reports whether u has exceeded liveTime for a block. u may be nil.
func (u *LiveUse) isOver(block uint64) bool {
	return u != nil && u.block.Load() == int64(block) && u.nanoseconds.Load() > int64(liveTime)
}

// add counts time for a block. Goroutines that add time for the same new block at once may lose some of it.
func (u *LiveUse) add(block uint64, d time.Duration) {
	if u == nil {
		return
	}
	if u.block.Swap(int64(block)) != int64(block) {
		u.nanoseconds.Store(0)
	}
	u.nanoseconds.Add(int64(d))
}

// liveUse returns the LiveUse of the client of the first reader, or nil.
func (g *shareGroup[B]) liveUse() *LiveUse {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.members) == 0 || g.members[0].client == nil {
		return nil
	}
	return g.members[0].client.Live
}

// skip lets the live readers evaluate the block between two positions in the window, like blocks whose payloads were
// discarded, and appends to wakes the wake functions of those that have read every match before: the others were woken
// for these matches, and have not read them to the end.
func (g *shareGroup[B]) skip(before, after position, wakes []xsync.Waker) []xsync.Waker {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		return wakes
	}
	g.discard(len(g.items))
	for _, r := range g.members {
		if r.at.next > before.next {
			continue
		}
		if r.at.next >= g.matched {
			wakes = r.appendWake(wakes)
		}
		g.skipUnmatched(r, before)
	}
	g.matched, g.since = after.next, after.next
	return wakes
}
