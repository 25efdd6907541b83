package blocklog

import (
	"container/list"
	"maps"
	"slices"
	"time"
)

const (
	// maxHeldPages is the maximum number of pages in memory that readers have not read to the end. Without a limit,
	// each reader that stops reading would keep a page in memory. With more pages, more readers would wait for
	// turns. With fewer, a few clients with hundreds of readers on each page could keep all of them. For readers that
	// search, the limit is maxHeldSearches.
	maxHeldPages    = 256
	maxHeldSearches = 128

	// holdTime is the minimum time for which a page is kept for its readers before it may be dropped.
	holdTime = time.Second

	// recheckTime is the time after which waiting pages are checked again, because a client may be blocked meanwhile.
	recheckTime = 10 * time.Millisecond
)

// heldPages contains the pages that readers have not read to the end, the oldest first. If there are too many, the log
// drops the oldest page, and its readers read it from the source again when they continue. But the log reads no further
// page before the page to drop has been held for holdTime, or readers have finished other pages. Otherwise, readers
// could drop each other's pages before any of them makes progress. A page whose clients do not accept what is written
// to them is dropped at once: these have made progress, and may never continue.
type heldPages[B any] struct {
	list.List
	limit int // maxHeldPages or maxHeldSearches, except in tests
}

// wait returns the time until one more page may be read. reading is the number of pages that are being read.
func (h *heldPages[B]) wait(reading int) time.Duration {
	drop := h.Len() + reading + 1 - h.limit // number of pages that must be dropped
	wait := time.Duration(0)
	for e := h.Front(); drop > 0; drop-- {
		if e == nil {
			return holdTime
		}
		if p := e.Value.(*page[B]); !p.blocked() {
			wait = time.Until(p.arrived.Add(holdTime))
		}
		e = e.Next()
	}
	return wait
}

// hold keeps a page that the source has returned until its readers have read it. If too many pages are held, it drops
// the oldest one. The caller must hold the log's lock.
func (l *Log[B]) hold(p *page[B]) {
	held := &l.lane(p).held
	p.held, p.arrived = held.PushBack(p), time.Now()
	for r := range p.waiting {
		r.held = p
	}
	if held.Len() > held.limit {
		l.dropPage(held.Front().Value.(*page[B]))
	}
}

// dropPage releases the memory of a held page. The caller must hold the log's lock.
func (l *Log[B]) dropPage(p *page[B]) {
	l.lane(p).held.Remove(p.held)
	p.held, p.stored = nil, stored[B]{} // still counted for its client, which may never call Next again
	for r := range p.waiting {
		if r.awaited == p {
			r.awaited = nil // the reader keeps the heads up to its cursor from its previous page
			continue
		}
		r.group.mu.Lock()
		r.discardSearch()
		r.group.mu.Unlock()
	}
}

// discardSearch discards the unread rest of a reader's page and the result of a search in progress. The reader keeps
// the heads that it knows. The caller must hold the group's lock.
func (r *Reader[B]) discardSearch() {
	r.moved = true
	if c := r.catchUp; c != nil {
		r.catchUp = &stored[B]{heads: c.heads, began: c.began}
	}
}

// headsOf returns the newest block of each shard up to a reader's position. The result contains every shard that had a
// block after the cursor began. If exact is false, it is uncertain, and the blocks up to the position must be read. It
// may also contain blocks after the position, so the caller must call upTo before it uses the result.
//
// For a reader that has read no page, headsOf returns the heads of the log. These are uncertain, because nothing proves
// that the client received the blocks up to the cursor with which the reader joined. The caller must hold the locks of
// the log and of the reader's group.
func (l *Log[B]) headsOf(r *Reader[B]) (heads shardHeads, began string, exact bool) {
	if c := r.catchUp; c != nil && c.heads != nil {
		heads, exact = c.heads.upTo(r.at.cursor)
		return heads, min(c.began, r.at.cursor), exact
	}
	if r.at.cursor > l.view.Load().newest.cursor {
		return nil, r.at.cursor, false
	}
	return l.shareHeads(), min(max(r.from, l.startCursor), r.at.cursor), false
}

// shareHeads returns a copy of the heads of the log, which must not be modified. All pages share it until the heads
// change, because there may be as many pages as readers, and a chain may have many shards. The caller must hold the
// log's lock.
func (l *Log[B]) shareHeads() shardHeads {
	if !maps.EqualFunc(l.shared, l.heads, slices.Equal) {
		l.shared = l.heads.clone()
	}
	return l.shared
}

// combine merges the heads of a reader, which is about to wait for page p, into the heads with which the page is
// checked. Heads are the newest blocks of the shards. It starts from the heads of the reader that began first, because
// they contain the most shards. If another reader has a lower head of a shard, that reader may lack a block that was
// stored too late for it. Then the lower head is used, so that the check finds the gap, which may end all readers of
// the page. The caller must hold the log's lock.
func (l *Log[B]) combine(p *page[B], heads shardHeads, began string, exact bool) {
	if len(p.waiting) == 0 && p.state != pageReading { // during a read, the heads of readers that have left count too
		p.known, p.since, p.exact = heads, began, exact
		return
	}
	if began < p.since {
		heads, p.known, p.since, p.exact = p.known, heads, began, exact
	}
	known, _ := p.known.upTo(p.after)
	others, _ := heads.upTo(p.after)
	if lower, changed := known.lower(others); changed {
		p.known, p.outdated = lower, p.outdated || p.state == pageReading
	}
}

// keepHeads stores heads, the newest block of each shard that the log knows, in the readers of the group that have no
// heads of their own. It is called when the log loses its position and its heads.
func (g *shareGroup[B]) keepHeads(heads *stored[B], newest string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range g.members {
		if r.catchUp == nil && r.at.cursor <= newest {
			r.catchUp = heads
		}
	}
}

// release records that a reader does not need its page any more, and drops the page if no other reader needs it. The
// caller must hold the log's lock.
func (l *Log[B]) release(r *Reader[B]) {
	p := r.held
	if r.held = nil; p == nil {
		return
	}
	if l.leave(p, r); len(p.waiting) == 0 {
		l.readQueued()
	}
}
