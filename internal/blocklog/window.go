package blocklog

import (
	"slices"
	"sort"
	"time"
	"unsafe"
)

// An entry is a block and its cursor.
type entry[B any] struct {
	block  B
	cursor string
}

// A position is a place between two blocks of the log. Blocks are numbered from 0 in the order of arrival, across
// restarts of Follow.
type position struct {
	next   uint64 // number of the next block
	cursor string // cursor of the last block before the position
}

// A Window is a snapshot of the Log's newest blocks. It does not change.
type Window[B any] struct {
	// Blocks contains the blocks in ascending order, without a known gap. The slice is shared and must not be modified.
	Blocks []B

	// After is the position before the first block. As far as the Log knows, no block is missing between After and the
	// last block.
	After string

	// Live reports whether the Window may be used instead of the source. It is true if the current Follow has yielded a
	// new block, the newest block arrived less than Options.Silence ago, no gap is being repaired, and the cursor of
	// the newest block is not lower than Reached.
	Live bool

	// Reached is the highest cursor that a Reader may have read or that was passed to [Log.Observed]. It never
	// decreases.
	Reached string

	// Arrived is the time at which the newest block arrived. It is zero before the first block arrives, and also after
	// the source has lost its history until the next block arrives.
	Arrived time.Time

	// Gaps increases when a gap is found, whether or not it is repaired, and when the source loses its history. If two
	// Windows have equal Gaps, they contain the same blocks in the range that both of them cover.
	Gaps uint64

	stamps []stamp
	index  index
	first  uint64 // number of the first block
}

// A view is the internal form of a Window. It does not change after it has been stored in Log.view. Later views may
// share its arrays, but only append to them.
type view[B any] struct {
	blocks  []B // the first has the number base.next
	bytes   int // size of the blocks in memory
	stamps  []stamp
	index   index
	base    position  // beginning of the window
	newest  position  // end of the window
	arrived time.Time // arrival of the newest block; zero before the first one and after the source lost its history
	fresh   bool      // the newest block arrived in the current Follow, and no gap has been found since
}

// A stamp contains the cursor and the arrival of a block in the window, and what Source.Prepare returned for it.
type stamp struct {
	cursor   string
	arrived  time.Time // zero if the block was read from stored blocks
	prepared any
	bytes    int // size of prepared
}

// stampOf returns the stamp of a block that enters the window.
func (l *Log[B]) stampOf(b B, cursor string, arrived time.Time) stamp {
	s := stamp{cursor: cursor, arrived: arrived}
	if l.src.Prepare != nil {
		s.prepared, s.bytes = l.src.Prepare(b)
	}
	return s
}

// publish makes v, which ends with a new block, the current window. It must be called before readers are woken for the
// block. The caller must hold l.mu.
func (l *Log[B]) publish(v *view[B]) {
	l.view.Store(v)
	l.stats.Blocks++
	l.delivering = append(l.delivering, l.groups[:l.active]...)
	l.wakes = l.wakeReached(l.wakes)
}

// Window returns the newest blocks. It acquires no lock and copies no block, so it may be called for every query.
func (l *Log[B]) Window() Window[B] {
	v := l.view.Load()
	w := Window[B]{
		Blocks:  v.blocks[:len(v.blocks):len(v.blocks)],
		After:   v.base.cursor,
		Live:    v.fresh && time.Since(v.arrived) < l.opts.Silence,
		Reached: l.highestShown(v),
		Arrived: v.arrived,
		Gaps:    uint64(l.gaps.Load()),
		stamps:  v.stamps,
		index:   v.index,
		first:   v.base.next,
	}
	w.Live = w.Live && w.Reached == v.newest.cursor
	return w
}

// Observed records that a client receives a block with this cursor that was not read from the Log. Until the window
// has reached the cursor, it is not Live, so that no client sees an older state than before. Observed acquires no
// lock.
func (l *Log[B]) Observed(cursor string) {
	if cursor <= l.view.Load().newest.cursor {
		return // need not be recorded: reset records the newest cursor before it empties the window
	}
	l.raiseReached(cursor)
}

// highestShown returns the highest cursor that any client may have seen.
func (l *Log[B]) highestShown(v *view[B]) string {
	if p := l.reached.Load(); p != nil && *p > v.newest.cursor {
		return *p
	}
	return v.newest.cursor
}

// raiseReached sets l.reached to the cursor if the cursor is higher.
func (l *Log[B]) raiseReached(cursor string) {
	for {
		p := l.reached.Load()
		if p != nil && cursor <= *p {
			return
		}
		higher := cursor
		if l.reached.CompareAndSwap(p, &higher) {
			return
		}
	}
}

// emptyView returns an empty window at a position.
func emptyView[B any](at position) view[B] { return view[B]{base: at, newest: at} }

// extend returns a copy of v to which blocks can be pushed without changing v.
func (v *view[B]) extend() view[B] {
	n := *v
	n.index = slices.Clone(v.index)
	return n
}

// A windowLimit bounds a window. If there are more blocks, the window keeps the newest of them that arrived within age
// before its newest block. It never has more than the given number of bytes, except for a single block.
type windowLimit struct {
	blocks, bytes int
	age           time.Duration
}

// limit returns the limit of the log's window.
func (o *Options[B]) limit() windowLimit { return windowLimit{o.Window, o.WindowBytes, o.WindowAge} }

// size returns the memory of a block in the window in bytes. Half of an array may be room for more blocks, or was left
// by blocks that are not in the window any more.
func (s *stamp) size(block uintptr) int {
	const numbers = 3 * 8 // in the index
	return 2*(int(block+unsafe.Sizeof(*s)+numbers)+s.bytes) + len(s.cursor)
}

// push appends a block, and removes the oldest blocks that exceed the limit. v must not be stored yet. If place is nil,
// the blocks are not indexed.
func (v *view[B]) push(b B, s stamp, limit windowLimit, place func(B) Place) {
	v.blocks = append(withRoom(v.blocks), b)
	v.stamps = append(withRoom(v.stamps), s)
	if place != nil {
		v.index.add(v.newest.next, place(b))
	}
	v.newest = position{v.newest.next + 1, s.cursor}
	size := unsafe.Sizeof(b)
	for v.bytes += s.size(size); v.exceeds(limit); {
		v.bytes -= v.stamps[0].size(size)
		v.base = position{v.base.next + 1, v.stamps[0].cursor}
		if place != nil {
			v.index.removeOldest(place(v.blocks[0]))
		}
		v.blocks, v.stamps = v.blocks[1:], v.stamps[1:]
	}
}

// exceeds reports whether the oldest block must be removed.
func (v *view[B]) exceeds(limit windowLimit) bool {
	switch {
	case len(v.blocks) < 2:
		return false
	case v.bytes > limit.bytes:
		return true
	}
	old := v.stamps[0].arrived.Before(v.arrived.Add(-limit.age)) || v.stamps[0].arrived.IsZero()
	return len(v.blocks) > limit.blocks && (old || limit.age == 0)
}

// withRoom returns s with room for one more element. If s is full, it returns a copy in a new array, because an older
// view may still use the old array.
func withRoom[T any](s []T) []T {
	if len(s) < cap(s) {
		return s
	}
	return append(make([]T, 0, max(2*len(s), 16)), s...)
}

// from returns the index of the first block after the cursor.
func (v *view[B]) from(cursor string) int {
	return sort.Search(len(v.stamps), func(i int) bool { return v.stamps[i].cursor > cursor })
}

// has reports whether a block in the window has the cursor.
func (v *view[B]) has(cursor string) bool {
	i := sort.Search(len(v.stamps), func(i int) bool { return v.stamps[i].cursor >= cursor })
	return i < len(v.stamps) && v.stamps[i].cursor == cursor
}

// before returns the highest cursor in the window that is lower than the given one, which must be after the beginning
// of the window. If no block has a lower cursor, it returns the cursor of the beginning.
func (v *view[B]) before(cursor string) string {
	i := sort.Search(len(v.stamps), func(i int) bool { return v.stamps[i].cursor >= cursor })
	if i == 0 {
		return v.base.cursor
	}
	return v.stamps[i-1].cursor
}

// beforeOr returns v.before(cursor). If the cursor is not after the beginning of the window, it returns the argument
// otherwise.
func (v *view[B]) beforeOr(cursor, otherwise string) string {
	if cursor <= v.base.cursor {
		return otherwise
	}
	return v.before(cursor)
}

// merge returns a copy of the window in which late blocks are inserted in their places. All its blocks have new
// numbers, which continue from the end of the old window.
func (v *view[B]) merge(late []entry[B], limit windowLimit, place func(B) Place) view[B] {
	n := emptyView[B](position{v.newest.next, v.base.cursor})
	n.arrived = v.arrived
	for i, b := range v.blocks {
		for ; len(late) > 0 && late[0].cursor < v.stamps[i].cursor; late = late[1:] {
			if late[0].cursor > v.base.cursor && !v.has(late[0].cursor) {
				n.push(late[0].block, stamp{cursor: late[0].cursor}, limit, place)
			}
		}
		n.push(b, v.stamps[i], limit, place)
	}
	return n
}
