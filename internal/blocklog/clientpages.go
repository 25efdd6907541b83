package blocklog

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/chaingql/chaingql/internal/xsync"
)

// A Client is the connection that one or more Readers serve.
type Client struct {
	// Usage, if not nil, counts the pages that were read for the Readers. Several Clients may share it, and those
	// with the same address should.
	Usage *xsync.Usage

	// Live, if not nil, counts a part of the time that the delivery of new blocks takes. Several Clients may share it,
	// like Usage.
	Live *xsync.Usage

	own     xsync.Usage // instead of Usage
	blocked atomic.Bool
}

// pageTime is the part of a Usage that each page takes. The Usage falls by that in ten seconds, so that it
// distinguishes a new client from thousands of others, each of which receives less than a page per second.
const pageTime = 10 * time.Millisecond

func (c *Client) usage() *xsync.Usage {
	if c.Usage != nil {
		return c.Usage
	}
	return &c.own
}

// requestsPage counts a page. c may be nil.
func (c *Client) requestsPage() {
	if c != nil {
		c.usage().Add(pageTime)
	}
}

// requested returns about how many pages the client has requested lately, which is at most 100. c may be nil.
func (c *Client) requested() int {
	if c == nil {
		return 0
	}
	return int((c.usage().Time() + pageTime/2) / pageTime)
}

// SetBlocked reports whether a write to the client is in progress. Meanwhile, its pages may be dropped at once.
func (c *Client) SetBlocked(blocked bool) { c.blocked.Store(blocked) }

// blocked reports whether none of the page's readers can continue before a write to its client has ended.
func (p *page[B]) blocked() bool {
	for r := range p.waiting {
		if r.client == nil || !r.client.blocked.Load() {
			return false
		}
	}
	return true
}

// maxClientPages is the maximum number of pages that are read or kept for the Readers of one client. Without a limit,
// a client with many Readers that stops reading would fill the queue of pages, and then pageLane.held with pages that
// it never takes. At most maxSearchPages of these are for readers that search: these wait long for their turns,
// and the client's other readers do not wait for them.
const (
	maxClientPages = 4
	maxSearchPages = maxClientPages - 1
)

// clientPages are the pages of one client. The log's lock guards them.
type clientPages[B any] struct {
	counted   int        // pages that are queued, being read or held, or dropped before their readers called Next again
	searching int        // number of those for readers that search
	waiting   []*page[B] // pages in pageWaiting, in the order in which they were requested
}

// accepts reports whether one more page of the client may be queued.
func (c *clientPages[B]) accepts(p *page[B]) bool {
	return c.counted < maxClientPages && (!p.searching || c.searching < maxSearchPages)
}

// count adds a page to, or with n = -1 removes it from, the counted ones.
func (c *clientPages[B]) count(p *page[B], n int) {
	if c.counted += n; p.searching {
		c.searching += n
	}
}

// add queues a new page, or makes it wait for its client's other pages if the client has too many.
func (l *Log[B]) add(p *page[B]) {
	l.addFuture(p)
	if p.client != nil {
		c := l.clients[p.client]
		if c == nil {
			c = new(clientPages[B])
			l.clients[p.client] = c
		}
		if !c.accepts(p) {
			p.state = pageWaiting
			c.waiting = append(c.waiting, p)
			return
		}
		c.count(p, 1)
	}
	l.pages[p.after] = p
	l.enqueue(p)
}

// find returns the page after a cursor that a client's reader may wait for, or nil if there is none.
func (l *Log[B]) find(after string, client *Client) *page[B] {
	if p := l.pages[after]; p != nil || client == nil {
		return p
	}
	if c := l.clients[client]; c != nil {
		for _, p := range c.waiting {
			if p.after == after {
				return p
			}
		}
	}
	return nil
}

// leave records that a reader does not need a page any more. The page does not count for its client after all readers
// of this client have left, because readers of other clients may keep it for any time.
func (l *Log[B]) leave(p *page[B], r *Reader[B]) {
	searching, waits := p.waiting[r]
	if !waits {
		return
	}
	if !searching {
		p.finding--
	}
	if delete(p.waiting, r); len(p.waiting) == 0 && p.held != nil {
		l.lane(p).held.Remove(p.held)
	}
	if r.client == p.client {
		if p.own--; p.own == 0 {
			l.uncount(p)
		}
	}
}

// uncount ends the count of a page for its client, so that the next page of the client is read.
func (l *Log[B]) uncount(p *page[B]) {
	client := p.client
	if p.client = nil; client == nil {
		return
	}
	c := l.clients[client]
	if p.state == pageWaiting {
		c.waiting = slices.DeleteFunc(c.waiting, func(w *page[B]) bool { return w == p })
		return
	}
	c.count(p, -1)
	for {
		i := slices.IndexFunc(c.waiting, c.accepts)
		if i < 0 {
			break
		}
		next := c.waiting[i]
		c.waiting = slices.Delete(c.waiting, i, i+1)
		if same := l.pages[next.after]; same != nil { // another client has requested it meanwhile
			l.join(same, next)
		} else {
			l.add(next)
		}
	}
	if c.counted == 0 {
		delete(l.clients, client)
	}
}

// join makes the readers of a page that was not queued wait for another one after the same cursor.
func (l *Log[B]) join(p, unread *page[B]) {
	l.readParked(p)
	l.combine(p, unread.known, unread.since, unread.exact)
	for r, searching := range unread.waiting {
		l.addReader(p, r, searching)
	}
	l.future.remove(unread)
	unread.state, unread.client = pageDone, nil
}
