package blocklog

import (
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/chaingql/chaingql/internal/guard"
	"github.com/chaingql/chaingql/internal/xsync"
)

// These constants limit the payloads that a shareGroup keeps for readers that are slightly slower than the stream. In
// addition, Options.KeptBytes limits the payloads of all groups together. Readers whose payloads are not kept evaluate
// the blocks of the window themselves, so the limits cost work but no reader misses a block.
const (
	groupItems = 64       // maximum number of payloads in one group
	groupBytes = 32 << 10 // maximum size of the payloads in one group
	matchBytes = 96       // size that is counted for each match in addition to its payload
)

// A shareGroup contains all readers with equal keys, which share one evaluation of each block.
type shareGroup[B any] struct {
	log      *Log[B]
	key      string
	eval     func(B) []byte
	concerns func(workchain int32) bool
	search   int32 // maximum number of blocks that one search evaluates
	keep     int32 // maximum number of items
	slot     int   // index in the log's groups, -1 when removed; guarded by the log's lock

	mu      sync.Mutex
	members []*Reader[B]
	items   []match  // the kept matches that a live reader has not read yet, ascending
	bytes   int      // size of items in bytes
	since   uint64   // items has every unread match from this number on
	matched uint64   // number after the last match; at first, that of the next block; a live reader there has read all
	err     error    // set when the group has ended
	ended   position // the position that the group had reached when it ended

	// postponed is true while the newest blocks are not delivered to the group. Then matched and since are only valid
	// after a call of advance.
	postponed bool
}

// A match is a block for which Eval returned a payload.
type match struct {
	number  uint64
	unread  int // number of live readers that have not read the match; never lower than for the match before it
	cursor  string
	payload []byte
	arrived time.Time
}

func (m *match) size() int { return cap(m.payload) + matchBytes }

func (g *shareGroup[B]) evaluate(b B) (payload []byte, err error) {
	err = guard.Run(func() { payload = g.eval(b) })
	return payload, err
}

// begin moves the live readers of the group, which joined before the log had a position, to the position that the log
// has found.
func (g *shareGroup[B]) begin(at position) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.matched = at.next
	for _, r := range g.members {
		if r.at.next != catchingUp {
			r.at, r.start, r.from = at, at.cursor, at.cursor
		}
	}
}

func (g *shareGroup[B]) add(r *Reader[B]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r.slot = int32(len(g.members))
	g.members = append(g.members, r)
}

// put keeps a payload for the live readers that have not passed its block, and appends their wake functions to wakes.
// before and after are the positions around the block. If the group then exceeds its limits, put discards the oldest
// payloads.
func (g *shareGroup[B]) put(
	payload []byte, before, after position, arrived time.Time, wakes []xsync.Waker,
) []xsync.Waker {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		return wakes
	}
	unread := 0
	for _, r := range g.members {
		if r.at.next > before.next {
			continue
		}
		g.skipUnmatched(r, before)
		unread++
		wakes = r.appendWake(wakes)
	}
	g.matched = after.next
	if unread == 0 {
		return wakes
	}
	m := match{before.next, unread, after.cursor, payload, arrived}
	g.items = append(g.items, m)
	g.bytes += m.size()
	g.log.kept.Add(int64(m.size()))
	n, bytes := 0, g.bytes
	for kept := len(g.items); kept > int(g.keep) || kept > 1 && bytes > groupBytes; kept-- {
		bytes -= g.items[n].size()
		n++
	}
	g.discard(n)
	return wakes
}

// skipUnmatched moves a reader that has read every match past the blocks since then, which did not match.
func (g *shareGroup[B]) skipUnmatched(r *Reader[B], to position) {
	if r.at.next >= g.matched && r.at.cursor < to.cursor {
		r.at = to
	}
}

// shrink makes groups discard their payloads until all groups together keep at most Options.KeptBytes. It takes the
// groups in rotation. Otherwise, readers that do not read could use up the memory that other readers need.
func (l *Log[B]) shrink() {
	for n := len(l.delivering); n > 0 && l.kept.Load() > int64(l.opts.KeptBytes); n-- {
		g := l.delivering[l.nextToShrink.Add(1)%uint64(len(l.delivering))]
		g.mu.Lock()
		g.discard(len(g.items))
		g.mu.Unlock()
	}
}

// discard removes the first n items, even though readers have not read them.
func (g *shareGroup[B]) discard(n int) {
	if n > 0 {
		g.since = g.items[n-1].number + 1
		g.shift(n)
	}
}

// take returns the first match that a reader has not read and advances the reader. The match must be in g.items.
func (g *shareGroup[B]) take(r *Reader[B]) Item {
	i := sort.Search(len(g.items), func(i int) bool { return g.items[i].number >= r.at.next })
	m := &g.items[i]
	item := Item{Cursor: m.cursor, Payload: m.payload, Arrived: m.arrived, Origin: OriginLive}
	r.at = position{m.number + 1, m.cursor}
	r.lastReturned = m.cursor
	m.unread--
	g.forget()
	return item
}

// drop removes a reader from the group. It returns the number of remaining readers, and whether the reader was in the
// group. The reader keeps its position.
func (g *shareGroup[B]) drop(r *Reader[B], delivered position) (left int, was bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.slot < 0 {
		return len(g.members), false
	}
	g.release(r)
	r.at = g.reached(r, delivered)
	if r.at.next == catchingUp {
		g.log.catchingUp.Add(-1)
	}
	last := len(g.members) - 1
	g.members[r.slot] = g.members[last]
	g.members[r.slot].slot = r.slot
	g.members[last] = nil
	g.members = g.members[:last]
	r.slot = -1
	return last, true
}

// release removes a reader from the unread counts of the items that it has not read.
func (g *shareGroup[B]) release(r *Reader[B]) {
	from := max(r.at.next, r.since)
	for i := range g.items {
		if g.items[i].number >= from {
			g.items[i].unread--
		}
	}
	g.forget()
}

// fall makes a reader catch up from a cursor.
func (g *shareGroup[B]) fall(r *Reader[B], cursor string) {
	if r.at.next != catchingUp {
		g.release(r)
		g.log.catchingUp.Add(1)
	}
	r.at = position{catchingUp, cursor}
}

// move moves a reader to the position that its search reached. If the log lost its position during the search, the
// reader catches up from the cursor of the position.
func (g *shareGroup[B]) move(r *Reader[B], at position) {
	if at.next == catchingUp || r.at.next == catchingUp {
		g.fall(r, at.cursor)
	} else {
		r.at = at
	}
}

// fallAll makes all live readers of the group catch up from their positions, and appends their wake functions to wakes.
func (g *shareGroup[B]) fallAll(delivered position, wakes []xsync.Waker) []xsync.Waker {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range g.members {
		if r.at.next == catchingUp {
			continue
		}
		g.fall(r, g.reached(r, delivered).cursor)
		wakes = r.appendWake(wakes)
	}
	return wakes
}

// reached returns the position of a reader. A live reader that has read every match is at delivered, the position of
// the log, or at g.ended if the group has ended.
func (g *shareGroup[B]) reached(r *Reader[B], delivered position) position {
	g.advance()
	if g.err != nil {
		delivered = g.ended
	}
	if r.slot >= 0 && r.at.next >= g.matched && r.at.next <= delivered.next && r.at.cursor < delivered.cursor {
		return delivered
	}
	return r.at
}

// end ends the group at a position, and appends the wake functions of its readers to wakes.
func (g *shareGroup[B]) end(at position, err error, wakes []xsync.Waker) []xsync.Waker {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		return wakes
	}
	g.err, g.ended = err, at
	g.discard(len(g.items)) // shrink does not call a group that has ended
	for _, r := range g.members {
		wakes = r.appendWake(wakes)
	}
	return wakes
}

// forget removes the items that all readers of the group have read.
func (g *shareGroup[B]) forget() {
	n := 0
	for n < len(g.items) && g.items[n].unread == 0 {
		n++
	}
	g.shift(n)
}

func (g *shareGroup[B]) shift(n int) {
	for i := range n {
		size := g.items[i].size()
		g.bytes -= size
		g.log.kept.Add(-int64(size))
	}
	g.items = slices.Delete(g.items, 0, n)
	if len(g.items) == 0 && cap(g.items) > 4 {
		g.items = nil // release the memory of a group with slow readers
	}
}

// mayMatch reports whether a block in the workchain may match. If concerns panics, mayMatch returns true and the panic
// as an error.
func (g *shareGroup[B]) mayMatch(workchain int32) (may bool, err error) {
	err = guard.Run(func() { may = g.concerns == nil || g.concerns(workchain) })
	return may || err != nil, err
}

// end ends all readers of g. Each of them receives its unread blocks before the position at, and then err. A reader
// that joins later with the same key gets a new group. end appends the readers' wake functions to wakes; the caller
// must call them after it has released l.mu.
func (l *Log[B]) end(g *shareGroup[B], at position, err error, wakes []xsync.Waker) []xsync.Waker {
	l.remove(g)
	return g.end(at, err, wakes)
}

func (l *Log[B]) endAll(err error, wakes []xsync.Waker) []xsync.Waker {
	for len(l.groups) > 0 {
		wakes = l.end(l.groups[len(l.groups)-1], l.delivered, err, wakes)
	}
	return wakes
}

func (l *Log[B]) remove(g *shareGroup[B]) {
	if g.slot < 0 {
		return
	}
	l.setActive(g, false)
	delete(l.byKey, g.key)
	last := len(l.groups) - 1
	l.swapGroups(g.slot, last)
	l.groups[last] = nil
	l.groups, g.slot = l.groups[:last], -1
}

// forEachGroup calls do for every group without holding a lock, and then for the groups that were added meanwhile. It
// returns the groups that were added after that, for which it has not called do: if clients subscribe faster than do
// returns, the loop would otherwise never end. It returns with the log's lock held.
func (l *Log[B]) forEachGroup(do func(*shareGroup[B])) (rest []*shareGroup[B]) {
	did := make(map[*shareGroup[B]]bool)
	for range 2 {
		l.mu.Lock()
		added := l.groupsExcept(did)
		if len(added) == 0 {
			return nil
		}
		l.mu.Unlock()
		for _, g := range added {
			did[g] = true
			do(g)
		}
	}
	l.mu.Lock()
	return l.groupsExcept(did)
}

func (l *Log[B]) groupsExcept(known map[*shareGroup[B]]bool) (others []*shareGroup[B]) {
	for _, g := range l.groups {
		if !known[g] {
			others = append(others, g)
		}
	}
	return others
}

// callAll calls the wake functions. If one panics, the others are still called.
func (l *Log[B]) callAll(wakes []xsync.Waker) {
	for _, w := range wakes {
		if err := guard.Run(w.Wake); err != nil {
			l.logPanic("wake function panicked; other subscriptions continue", err, "")
		}
	}
}
