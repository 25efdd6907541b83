package blocklog

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A feed keeps evaluated payloads for readers that are a little behind, up to both bounds, and all feeds together up to
// Options.KeptBytes. A reader further behind evaluates the window's blocks by itself, so the bounds cost no block, only
// work.
const (
	feedItems  = 64
	feedBytes  = 32 << 10
	matchBytes = 96 // what a match takes in addition to its payload
)

// feed is what readers with equal keys share.
type feed[B any] struct {
	key      string
	eval     func(B) []byte
	concerns func(workchain int32) bool
	keep     int           // bound of items
	kept     *atomic.Int64 // the bytes of all feeds
	slot     int           // its place in the log's feeds; the log's lock guards it

	mu      sync.Mutex
	members []*Reader[B]
	items   []match // ascending; those that a live member has not read yet, and behind the bounds' reach
	bytes   int     // of items
	since   uint64  // every unread match from this number on is in items
	matched uint64  // one past the last match, or the first block put; a live reader at or past it has read everything
	err     error   // set when the feed has ended
	ended   mark    // how far it had got then
}

// match is a block that a feed's eval did not refuse.
type match struct {
	number  uint64
	unread  int // how many live members are to take it; it never falls from one match to the next
	cursor  string
	payload []byte
	arrived time.Time
}

func (m *match) size() int { return cap(m.payload) + matchBytes }

func (f *feed[B]) evaluate(b B) (payload []byte, err error) {
	err = guard(func() { payload = f.eval(b) })
	return payload, err
}

// begin puts the live members, who joined before the log had a place, where it begins.
func (f *feed[B]) begin(at mark) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.matched = at.next
	for _, r := range f.members {
		if r.at.next != behind {
			r.at, r.start = at, at.cursor
		}
	}
}

func (f *feed[B]) add(r *Reader[B]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r.slot = int32(len(f.members))
	f.members = append(f.members, r)
}

// put keeps the match between two marks for the members who were there before it came, and appends their wakes.
func (f *feed[B]) put(payload []byte, before, after mark, arrived time.Time, wakes []func()) []func() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return wakes
	}
	unread := 0
	for _, r := range f.members {
		if r.at.next > before.next {
			continue
		}
		if r.at.next >= f.matched && r.at.cursor < before.cursor {
			r.at = before // it had read everything: what did not match since is behind it
		}
		unread++
		if r.wake != nil {
			wakes = append(wakes, r.wake)
		}
	}
	f.matched = after.next
	if unread == 0 {
		return wakes
	}
	m := match{before.next, unread, after.cursor, payload, arrived}
	f.items = append(f.items, m)
	f.bytes += m.size()
	f.kept.Add(int64(m.size()))
	n, bytes := 0, f.bytes
	for kept := len(f.items); kept > f.keep || kept > 1 && bytes > feedBytes; kept-- {
		bytes -= f.items[n].size()
		n++
	}
	f.discard(n)
	return wakes
}

// spare has feeds discard what they keep, from the one on that was served longest ago, until all together keep no more
// than they may. Readers that do not take their blocks so do not use up what the others need.
func (l *Log[B]) spare() {
	for n := len(l.turn); n > 0 && l.kept.Load() > int64(l.opts.KeptBytes); n-- {
		f := l.turn[l.hand.Add(1)%uint64(len(l.turn))]
		f.mu.Lock()
		f.discard(len(f.items))
		f.mu.Unlock()
	}
}

// discard lets go of the first items, although members have not read them.
func (f *feed[B]) discard(n int) {
	if n > 0 {
		f.since = f.items[n-1].number + 1
		f.shift(n)
	}
}

// take gives a reader the first match it has not read, which must be in items.
func (f *feed[B]) take(r *Reader[B]) Item {
	i, _ := slices.BinarySearchFunc(f.items, r.at.next, func(m match, n uint64) int {
		if m.number < n {
			return -1
		}
		return 1
	})
	m := &f.items[i]
	item := Item{Cursor: m.cursor, Payload: m.payload, Arrived: m.arrived, Origin: OriginLive}
	r.at = mark{m.number + 1, m.cursor}
	r.handed = m.cursor
	m.unread--
	f.forget()
	return item
}

// drop takes a reader out and says how many are left. Its position stays what it was.
func (f *feed[B]) drop(r *Reader[B], delivered mark) (left int, was bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.slot < 0 {
		return len(f.members), false
	}
	f.release(r)
	r.at = f.reached(r, delivered)
	if r.at.next == behind {
		r.log.behind.Add(-1)
	}
	last := len(f.members) - 1
	f.members[r.slot] = f.members[last]
	f.members[r.slot].slot = r.slot
	f.members[last] = nil
	f.members = f.members[:last]
	r.slot = -1
	return last, true
}

// release counts a reader out of the items it has not read.
func (f *feed[B]) release(r *Reader[B]) {
	from := max(r.at.next, r.since)
	for i := range f.items {
		if f.items[i].number >= from {
			f.items[i].unread--
		}
	}
	f.forget()
}

// fall leaves a reader behind at a cursor.
func (f *feed[B]) fall(r *Reader[B], cursor string) {
	if r.at.next != behind {
		f.release(r)
		r.log.behind.Add(1)
	}
	r.at = mark{behind, cursor}
}

// move puts a reader where its search came to, unless the log lost its place meanwhile: then the cursor alone counts.
func (f *feed[B]) move(r *Reader[B], at mark) {
	if at.next == behind || r.at.next == behind {
		f.fall(r, at.cursor)
	} else {
		r.at = at
	}
}

// fallAll leaves all live members behind where they are, and appends their wakes.
func (f *feed[B]) fallAll(delivered mark, wakes []func()) []func() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.members {
		if r.at.next == behind {
			continue
		}
		f.fall(r, f.reached(r, delivered).cursor)
		if r.wake != nil {
			wakes = append(wakes, r.wake)
		}
	}
	return wakes
}

// reached is where a reader is. One that has read every match is as far as the log, or as far as the feed came.
func (f *feed[B]) reached(r *Reader[B], delivered mark) mark {
	if f.err != nil {
		delivered = f.ended
	}
	if r.slot >= 0 && r.at.next >= f.matched && r.at.next <= delivered.next && r.at.cursor < delivered.cursor {
		return delivered
	}
	return r.at
}

func (f *feed[B]) end(at mark, err error, wakes []func()) []func() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return wakes
	}
	f.err, f.ended = err, at
	f.discard(len(f.items)) // the log does not spare it any more
	for _, r := range f.members {
		if r.wake != nil {
			wakes = append(wakes, r.wake)
		}
	}
	return wakes
}

// forget lets go of what everybody has read.
func (f *feed[B]) forget() {
	n := 0
	for n < len(f.items) && f.items[n].unread == 0 {
		n++
	}
	f.shift(n)
}

func (f *feed[B]) shift(n int) {
	for i := range n {
		size := f.items[i].size()
		f.bytes -= size
		f.kept.Add(-int64(size))
	}
	f.items = slices.Delete(f.items, 0, n)
	if len(f.items) == 0 && cap(f.items) > 4 {
		f.items = nil // a feed that was behind once does not pay for it ever after
	}
}

// mayMatch reports whether a block of a workchain may match. It may if concerns panics.
func (f *feed[B]) mayMatch(workchain int32) (may bool, err error) {
	err = guard(func() { may = f.concerns == nil || f.concerns(workchain) })
	return may || err != nil, err
}

// end ends all readers of a feed: they get what they have not read before the mark, then err. A reader that joins
// with the same key later gets a new feed. It appends their wakes, to be called without the lock.
func (l *Log[B]) end(f *feed[B], at mark, err error, wakes []func()) []func() {
	l.remove(f)
	return f.end(at, err, wakes)
}

func (l *Log[B]) endAll(err error, wakes []func()) []func() {
	for len(l.feeds) > 0 {
		wakes = l.end(l.feeds[len(l.feeds)-1], l.delivered, err, wakes)
	}
	return wakes
}

func (l *Log[B]) remove(f *feed[B]) {
	if l.byKey[f.key] != f {
		return
	}
	delete(l.byKey, f.key)
	last := len(l.feeds) - 1
	l.feeds[f.slot] = l.feeds[last]
	l.feeds[f.slot].slot = f.slot
	l.feeds[last] = nil
	l.feeds = l.feeds[:last]
}

// call calls the wakes. One that panics must not keep the block from the others.
func (l *Log[B]) call(wakes []func()) {
	for _, wake := range wakes {
		if err := guard(wake); err != nil {
			l.logPanic("wake of a reader panicked", err, "")
		}
	}
}
