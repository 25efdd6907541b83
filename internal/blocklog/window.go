package blocklog

import (
	"sort"
	"time"
)

type entry[B any] struct {
	block  B
	cursor string
}

// mark is a place between two blocks. Blocks are numbered from 0 in the order of their arrival, across restarts.
type mark struct {
	next   uint64 // the number of the block behind the mark
	cursor string // of the block before it
}

// Window is what a Log has of the newest blocks, at one moment. It does not change any more.
type Window[B any] struct {
	Blocks []B    // ascending, without a hole that is known; shared, so not to be written to
	After  string // Blocks are all there are past this cursor, up to the last of them

	// Live tells that the window may stand for the source itself: the present Follow has given a new block, the newest
	// came less than Options.Silence ago, no hole is being healed, and the newest is not below Reached.
	Live bool

	// Reached is the highest cursor that a Reader may have read or that [Log.Saw] was given. It never falls.
	Reached string

	Arrived time.Time // when the newest block came in here; zero while none has, and after the source lost its history

	// Gaps grows with each gap that is found, whether it is repaired or the window begins again after it, and when the
	// source loses its history. If it is the same for two windows, the blocks that both have are the same.
	Gaps uint64
}

// view is the window as the log itself needs it. Once published it does not change: the arrays behind its slices are
// only appended to, past the ends that others know.
type view[B any] struct {
	blocks  []B // the last opts.Window ones, number base.next first
	stamps  []stamp
	base    mark      // the beginning of the window
	newest  mark      // the end of the window
	arrived time.Time // when the newest block came, zero before the first and after a loss
	fresh   bool      // it came in the present Follow, and no hole has shown since
}

// stamp is what the log knows of a block in its window.
type stamp struct {
	cursor  string
	arrived time.Time // zero where it was read instead
}

// Window returns the newest blocks. It takes no lock and copies no block, so it may be called for every query.
func (l *Log[B]) Window() Window[B] {
	v := l.view.Load()
	w := Window[B]{
		Blocks:  v.blocks[:len(v.blocks):len(v.blocks)],
		After:   v.base.cursor,
		Live:    v.fresh && (l.opts.Silence < 0 || time.Since(v.arrived) < l.opts.Silence),
		Reached: l.shown(v),
		Arrived: v.arrived,
		Gaps:    uint64(l.gaps.Load()),
	}
	w.Live = w.Live && w.Reached == v.newest.cursor
	return w
}

// Saw tells the Log that a block with this cursor, read elsewhere, is being shown to somebody. The window is not Live
// before it has reached it, so that nobody is shown less than was shown before. It takes no lock.
func (l *Log[B]) Saw(cursor string) {
	if cursor <= l.view.Load().newest.cursor {
		return // and is remembered when the log gives its place up
	}
	l.note(cursor)
}

// shown returns the highest cursor that anybody was shown.
func (l *Log[B]) shown(v *view[B]) string {
	if p := l.reached.Load(); p != nil && *p > v.newest.cursor {
		return *p
	}
	return v.newest.cursor
}

func (l *Log[B]) note(cursor string) {
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

// emptyView is a window that begins at a mark.
func emptyView[B any](at mark) view[B] { return view[B]{base: at, newest: at} }

// push puts a block behind the newest, and the oldest out where there are more than limit.
func (v *view[B]) push(b B, s stamp, limit int) {
	v.blocks = append(roomy(v.blocks), b)
	v.stamps = append(roomy(v.stamps), s)
	v.newest = mark{v.newest.next + 1, s.cursor}
	if len(v.blocks) > limit {
		v.base = mark{v.base.next + 1, v.stamps[0].cursor}
		v.blocks, v.stamps = v.blocks[1:], v.stamps[1:]
	}
}

// roomy makes room for one more by moving into a new array: the old one's beginning may still be read.
func roomy[T any](s []T) []T {
	if len(s) < cap(s) {
		return s
	}
	return append(make([]T, 0, max(2*len(s), 16)), s...)
}

// from returns the index of the first block past a cursor.
func (v *view[B]) from(cursor string) int {
	return sort.Search(len(v.stamps), func(i int) bool { return v.stamps[i].cursor > cursor })
}

// has reports whether a cursor is that of a block in the window.
func (v *view[B]) has(cursor string) bool {
	i := sort.Search(len(v.stamps), func(i int) bool { return v.stamps[i].cursor >= cursor })
	return i < len(v.stamps) && v.stamps[i].cursor == cursor
}

// before returns the cursor in the window that is next below one past its beginning.
func (v *view[B]) before(cursor string) string {
	i := sort.Search(len(v.stamps), func(i int) bool { return v.stamps[i].cursor >= cursor })
	if i == 0 {
		return v.base.cursor
	}
	return v.stamps[i-1].cursor
}

// above is before for any cursor: one from before the window has the given cursor below it.
func (v *view[B]) above(cursor, otherwise string) string {
	if cursor <= v.base.cursor {
		return otherwise
	}
	return v.before(cursor)
}

// merge returns the window with blocks put in that belong between its own. All get fresh numbers, from the old end on.
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
