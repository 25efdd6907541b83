package blocklog

import "time"

// A pageLane contains pages for one kind of readers: those that find blocks, or those that search, because they have
// found no match in a part of a page (see [Item.Searching]). Readers that search keep their pages for a long time,
// because they wait for their turns. Each kind has a queue, kept pages and half of the calls of its own, so that
// neither waits for the pages of the other.
type pageLane[B any] struct {
	queue   pageQueue[B] // pages that wait to be read
	held    heldPages[B] // pages that have been read but that readers may not have finished
	reading int          // number of pages that are being read
	calls   int          // maximum number of pages that are read concurrently
}

// searchCalls is pageLane.calls for readers that search. These come first, but leave half of the calls to the others.
const searchCalls = pageCalls / 2

// wait returns the time until one more page may be read.
func (a *pageLane[B]) wait() time.Duration { return a.held.wait(a.reading) }

// lane returns the lane of a page.
func (l *Log[B]) lane(p *page[B]) *pageLane[B] {
	if p.searching {
		return &l.searches
	}
	return &l.deliveries
}

// nextLane returns the lane of the page that must be read next, or nil if none may be read now.
func (l *Log[B]) nextLane() *pageLane[B] {
	for _, a := range []*pageLane[B]{&l.searches, &l.deliveries} {
		if a.queue.Len() == 0 || a.reading >= a.calls || l.ctx.Err() != nil {
			continue
		}
		wait := a.wait()
		if wait <= 0 {
			return a
		}
		l.readLater(wait)
	}
	return nil
}

// addReader makes a reader wait for a page. searching reports whether the reader searches.
func (l *Log[B]) addReader(p *page[B], r *Reader[B], searching bool) {
	p.waiting[r], r.awaited = searching, p
	l.lane(p).queue.lower(p, r.client.requested())
	if !searching {
		p.finding++
		l.setSearching(p, false)
	}
}

// setSearching moves a page that is not held to the lane of readers that search, or to the other one.
func (l *Log[B]) setSearching(p *page[B], searching bool) {
	if p.searching == searching {
		return
	}
	if c := l.clients[p.client]; c != nil && p.state != pageWaiting {
		c.count(p, -1)
		defer c.count(p, 1)
	}
	from := l.lane(p)
	p.searching = searching
	to := l.lane(p)
	switch {
	case p.state == pageReading:
		from.reading--
		to.reading++
	case p.queued != nil:
		from.queue.remove(p)
		to.queue.push(p, l.isFuture(p.after))
	}
	l.readQueued()
}

// searchOn records that a reader has found nothing in a part of its page. If none of the page's readers finds anything,
// the page moves to the lane of readers that search. If that has no room, the page is dropped.
func (l *Log[B]) searchOn(r *Reader[B]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := r.held
	if p == nil || p.held == nil || p.searching {
		return
	}
	if !p.waiting[r] {
		p.waiting[r] = true
		p.finding--
	}
	if p.finding > 0 {
		return
	}
	room := l.searches.wait() <= 0
	if room {
		l.deliveries.held.Remove(p.held)
	} else {
		l.dropPage(p)
	}
	if l.setSearching(p, true); room {
		l.hold(p)
	}
}
