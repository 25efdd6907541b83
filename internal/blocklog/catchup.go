package blocklog

import (
	"container/list"
	"math"
	"slices"
	"time"
)

// A Reader is either live or catching up. A live Reader has a position in the window, which holds the newest blocks. A
// Reader that is catching up has only a cursor: it reads pages of stored blocks from the source until its cursor is in
// the window.
const (
	// catchingUp is the value of position.next for a reader that is catching up. It is higher than all block numbers,
	// so a group that delivers a block skips the reader.
	catchingUp = math.MaxUint64

	pageBlocks = 100 // maximum number of blocks in a page
	pageCalls  = 16  // maximum number of pages that are read concurrently
)

// A page contains the stored blocks after a cursor. It is read once for all readers at that cursor, which first wait
// for it and then read it. The log's lock guards a page, but the contents of stored do not change after the read.
type page[B any] struct {
	after     string  // the cursor after which the page begins
	client    *Client // the client for which the page is counted or waits, or nil
	state     pageState
	waiting   map[*Reader[B]]bool // readers that wait for the page or have not finished it, and whether they search
	finding   int                 // number of those that do not search
	own       int                 // number of those that belong to client
	searching bool                // the page is in log.searches, because it was requested by a reader that searches
	requested int                 // the lowest Client.requested of those whose readers have waited for the page
	attempt   int                 // number of reads after which the page had to be read again
	timer     *time.Timer         // set in pageDelayed
	queued    *list.Element       // the page's element in pageLane.queue, or nil
	held      *list.Element       // the page's element in pageLane.held, or nil
	arrived   time.Time           // when the source returned the page

	inFewest, inFuture int // the page's indexes in pageQueue.fewest and log.future, plus 1; 0 if not queued there

	known shardHeads // upTo the cursor, the newest block of each shard, as far as the waiting readers know
	since string     // known contains every shard that had a block after this cursor
	exact bool       // known is certain, so the blocks up to the cursor need not be read

	outdated bool // a missing block was found or known changed during the read, so the page must be read again
	stored[B]
	err error // set if the source does not have the blocks after the cursor any more
}

// stored is the result of reading a page.
type stored[B any] struct {
	entries []entry[B]
	heads   shardHeads // the newest block of each shard up to the last entry
	began   string     // heads contains every shard that had a block after this cursor
	gaps    []pageGap  // gaps before and between the entries, sorted by pageGap.before
}

// A pageState is the phase of a page.
type pageState int

const (
	pageQueued  pageState = iota // the page is in pageLane.queue
	pageWaiting                  // the page is in clientPages.waiting, but not in log.pages
	pageReading                  // the page is being read from the source
	pageDelayed                  // the last read failed or returned no blocks or a gap; the page is read again later
	pageParked                   // the source has no blocks after the cursor, and the log has not reached the cursor
	pageDone                     // entries or err is set, or no reader waits any more; the page is not in log.pages
)

// readOn searches c, the unread rest of the reader's page, for the next block that matches.
func (r *Reader[B]) readOn(c *stored[B], at position) (Item, position, error) {
	for range r.group.search {
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
			c.entries = nil // release the page's memory while the next one is read
		}
		if payload != nil {
			return Item{Cursor: e.cursor, Payload: payload, Origin: OriginSource}, at, nil
		}
	}
	return Item{}, at, nil
}

// seek finds the next blocks for a reader that is catching up and has finished its page. The blocks are in the window
// or in the next page. If they are not available yet, seek returns false, and the reader is woken when it should call
// seek again.
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
		l.addPermanent(s.gaps[i].until)
		r.endWithGap(s.gaps[i].before, l.permanentGaps[s.gaps[i].until].number)
	}
	return true, nil
}

// advance is the part of seek that holds the locks of the log and of the reader's group. s contains the gaps found
// between the reader's pages and the window. It is nil if the reader's cursor is not in the window yet or no check is
// needed.
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
		// The reader started when the chain was empty, and the first blocks of the chain have been pruned since. The
		// source cannot report that, because a call with the cursor "" asks for the oldest stored blocks.
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
	default:
		l.readParked(p)
	}
	return false, nil
}

// covers reports whether a reader can continue in the window from a cursor. If no block in the window has the cursor,
// it may be from another chain. Then covers returns true only if asked is true: the source was called for the blocks
// after the cursor and did not reject it.
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
// The reader evaluates the blocks before number group.matched itself. It receives the matches from that number on from
// the group, which has not delivered any of them yet. The number is not simply that after the newest block, because the
// newest block may not have been delivered to the group yet, or was delivered before the group existed. The caller must
// hold the locks of the log and of the group, so that neither changes meanwhile.
func (l *Log[B]) goLive(r *Reader[B]) {
	v := l.view.Load()
	r.at.next = v.base.next + uint64(v.from(r.at.cursor))
	r.since, r.catchUp, r.foundNothing = r.group.matched, nil, false
	l.catchingUp.Add(-1)
	l.stats.CaughtUp++
}

// requestPage makes a reader wait for the page after its cursor. If there is no such page yet, it queues one.
func (l *Log[B]) requestPage(r *Reader[B]) {
	l.release(r)
	p := l.find(r.at.cursor, r.client)
	found := p != nil
	if !found {
		p = &page[B]{after: r.at.cursor, client: r.client, searching: r.foundNothing, requested: r.client.requested()}
		p.waiting = make(map[*Reader[B]]bool)
		l.add(p)
	}
	l.readParked(p)
	heads, began, exact := l.headsOf(r)
	l.combine(p, heads, began, exact)
	l.addReader(p, r, r.foundNothing)
	if r.client == p.client {
		p.own++
	}
	if !found || r.client != p.client { // otherwise it has counted for the client already
		r.client.requestsPage()
	}
}

// readParked queues a page again if the newest block has passed its cursor.
func (l *Log[B]) readParked(p *page[B]) {
	if p.state == pageParked && !l.isFuture(p.after) {
		l.enqueue(p)
	}
}

// cancelWait ends a reader's wait for a page. If no other reader waits for the page, the page is not read. But a read
// that has begun continues, because other readers may still request the page before the read ends.
func (l *Log[B]) cancelWait(r *Reader[B]) {
	l.release(r)
	p := r.awaited
	if r.awaited = nil; p == nil {
		return
	}
	if l.leave(p, r); len(p.waiting) > 0 || p.state == pageReading || p.state == pageDone {
		return
	}
	if p.queued != nil {
		l.lane(p).queue.remove(p)
	}
	l.stopDelay(p)
	l.finish(p)
}

// finish marks a page as done, so that readers no longer find it.
func (l *Log[B]) finish(p *page[B]) {
	if p.state != pageWaiting {
		delete(l.pages, p.after)
	}
	l.future.remove(p)
	if p.err != nil { // its readers end
		l.uncount(p)
	}
	p.state = pageDone
}
