package blocklog

import (
	"errors"
	"time"
)

// An Item is one block, as evaluated by the Eval of a Reader.
type Item struct {
	Cursor  string
	Payload []byte // shared with other readers: do not change it; nil in the zero Item

	// Arrived is the time at which the Log received the block. It is zero if the block was read from the source's
	// stored blocks.
	Arrived time.Time

	// Origin is the place from which the block was read.
	Origin Origin

	// Mark is the Mark of Cursor, as [Reader.Mark] would return it.
	Mark Mark
}

// Origin is the place from which a Reader read an [Item].
type Origin uint8

// The Origins.
const (
	OriginLive   Origin = iota // delivered when it arrived
	OriginWindow               // from the Log's window, for a slower Reader
	OriginSource               // from a page of the source
)

// A Reader is a position in a [Log]. Next must be called by one goroutine at a time; all other methods may be called at
// any time.
type Reader[B any] struct {
	log   *Log[B]
	group *shareGroup[B]
	wake  func()

	// The group's lock guards these fields.
	at              mark   // it has read every match before this mark; at.next is catchingUp if it is not live
	since           uint64 // items before this number do not count it: they were added before it became live
	start           string // for a reader that came without a cursor: it receives no block up to this one
	lastReturned    string // the cursor of the last item, or the cursor with which it joined
	slot            int32  // index in group.members, -1 when closed; changes also under the log's lock
	fresh           bool   // it joined without a cursor
	moved           bool   // it was moved: the result of the search in progress does not count
	lost            error  // why it ended at its cursor: ErrGap or ErrNoPosition; nil if it has not
	reportedGap     uint32 // number of the newest gap when its client was last sent back; 0 if it never was
	reportedLasting uint32 // highest number of the lasting gaps for which its client was sent back

	sentBack string // the cursor with which it joined, if its client was sent back to that cursor

	from string // the cursor at which it began: it knows no heads of shards without a block since

	// The log's lock guards these fields.
	awaited *page[B] // the page for which it waits
	held    *page[B] // the page for which it waited, and which it may not have finished

	// catchUp is the unread rest of its page. Only Next reads it; the group's lock guards the pointer.
	catchUp *stored[B]
}

// Next returns the next matching block. If there is none yet, it returns the zero Item (its Payload is nil), and Wake
// is called when there may be one. Next does not wait for the source, but may evaluate as many blocks as the window
// holds if the Reader is slow. Any error, a [*Lost] or [ErrClosed], ends the Reader, which must still be closed.
func (r *Reader[B]) Next() (Item, error) {
	g := r.group
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		r.moved = false
		at, since := r.at, max(r.since, g.since)
		switch {
		case r.slot < 0:
			return Item{}, ErrClosed
		case r.lost != nil:
			return Item{}, &Lost{Cursor: at.cursor, Err: r.lost}
		case r.log.ctx.Err() != nil:
			return Item{}, ErrClosed
		case at.next >= g.matched && g.err != nil:
			return Item{}, &Lost{Cursor: g.reached(r, g.ended).cursor, Err: g.err}
		case at.next == catchingUp && (r.catchUp == nil || len(r.catchUp.entries) == 0):
			g.mu.Unlock()
			more, err := r.log.seek(r)
			g.mu.Lock()
			if !more {
				return Item{}, err
			}
			continue
		case at.next == catchingUp: // its page has unread blocks
		case at.next >= g.matched:
			return Item{}, nil
		case at.next >= since:
			item := g.take(r)
			item.Mark = r.mark(item.Cursor)
			return item, nil
		}
		catchUp := r.catchUp
		g.mu.Unlock()
		item, at, err := r.search(catchUp, at, since)
		g.mu.Lock()
		if r.slot < 0 || r.moved {
			continue
		}
		g.move(r, at)
		if lost := (*Lost)(nil); errors.As(err, &lost) && lost.Err == ErrGap {
			r.endWithGap(lost.Cursor, lost.number)
			continue
		}
		if item.Payload != nil {
			r.lastReturned = item.Cursor
			item.Mark = r.mark(item.Cursor)
		}
		if item.Payload != nil || err != nil {
			return item, err
		}
		if r.wake != nil && (r.at.next != catchingUp || r.catchUp != nil && len(r.catchUp.entries) > 0) {
			g.mu.Unlock()
			r.wake() // lets other readers run before it continues
			g.mu.Lock()
			return Item{}, nil
		}
	}
}

// searchBlocks is the maximum number of blocks that one search evaluates.
const searchBlocks = 64

// search finds the first match at or after a mark among the blocks that a reader must evaluate itself. It returns the
// mark that it reached.
func (r *Reader[B]) search(catchUp *stored[B], at mark, since uint64) (Item, mark, error) {
	if at.next == catchingUp {
		return r.readOn(catchUp, at)
	}
	return r.reread(at, since)
}

// reread searches the window's blocks before number end, whose matches the group does not keep for this reader. If the
// reader's next block has left the window, the reader falls behind.
func (r *Reader[B]) reread(at mark, end uint64) (Item, mark, error) {
	v := r.log.view.Load()
	if at.next < v.base.next {
		return Item{}, mark{catchingUp, at.cursor}, nil
	}
	end = min(end, at.next+searchBlocks)
	for i := at.next - v.base.next; at.next < end; i++ {
		e := entry[B]{v.blocks[i], v.stamps[i].cursor}
		payload, err := r.evaluate(e, at)
		if err != nil {
			return Item{}, at, err
		}
		at = mark{at.next + 1, e.cursor}
		if payload != nil {
			return Item{Cursor: e.cursor, Payload: payload, Arrived: v.stamps[i].arrived, Origin: OriginWindow}, at, nil
		}
	}
	return Item{}, at, nil
}

// evaluate returns the payload of a block. A panic of Eval ends the reader at the mark.
func (r *Reader[B]) evaluate(e entry[B], at mark) ([]byte, error) {
	payload, err := r.group.evaluate(e.block)
	if err != nil {
		r.log.logPanic("evaluation of a block panicked", err, e.cursor)
		return nil, &Lost{Cursor: at.cursor, Err: err}
	}
	return payload, nil
}

// Cursor returns the position reached: the Reader has received every matching block up to it and none after it. It also
// advances with blocks that do not match. It does not change after the Reader has ended, except that ErrGap moves it
// back to before the missing block. It is "" if the chain was empty, and for a Reader that starts at the newest block
// until the source has returned that block.
func (r *Reader[B]) Cursor() string {
	// Read this first: everything delivered until now is then in the group below.
	r.log.mu.Lock()
	delivered := r.log.delivered
	r.log.mu.Unlock()
	g := r.group
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.reached(r, delivered).cursor
}

// Mark returns the Mark of a cursor of the Reader.
func (r *Reader[B]) Mark(cursor string) Mark {
	r.group.mu.Lock()
	defer r.group.mu.Unlock()
	return r.mark(cursor)
}

// Close ends the Reader: Next returns ErrClosed. The Log continues. Closing it again has no effect.
func (r *Reader[B]) Close() {
	l := r.log
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cancelWait(r)
	left, was := r.group.drop(r, l.delivered)
	if was {
		l.stats.Readers--
	}
	if left == 0 {
		l.remove(r.group)
	}
}
