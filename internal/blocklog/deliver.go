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

// deliverAll delivers b, the newest block, to all groups in l.delivering. It uses all processors. Afterwards it lets
// the readers of postponed groups be woken.
func (l *Log[B]) deliverAll(b B, before position, v *view[B]) {
	defer l.wakePostponed()
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
// If the groups of a client have used up their time, deliver postpones its further groups instead. Otherwise one client
// with many subscriptions could delay the blocks of all others.
func (l *Log[B]) deliver(g *shareGroup[B], b B, before position, v *view[B], wakes []xsync.Waker) []xsync.Waker {
	began := xsync.Clock(0)
	use, evaluates := g.admit(before)
	if !evaluates {
		return wakes
	}
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
	l.callAll(wakes)
	if use != nil {
		use.Add((xsync.Clock(0) - began) / liveFraction)
	}
	clear(wakes)
	return wakes[:0]
}

// The groups of one client may take liveTime at once for the delivery of new blocks, which is the time of some thousand
// small subscriptions, and in the long run a fiftieth of the time that passes. A Usage falls by a thousandth of that
// time, so it counts a twentieth of what they take.
const (
	liveTime     = 20 * time.Millisecond
	liveFraction = 20
)

// admit reports whether the block after a position is to be evaluated for the group. It also returns the Usage that
// counts the time of this, or nil. Otherwise the group is postponed.
func (g *shareGroup[B]) admit(before position) (use *xsync.Usage, evaluates bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := uint64(len(g.members)); n > 0 { // a different one for each block: most readers may be of other clients
		if c := g.members[before.next%n].client; c != nil {
			use = c.Live
		}
	}
	if use == nil || g.err != nil || use.Time() <= liveTime/liveFraction {
		return use, true
	}
	g.discard(len(g.items))
	for _, r := range g.members {
		if r.at.next <= before.next {
			g.skipUnmatched(r, before)
		}
	}
	g.postponed = true
	g.log.postponed.add(g)
	return nil, false
}
