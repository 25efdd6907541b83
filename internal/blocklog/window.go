package blocklog

import (
	"sort"
	"time"
)

// An entry is a block and its cursor.
type entry[B any] struct {
	block  B
	cursor string
}

// A mark is a position between two blocks. Blocks are numbered from 0 in the order of arrival, across restarts.
type mark struct {
	next   uint64 // number of the block after the mark
	cursor string // cursor of the block before the mark
}

// A Window contains the Log's newest blocks at one moment. It does not change.
type Window[B any] struct {
	Blocks []B    // ascending, without a known gap; shared, so do not modify
	After  string // Blocks has every block after this cursor, up to the last one in Blocks

	// Live reports whether the window may be used instead of the source: the present Follow has yielded a new block,
	// the newest block arrived less than Options.Silence ago, no gap is being repaired, and the newest block is not
	// below Reached.
	Live bool

	// Reached is the highest cursor that a Reader may have read or that was passed to [Log.Observed]. It never decreases.
	Reached string

	Arrived time.Time // arrival of the newest block; zero before the first one and after the source lost its history

	// Gaps increases with each gap that is found, whether the gap is repaired or the window starts again after it, and
	// when the source loses its history. If it is equal for two windows, the blocks that are in both are the same.
	Gaps uint64
}

// A view is the window in the form that the log needs. After publication it does not change: the arrays of its slices
// are only appended to, after the ends that readers of older views know.
type view[B any] struct {
	blocks  []B // the last opts.Window blocks; the first has the number base.next
	stamps  []stamp
	base    mark      // beginning of the window
	newest  mark      // end of the window
	arrived time.Time // arrival of the newest block; zero before the first one and after a loss
	fresh   bool      // the newest block came in the present Follow, and no gap has been found since
}

// A stamp contains the cursor and the arrival of a block in the window.
type stamp struct {
	cursor  string
	arrived time.Time // zero if the block was read from stored blocks
}

// Window returns the newest blocks. It takes no lock and copies no block, so it may be called for every query.
func (l *Log[B]) Window() Window[B] {
	v := l.view.Load()
	w := Window[B]{
		Blocks:  v.blocks[:len(v.blocks):len(v.blocks)],
		After:   v.base.cursor,
		Live:    v.fresh && (l.opts.Silence < 0 || time.Since(v.arrived) < l.opts.Silence),
		Reached: l.highestShown(v),
		Arrived: v.arrived,
		Gaps:    uint64(l.gaps.Load()),
	}
	w.Live = w.Live && w.Reached == v.newest.cursor
	return w
}

// Observed records that a block with this cursor, read elsewhere, is being shown to a client. The window is not Live
// until it has reached that cursor, so that no client sees an older state than before. Observed takes no lock.
func (l *Log[B]) Observed(cursor string) {
	if cursor <= l.view.Load().newest.cursor {
		return // reset records the newest cursor
	}
	l.raiseReached(cursor)
}

// highestShown returns the highest cursor that was shown to any client.
func (l *Log[B]) highestShown(v *view[B]) string {
	if p := l.reached.Load(); p != nil && *p > v.newest.cursor {
		return *p
	}
	return v.newest.cursor
}

// raiseReached raises reached to a cursor, if that is higher.
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

// emptyView returns an empty window at a mark.
func emptyView[B any](at mark) view[B] { return view[B]{base: at, newest: at} }

// push appends a block, and removes the oldest block if there are more than limit.
func (v *view[B]) push(b B, s stamp, limit int) {
	v.blocks = append(withRoom(v.blocks), b)
	v.stamps = append(withRoom(v.stamps), s)
	v.newest = mark{v.newest.next + 1, s.cursor}
	if len(v.blocks) > limit {
		v.base = mark{v.base.next + 1, v.stamps[0].cursor}
		v.blocks, v.stamps = v.blocks[1:], v.stamps[1:]
	}
}

// withRoom returns s with room for one more element. If s is full, it copies s to a new array: the beginning of the old
// array may still be read.
func withRoom[T any](s []T) []T {
	if len(s) < cap(s) {
		return s
	}
	return append(make([]T, 0, max(2*len(s), 16)), s...)
}

// from returns the index of the first block after a cursor.
func (v *view[B]) from(cursor string) int {
	return sort.Search(len(v.stamps), func(i int) bool { return v.stamps[i].cursor > cursor })
}

// has reports whether a cursor is that of a block in the window.
func (v *view[B]) has(cursor string) bool {
	i := sort.Search(len(v.stamps), func(i int) bool { return v.stamps[i].cursor >= cursor })
	return i < len(v.stamps) && v.stamps[i].cursor == cursor
}

// before returns the highest cursor in the window below the given one, which must be after the beginning of the window.
// If no block is below, it returns the cursor of the beginning.
func (v *view[B]) before(cursor string) string {
	i := sort.Search(len(v.stamps), func(i int) bool { return v.stamps[i].cursor >= cursor })
	if i == 0 {
		return v.base.cursor
	}
	return v.stamps[i-1].cursor
}

// above is before for any cursor: it returns otherwise if the cursor is not after the beginning of the window.
func (v *view[B]) above(cursor, otherwise string) string {
	if cursor <= v.base.cursor {
		return otherwise
	}
	return v.before(cursor)
}

// merge returns the window with late blocks inserted between its own. All blocks receive new numbers, which start at
// the old end.
func (v *view[B]) merge(late []entry[B], limit int) view[B] {
	n := emptyView[B](mark{v.newest.next, v.base.cursor})
	n.arrived = v.arrived
	for i, b := range v.blocks {
		for ; len(late) > 0 && late[0].cursor < v.stamps[i].cursor; late = late[1:] {
			if late[0].cursor > v.base.cursor {
				n.push(late[0].block, stamp{cursor: late[0].cursor}, limit)
			}
		}
		n.push(b, v.stamps[i], limit)
	}
	return n
}
