package blocklog

import (
	"errors"
	"time"
)

// Item is one block as a Reader's eval has made it.
type Item struct {
	Cursor  string
	Payload []byte // shared with other readers: not to be changed; nil in the zero Item

	// Arrived is when the block came in here, zero where it was read from the source's stored blocks instead.
	Arrived time.Time

	// Origin is where it was read.
	Origin Origin

	// Mark belongs to Cursor, as [Reader.Mark] would return it.
	Mark Mark
}

// Origin is where a Reader found an [Item].
type Origin uint8

// The Origins.
const (
	OriginLive   Origin = iota // handed round as it came
	OriginWindow               // from the Log's window, by a reader that was slower
	OriginSource               // from a page of the source
)

// Reader is a position in a [Log]. Next is for one goroutine at a time; Cursor and Close may be called at any time.
type Reader[B any] struct {
	log  *Log[B]
	feed *feed[B]
	wake func()

	// The feed's lock guards these.
	at     mark   // everything it matches before this mark has been read; its number is behind for one that is
	since  uint64 // items before this number do not count it: it came to its place when they had been put
	start  string // where one began that came without a cursor: it is owed nothing that is not past this
	handed string // the cursor of the last item, or the one it came with
	slot   int32  // its place in feed.members, -1 when closed; changes under the log's lock too
	fresh  bool   // it came without a cursor
	turned bool   // it was put elsewhere: what it was searching, or has stored, does not count any more
	lost   error  // why it has ended, at its cursor: ErrGap or ErrNoPosition; nil while it has not
	told   uint32 // the number of the newest gap when its client was last sent back; 0 if it never was
	known  uint32 // the highest number of the gaps that stay because of which its client was sent back

	sentBack string // the cursor that it came with, if its client was sent back to there

	from string // where its catch-up began; only Next uses it

	// The log's lock guards these.
	asked *page[B] // what it waits for
	holds *page[B] // what it waited for, and may not have read to the end

	// catchUp is what it has still to read of its page. Only Next reads it; the feed's lock guards the pointer.
	catchUp *stored[B]
}

// Next returns the next block that matches, the zero Item (its Payload nil) when there is none yet: wake will tell.
// It does not wait for the source, but may evaluate as many blocks as the window holds when the Reader is slow. Any
// error is the Reader's end: [*Lost] or [ErrClosed]; it has still to be closed.
func (r *Reader[B]) Next() (Item, error) {
	f := r.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		if r.turned {
			r.turned, r.catchUp = false, nil
		}
		at, since := r.at, max(r.since, f.since)
		switch {
		case r.slot < 0:
			return Item{}, ErrClosed
		case r.lost != nil:
			return Item{}, &Lost{Cursor: at.cursor, Err: r.lost}
		case r.log.ctx.Err() != nil:
			return Item{}, ErrClosed
		case at.next >= f.matched && f.err != nil:
			return Item{}, &Lost{Cursor: f.reached(r, f.ended).cursor, Err: f.err}
		case at.next == behind && (r.catchUp == nil || len(r.catchUp.entries) == 0):
			f.mu.Unlock()
			more, err := r.log.seek(r)
			f.mu.Lock()
			if !more {
				return Item{}, err
			}
			continue
		case at.next == behind: // and has something to read
		case at.next >= f.matched:
			return Item{}, nil
		case at.next >= since:
			item := f.take(r)
			item.Mark = r.mark(item.Cursor)
			return item, nil
		}
		catchUp := r.catchUp
		f.mu.Unlock()
		item, at, err := r.search(catchUp, at, since)
		f.mu.Lock()
		if r.slot < 0 || r.turned {
			continue
		}
		f.move(r, at)
		if lost := (*Lost)(nil); errors.As(err, &lost) && lost.Err == ErrGap {
			r.sendBack(lost.Cursor, lost.number)
			continue
		}
		if item.Payload != nil {
			r.handed = item.Cursor
			item.Mark = r.mark(item.Cursor)
		}
		if item.Payload != nil || err != nil {
			return item, err
		}
		if r.wake != nil && (r.at.next != behind || r.catchUp != nil && len(r.catchUp.entries) > 0) {
			f.mu.Unlock()
			r.wake() // others have their turn
			f.mu.Lock()
			return Item{}, nil
		}
	}
}

// atOnce is how many blocks Next evaluates at most.
const atOnce = 64

// search finds the first match from a mark on among the blocks that a reader has to evaluate by itself. It returns
// the mark it came to.
func (r *Reader[B]) search(catchUp *stored[B], at mark, since uint64) (Item, mark, error) {
	if at.next == behind {
		return r.readOn(catchUp, at)
	}
	return r.reread(at, since)
}

// reread searches the window's blocks before number end, whose matches the feed does not keep for this reader. One
// that finds its next block gone from the window is behind.
func (r *Reader[B]) reread(at mark, end uint64) (Item, mark, error) {
	v := r.log.view.Load()
	if at.next < v.base.next {
		return Item{}, mark{behind, at.cursor}, nil
	}
	end = min(end, at.next+atOnce)
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

// evaluate makes a panic the end of a reader that has come to a mark.
func (r *Reader[B]) evaluate(e entry[B], at mark) ([]byte, error) {
	payload, err := r.feed.evaluate(e.block)
	if err != nil {
		r.log.logPanic("evaluation of a block panicked", err, e.cursor)
		return nil, &Lost{Cursor: at.cursor, Err: err}
	}
	return payload, nil
}

// Cursor returns the position reached: the Reader has had everything it matches up to it, and nothing from behind
// it. It moves on with blocks that do not match, too, and stays what it was when the Reader ended; one that ends with
// ErrGap it takes back to before the missing block. It is "" where the chain was empty, and until the source has told
// its newest block to a Reader that starts there.
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

// Mark returns the Mark that belongs to the Reader's cursor.
func (r *Reader[B]) Mark(cursor string) Mark {
	r.feed.mu.Lock()
	defer r.feed.mu.Unlock()
	return r.mark(cursor)
}

// Close ends the Reader: Next returns ErrClosed. The Log goes on without it. Closing twice is harmless.
func (r *Reader[B]) Close() {
	l := r.log
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forsake(r)
	left, was := r.feed.drop(r, l.delivered)
	if was {
		l.stats.Readers--
	}
	if left == 0 {
		l.remove(r.feed)
	}
}
