package blocklog

import (
	"slices"
	"sync"
)

// A feed keeps evaluated payloads for readers that are a little behind, up to both bounds. A reader further behind
// evaluates the window's blocks by itself, so the bounds cost no block, only work.
const (
	feedItems = 64
	feedBytes = 32 << 10
)

// Item is one block as a Reader's eval has made it.
type Item struct {
	Cursor  string
	Payload []byte // shared with other readers: not to be changed; nil in the zero Item
}

// Reader is a position in a [Log]. Next is for one goroutine at a time; Cursor and Close may be called at any time.
type Reader[B any] struct {
	log  *Log[B]
	feed *feed[B]
	wake func()

	// The feed's lock guards these.
	at   mark // everything it matches before this mark has been read
	slot int  // its place in feed.members, -1 when closed
}

// Next returns the next block that matches, the zero Item (its Payload nil) when there is none yet: wake will tell.
// It does not block, but may evaluate as many blocks as the window holds when the Reader is far behind. Any error is
// the Reader's end: [*Behind], [*Lost] or [ErrClosed]; it has still to be closed.
func (r *Reader[B]) Next() (Item, error) {
	f := r.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		switch {
		case r.slot < 0 || r.log.ctx.Err() != nil:
			return Item{}, ErrClosed
		case r.at.next >= f.matched && f.err != nil:
			return Item{}, &Lost{Cursor: f.reached(r, f.ended).cursor, Err: f.err}
		case r.at.next >= f.matched:
			return Item{}, nil
		case r.at.next >= f.since:
			return f.take(r), nil
		}
		at, since := r.at, f.since
		f.mu.Unlock()
		item, at, err := r.reread(at, since)
		f.mu.Lock()
		if r.slot >= 0 {
			r.at = at
			if item.Payload != nil || err != nil {
				return item, err
			}
		}
	}
}

// reread finds the first match from a mark on among the window's blocks before number end, which the feed has
// evaluated once but no longer keeps. It returns the mark it came to.
func (r *Reader[B]) reread(at mark, end uint64) (Item, mark, error) {
	for at.next < end {
		e, ok := r.log.entry(at.next)
		if !ok {
			return Item{}, at, &Behind{Cursor: at.cursor}
		}
		payload, err := r.feed.evaluate(e.block)
		if err != nil {
			r.log.logPanic("evaluation of a block panicked", err, e.cursor)
			return Item{}, at, &Lost{Cursor: at.cursor, Err: err}
		}
		at = mark{at.next + 1, e.cursor}
		if payload != nil {
			return Item{e.cursor, payload}, at, nil
		}
	}
	return Item{}, at, nil
}

// Cursor returns the position reached: the Reader has had everything it matches up to it, and nothing from behind
// it. It moves on with blocks that do not match, too, and stays what it was when the Reader ended. It is "" where
// the chain was empty, and until the source has told its head.
func (r *Reader[B]) Cursor() string {
	// This comes first: all that is delivered by now is in the feed when that is looked at.
	r.log.mu.Lock()
	delivered := r.log.delivered
	r.log.mu.Unlock()
	f := r.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reached(r, delivered).cursor
}

// Close ends the Reader: Next returns ErrClosed. The Log goes on without it. Closing twice is harmless.
func (r *Reader[B]) Close() {
	l := r.log
	l.mu.Lock()
	defer l.mu.Unlock()
	left, was := r.feed.drop(r, l.delivered)
	if was {
		l.stats.Readers--
	}
	if left == 0 {
		l.remove(r.feed)
	}
}

// feed is what readers with equal keys share.
type feed[B any] struct {
	key  string
	eval func(B) []byte
	keep int // bound of items
	slot int // its place in the log's feeds; the log's lock guards it

	mu      sync.Mutex
	members []*Reader[B]
	items   []match // ascending; those that a member has not read yet, and behind the bounds' reach
	bytes   int     // of payload in items
	since   uint64  // every unread match from this number on is in items
	matched uint64  // one past the last match; a reader at or past it has read everything
	err     error   // set when the feed has ended
	ended   mark    // how far it had got then
}

// match is a block that a feed's eval did not refuse.
type match struct {
	number  uint64
	unread  int // how many members are at or before it; it never falls from one match to the next
	cursor  string
	payload []byte
}

func (f *feed[B]) evaluate(b B) (payload []byte, err error) {
	err = guard(func() { payload = f.eval(b) })
	return payload, err
}

func (f *feed[B]) add(r *Reader[B]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r.slot = len(f.members)
	f.members = append(f.members, r)
}

// put keeps the match between two marks for the members who were there before it came, and appends their wakes.
func (f *feed[B]) put(payload []byte, before, after mark, wakes []func()) []func() {
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
		if r.at.next >= f.matched {
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
	f.items = append(f.items, match{before.next, unread, after.cursor, payload})
	f.bytes += len(payload)
	n := 0
	for kept := len(f.items); kept > f.keep || kept > 1 && f.bytes > feedBytes; kept-- {
		f.since = f.items[n].number + 1
		f.bytes -= len(f.items[n].payload)
		n++
	}
	f.shift(n)
	return wakes
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
	item := Item{m.cursor, m.payload}
	r.at = mark{m.number + 1, m.cursor}
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
	for i := range f.items {
		if f.items[i].number >= r.at.next {
			f.items[i].unread--
		}
	}
	f.forget()
	r.at = f.reached(r, delivered)
	last := len(f.members) - 1
	f.members[r.slot] = f.members[last]
	f.members[r.slot].slot = r.slot
	f.members[last] = nil
	f.members = f.members[:last]
	r.slot = -1
	return last, true
}

// reached is where a reader is. One that has read every match is as far as the log, or as far as the feed came.
func (f *feed[B]) reached(r *Reader[B], delivered mark) mark {
	if f.err != nil {
		delivered = f.ended
	}
	if r.slot >= 0 && r.at.next >= f.matched && r.at.next <= delivered.next {
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
		f.bytes -= len(f.items[n].payload)
		n++
	}
	f.shift(n)
}

func (f *feed[B]) shift(n int) {
	f.items = slices.Delete(f.items, 0, n)
	if len(f.items) == 0 && cap(f.items) > 4 {
		f.items = nil // a feed that was behind once does not pay for it ever after
	}
}
