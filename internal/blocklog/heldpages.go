package blocklog

import (
	"container/list"
	"time"
)

const (
	// maxHeldPages is the maximum number of pages that readers have not read to the end. Without a limit, readers that
	// stop reading would keep a page each.
	maxHeldPages = 1024

	// holdTime is the time for which a page is kept for its readers before it may be dropped.
	holdTime = time.Second
)

// heldPages contains the pages that readers have not read to the end, the oldest first. If there are too many, the
// oldest is dropped, and its readers read it from the source again when they continue. But no page is read until the
// page to drop has been held for holdTime, or readers have finished others. Otherwise readers could drop each other's
// pages before any of them makes progress.
type heldPages[B any] struct {
	list.List
	limit int // maxHeldPages, except in tests
}

// wait returns the time until one more page may be read in addition to those that are being read.
func (h *heldPages[B]) wait(reading int) time.Duration {
	drop := h.Len() + reading + 1 - h.limit // number of pages that must be dropped
	if drop <= 0 {
		return 0
	}
	last := h.Front()
	for ; drop > 1 && last != nil; drop-- {
		last = last.Next()
	}
	if last == nil {
		return holdTime
	}
	return time.Until(last.Value.(*page[B]).arrived.Add(holdTime))
}

// hold counts a page that has been read, for the readers that waited for it. Called with the log's lock held.
func (l *Log[B]) hold(p *page[B]) {
	p.held, p.arrived = l.held.PushBack(p), time.Now()
	for r := range p.waiting {
		r.held = p
	}
	if l.held.Len() <= l.held.limit {
		return
	}
	oldest := l.held.Remove(l.held.Front()).(*page[B])
	oldest.held = nil
	for r := range oldest.waiting {
		if r.held = nil; r.awaited == oldest {
			r.awaited = nil // it keeps the heads up to its cursor from its previous page
			continue
		}
		r.group.mu.Lock()
		r.discardSearch()
		r.group.mu.Unlock()
	}
}

// discardSearch discards the unread rest of a reader's page, and the result of a search in progress. The heads that the
// reader knows stay. Called with the group's lock held.
func (r *Reader[B]) discardSearch() {
	r.moved = true
	if c := r.catchUp; c != nil {
		r.catchUp = &stored[B]{heads: c.heads, began: c.began}
	}
}

// headsOf returns the newest block of each shard up to a reader's position, and the cursor from which on these are
// complete. A reader that has read no page has passed the same blocks as the log, or may have: the cursor with which it
// joined is unproven. Called with both locks held.
func (l *Log[B]) headsOf(r *Reader[B]) (heads shardHeads, began string, exact bool) {
	if c := r.catchUp; c != nil && c.heads != nil {
		heads, exact = c.heads.upTo(r.at.cursor)
		return heads, min(c.began, r.at.cursor), exact
	}
	if r.at.cursor > l.view.Load().newest.cursor {
		return nil, r.at.cursor, false
	}
	heads, shared := l.heads.upTo(r.at.cursor)
	if shared { // the following goroutine changes l.heads, and a page is checked without the lock
		heads = heads.clone()
	}
	return heads, min(max(r.from, l.startCursor), r.at.cursor), false
}

// combine lets a page be checked also with the heads of a reader that is about to wait for it. The reader that began
// first knows the most heads. Another reader may have passed a missing block's place before that block was stored: then
// its lower heads count, and all of the readers may end because of the gap. Called with both locks held.
func (l *Log[B]) combine(p *page[B], r *Reader[B]) {
	heads, began, exact := l.headsOf(r)
	if len(p.waiting) == 0 && p.state != pageReading { // otherwise a reader that has left may know more heads
		p.known, p.since, p.exact = heads, began, exact
		return
	}
	others := heads
	if began < p.since {
		others = p.known
		p.known, p.since, p.exact = heads, began, exact
	}
	lower, changed := p.known.lower(others)
	if p.known = lower; changed && p.state == pageReading {
		p.outdated = true
	}
}

// keepHeads gives the heads of the log to the members, when the log loses its position and its heads.
func (g *shareGroup[B]) keepHeads(heads *stored[B], newest string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range g.members {
		if r.catchUp == nil && r.at.cursor <= newest {
			r.catchUp = heads
		}
	}
}

// release ends a reader's use of its page. Called with the log's lock held.
func (l *Log[B]) release(r *Reader[B]) {
	p := r.held
	if r.held = nil; p == nil {
		return
	}
	if delete(p.waiting, r); len(p.waiting) == 0 {
		l.held.Remove(p.held)
		l.readQueued()
	}
}
