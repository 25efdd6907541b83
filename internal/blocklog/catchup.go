package blocklog

import (
	"container/list"
	"math"
	"slices"
	"time"
)

// A Reader is live, at a mark of the log, or it is catching up: then it has only a cursor, and reads pages from the
// source until the cursor is in the window.
const (
	catchingUp = math.MaxUint64 // number in the mark of such a reader: after every block, so groups skip it
	pageBlocks = 100            // number of blocks per page
	pageCalls  = 16             // maximum number of pages that are read at once
)

// A page is one read of stored blocks for all readers that wait at its cursor, and then read it. The log's lock guards
// it, except that the contents of stored do not change after the read.
type page[B any] struct {
	after   string
	state   pageState
	waiting map[*Reader[B]]struct{}
	attempt int
	timer   *time.Timer   // set in pageDelayed
	queued  *list.Element // element of log.queue, if it is there
	held    *list.Element // element of log.held, if it is there
	arrived time.Time     // when the source returned it

	inRecent, inFuture int // indexes in log.queue.recent and log.future, plus 1; 0 if it is not there

	known shardHeads // the newest block of each shard up to the cursor, as far as the waiting readers know
	since string     // the position from which known has the head of every shard
	exact bool       // the blocks up to the cursor need not be read

	outdated bool // a block was found missing, or known changed, during the read: read again
	stored[B]
	err error // the source does not have the blocks after the cursor any more
}

// stored is the result of reading a page.
type stored[B any] struct {
	entries []entry[B]
	heads   shardHeads // the newest block of each shard up to the last entry
	began   string     // the position from which heads has the head of every shard
	gaps    []pageGap  // before and between the entries, in order of their beginnings
}

// A pageState is the phase of a page.
type pageState int

const (
	pageQueued  pageState = iota // in log.queue
	pageReading                  // a call of the source runs
	pageDelayed                  // read again after a wait: the source failed or had no blocks yet
	pageParked                   // the source has no blocks, and the log has not reached the cursor yet
	pageDone                     // has entries or err, or no reader waits any more; not in log.pages
)

// readOn searches the unread blocks of the reader's page for the next match.
func (r *Reader[B]) readOn(c *stored[B], at mark) (Item, mark, error) {
	for range searchBlocks {
		if len(c.entries) == 0 {
			break
		}
		e := c.entries[0]
		if g, stop := r.firstGapBefore(c, e.cursor); stop {
			return Item{}, at, &Lost{Cursor: g.before, Err: ErrGap, number: g.number}
		}
		payload, err := r.evaluate(e, at)
		if err != nil {
			return Item{}, at, err
		}
		at.cursor = e.cursor
		if c.entries = c.entries[1:]; len(c.entries) == 0 {
			c.entries = nil // do not keep the page while the next one is read
		}
		if payload != nil {
			return Item{Cursor: e.cursor, Payload: payload, Origin: OriginSource}, at, nil
		}
	}
	return Item{}, at, nil
}

// seek finds the next blocks for a reader that is catching up and has finished its page: in the window, or in the next
// page. If neither is available yet, it returns false, and the reader is woken when it should call seek again.
func (l *Log[B]) seek(r *Reader[B]) (bool, error) {
	s := l.prepareHandover(r)
	more, err := l.advance(r, s)
	if !s.hasGaps() {
		return more, err
	}
	i := slices.IndexFunc(s.gaps, r.concernedBy)
	if i < 0 {
		s.gaps, s.checked = nil, true
		return l.advance(r, s)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r.group.mu.Lock()
	defer r.group.mu.Unlock()
	if r.slot >= 0 && !r.moved && r.lost == nil {
		l.addLasting(s.gaps[i].until)
		r.endWithGap(s.gaps[i].before, l.lastingGaps[s.gaps[i].until].number)
	}
	return true, nil
}

// advance is the part of seek under the locks. s contains the checks for a transition to the window, or is nil.
func (l *Log[B]) advance(r *Reader[B], s *handover[B]) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.group.mu.Lock()
	defer r.group.mu.Unlock()
	p := r.awaited
	switch {
	case r.slot < 0 || l.ctx.Err() != nil:
		return false, ErrClosed
	case r.moved:
		return true, nil
	case p != nil && p.err != nil:
		return false, &Lost{Cursor: p.after, Err: p.err}
	case p != nil && p.state == pageDone && r.fresh && p.after == "" && len(p.entries) > 0 &&
		p.entries[0].cursor > l.first:
		// It started with the empty chain, whose first blocks have been pruned. The source cannot report that: for
		// it, "" means the oldest stored block.
		l.cancelWait(r)
		r.lost, r.reportedGap = ErrGap, l.gaps.Load()
		l.stats.EndedByGap++
		return true, nil
	case p != nil && p.state == pageDone:
		own := p.stored
		r.awaited, r.catchUp = nil, &own
		return true, nil
	case l.covers(r.at.cursor, p != nil && p.state == pageParked) && !l.skipsOpenGap(r):
		if l.checkHandover(s); s.hasGaps() {
			return true, nil
		}
		l.cancelWait(r)
		l.goLive(r)
		l.learn(s)
		return true, nil
	case p == nil:
		l.requestPage(r)
	case p.state == pageParked && !l.isFuture(p.after): // the window has passed the cursor meanwhile
		l.enqueue(p)
	}
	return false, nil
}

// covers reports whether a reader can continue in the window from a cursor. If the cursor is not that of a block in the
// window, it may be of another chain: then it counts only if the source has been asked for the blocks after it.
func (l *Log[B]) covers(cursor string, asked bool) bool {
	v := l.view.Load()
	return l.positioned && v.base.cursor <= cursor && cursor <= v.newest.cursor &&
		(asked || cursor == v.base.cursor || v.has(cursor))
}

func (l *Log[B]) isFuture(cursor string) bool {
	return l.positioned && cursor > l.view.Load().newest.cursor
}

// goLive makes a reader live, at the first block after its cursor.
//
// The group delivers matches to the reader from number group.matched on: nothing from that number on has been delivered
// yet, and this reader will be counted, unless its cursor is after the match. The reader evaluates the blocks before
// that number itself. Neither newest nor delivered is that number: the newest block may not have reached the group yet,
// or never will because the group is younger than the block. Both locks are held, so neither the window nor the group
// changes meanwhile.
func (l *Log[B]) goLive(r *Reader[B]) {
	v := l.view.Load()
	r.at.next = v.base.next + uint64(v.from(r.at.cursor))
	r.since, r.catchUp = r.group.matched, nil
	l.catchingUp.Add(-1)
	l.stats.CaughtUp++
}

// requestPage makes a reader wait for the page after its cursor.
func (l *Log[B]) requestPage(r *Reader[B]) {
	l.release(r)
	p := l.pages[r.at.cursor]
	if p == nil {
		p = &page[B]{after: r.at.cursor, waiting: make(map[*Reader[B]]struct{})}
		l.pages[p.after] = p
		l.addFuture(p)
		l.enqueue(p)
	}
	l.combine(p, r)
	p.waiting[r] = struct{}{}
	r.awaited = p
}

// cancelWait ends the wait of a reader. If no other reader waits for the page, it is not read, unless the read has
// begun: its result is for readers that request it until then.
func (l *Log[B]) cancelWait(r *Reader[B]) {
	l.release(r)
	p := r.awaited
	if r.awaited = nil; p == nil {
		return
	}
	if delete(p.waiting, r); len(p.waiting) > 0 || p.state == pageReading || p.state == pageDone {
		return
	}
	if p.queued != nil {
		l.queue.remove(p)
	}
	l.stopDelay(p)
	l.finish(p)
}

func (l *Log[B]) finish(p *page[B]) {
	p.state = pageDone
	delete(l.pages, p.after)
	l.future.remove(p)
}
