package blocklog

import (
	"errors"
	"time"

	"github.com/chaingql/chaingql/internal/xsync"
)

// An Item is the result of the evaluation of one block for a Reader.
type Item struct {
	// Cursor is the cursor of the block.
	Cursor string

	// Payload is the result of Eval. Readers share it, so do not change it. It is nil in the zero Item.
	Payload []byte

	// Arrived is the time at which the Log received the block. It is zero if the block was read from the source's
	// stored blocks.
	Arrived time.Time

	// Origin is the place from which the Reader got the block.
	Origin Origin

	// Reported belongs to Cursor: a client that resumes from Cursor passes both in its [Interest].
	Reported ReportedGaps

	// Last reports whether the Reader had no further block when it returned this one. If so, Next need not be called
	// again before Wake is called.
	Last bool

	// Searching reports, without a Payload, that the Reader has not reached the newest block yet and that it searches:
	// the evaluation of SearchBlocks blocks within a page found no match, and no match was found since. A caller may
	// let other Readers go first.
	Searching bool

	// Behind reports that the next call of Next evaluates blocks that the Log has passed to others before, if their
	// page has arrived.
	Behind bool
}

// An Origin is a place from which a Reader gets the block of an [Item].
type Origin uint8

const (
	// OriginLive means that the block was evaluated when it arrived, once for all Readers with the same key.
	OriginLive Origin = iota

	// OriginWindow means that the Reader was slower than the stream and evaluated the block in the Log's window.
	OriginWindow

	// OriginSource means that the Reader was catching up and the block was read from the source in a page.
	OriginSource
)

// A Reader is a position in a [Log]. Calls of Next must not be concurrent; all other methods may be called at any time.
type Reader[B any] struct {
	group *shareGroup[B]
	wake  xsync.Waker

	client *Client // Interest.Client

	// The group's lock guards these fields. Those that each block needs come first, so that few cache lines are loaded.
	at                position // the reader has read every match before it; at.next is catchingUp if it is not live
	since             uint64   // the group keeps for the reader only the matches from this number on
	lost              error    // ErrGap or ErrNoPosition if it ended the reader at its cursor; otherwise nil
	lastReturned      string   // cursor of the last item; before the first one, the cursor with which the reader joined
	slot              int32    // index in group.members, -1 when closed; changes only while the log's lock is held too
	reportedGap       uint32   // number of the newest gap when the client was last sent back; 0 if it never was
	reportedPermanent uint32   // newest permanent gap from before which the client had to resume
	moved             bool     // the reader was moved during a search, whose result must be discarded
	postponed         bool     // it was woken for blocks that its group postponed, and Next was not called since
	foundNothing      bool     // a search within a page found no match, and there was none since
	fresh             bool     // the reader joined without a cursor
	sentBack          bool     // the client was sent back to the cursor with which the reader joined
	start             string   // "" unless the reader joined without a cursor: it receives no block up to this one

	from string // where the reader began; it may not know the newest block of a shard without a later block

	// The log's lock guards these fields.
	awaited *page[B] // the page that the reader waits for
	held    *page[B] // the page that the reader received and may not have finished

	// catchUp is the unread rest of the reader's page. The group's lock guards the pointer; only Next changes the
	// entries and gaps that it points to.
	catchUp *stored[B]
}

// Next returns the next matching block. If there is none yet, it returns an Item without a Payload, and Wake is called
// when there may be one. Next does not wait for the source. A slow Reader evaluates blocks itself, at most
// Interest.SearchBlocks at a time: if none of them matches, Next calls Wake and returns an Item without a Payload.
// Without a Wake function, it evaluates the next ones.
//
// An error of Next is a [*Lost] or [ErrClosed]. It ends the Reader, which must still be closed.
func (r *Reader[B]) Next() (Item, error) {
	g := r.group
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		g.advance()
		at, since := r.at, max(r.since, g.since)
		switch {
		case r.slot < 0:
			return Item{}, ErrClosed
		case r.lost != nil:
			return Item{}, &Lost{Cursor: at.cursor, Err: r.lost}
		case g.log.ctx.Err() != nil:
			return Item{}, ErrClosed
		case at.next >= g.matched && g.err != nil:
			return Item{}, &Lost{Cursor: g.reached(r, g.ended).cursor, Err: g.err}
		case at.next == catchingUp && (r.catchUp == nil || len(r.catchUp.entries) == 0):
			r.moved = false
			g.mu.Unlock()
			more, err := g.log.seek(r)
			g.mu.Lock()
			if !more {
				return Item{Searching: err == nil && r.foundNothing, Behind: err == nil}, err
			}
			continue
		case at.next == catchingUp: // the reader's page has unread blocks
		case at.next >= g.matched:
			return Item{}, nil
		case at.next >= since:
			item := g.take(r)
			item.Reported = r.reportedGaps(item.Cursor)
			item.Last = r.at.next >= g.matched
			return item, nil
		case r.postponed: // the caller may serve others first
			r.postponed = false
			g.mu.Unlock()
			r.wake.Wake()
			g.mu.Lock()
			return Item{Searching: true, Behind: true}, nil
		}
		catchUp := r.catchUp
		r.moved = false
		g.mu.Unlock()
		ofPage := at.next == catchingUp
		item, at, err := r.search(catchUp, at, since)
		g.mu.Lock()
		if r.slot < 0 || r.moved {
			continue
		}
		g.move(r, at)
		unread := r.catchUp != nil && len(r.catchUp.entries) > 0
		if item.Payload != nil || unread { // the end of a page may be a few blocks after a match
			r.foundNothing = item.Payload == nil
		}
		if lost := (*Lost)(nil); errors.As(err, &lost) && lost.Err == ErrGap {
			r.endWithGap(lost.Cursor, lost.number)
			continue
		}
		if item.Payload != nil {
			r.lastReturned = item.Cursor
			item.Reported = r.reportedGaps(item.Cursor)
			item.Behind = r.at.next == catchingUp || r.at.next < max(r.since, g.since)
		}
		if item.Payload != nil || err != nil {
			return item, err
		}
		if r.wake != nil && (r.at.next != catchingUp || unread) {
			g.mu.Unlock()
			if ofPage {
				g.log.searchOn(r)
			}
			r.wake.Wake() // the caller may serve other readers before it calls Next again
			g.mu.Lock()
			return Item{Searching: true, Behind: true}, nil
		}
	}
}

// maxSearchBlocks is the maximum number of blocks that one search evaluates.
const maxSearchBlocks = 64

// search finds the first match at or after the position at, among the blocks that the reader must evaluate itself. It
// also returns the position that it reached.
func (r *Reader[B]) search(catchUp *stored[B], at position, since uint64) (Item, position, error) {
	if at.next == catchingUp {
		return r.readOn(catchUp, at)
	}
	return r.reread(at, since)
}

// reread searches for a match in the window, from the position at up to, but not including, block number end. The group
// does not keep the matches of these blocks for the reader. If the reader's next block has left the window, reread
// returns a position with which the reader catches up.
func (r *Reader[B]) reread(at position, end uint64) (Item, position, error) {
	v := r.group.log.view.Load()
	if at.next < v.base.next {
		return Item{}, position{catchingUp, at.cursor}, nil
	}
	end = min(end, at.next+uint64(r.group.search))
	for i := at.next - v.base.next; at.next < end; i++ {
		e := entry[B]{v.blocks[i], v.stamps[i].cursor}
		payload, err := r.evaluate(e, at)
		if err != nil {
			return Item{}, at, err
		}
		at = position{at.next + 1, e.cursor}
		if payload != nil {
			return Item{Cursor: e.cursor, Payload: payload, Arrived: v.stamps[i].arrived, Origin: OriginWindow}, at, nil
		}
	}
	return Item{}, at, nil
}

// evaluate returns the payload of a block. If Eval panics, it returns a Lost that ends the reader at the position.
func (r *Reader[B]) evaluate(e entry[B], at position) ([]byte, error) {
	payload, err := r.group.evaluate(e.block)
	if err != nil {
		r.group.log.logPanic("block evaluation panicked; its subscriptions end", err, e.cursor)
		return nil, &Lost{Cursor: at.cursor, Err: err}
	}
	return payload, nil
}

// appendWake appends the reader's wake function to wakes, if it has one.
func (r *Reader[B]) appendWake(wakes []xsync.Waker) []xsync.Waker {
	if r.wake == nil {
		return wakes
	}
	return append(wakes, r.wake)
}

// Cursor returns the Reader's position: the Reader has received every matching block up to it and none after it. The
// position also advances with blocks that do not match. After the Reader has ended, the position does not change,
// except that ErrGap moves it back to before the missing block. Cursor returns "" if the Reader has received no block
// of a chain that was empty when the Reader joined. For a Reader that joined without a cursor, it returns "" until the
// source has returned its newest block.
func (r *Reader[B]) Cursor() string {
	// Read l.delivered first: the group then contains every match up to that position when its lock is acquired.
	r.group.log.mu.Lock()
	delivered := r.group.log.delivered
	r.group.log.mu.Unlock()
	g := r.group
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.reached(r, delivered).cursor
}

// LastReturned returns the cursor of the last block that Next has returned, if it has returned one.
func (r *Reader[B]) LastReturned() string {
	r.group.mu.Lock()
	defer r.group.mu.Unlock()
	return r.lastReturned
}

// Close ends the Reader: Next returns ErrClosed. The Log continues for other Readers. Further calls of Close have no
// effect.
func (r *Reader[B]) Close() {
	l := r.group.log
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
