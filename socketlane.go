package chaingql

import (
	"sync/atomic"

	"github.com/chaingql/chaingql/internal/xsync"
)

// A socketLane is a Lane for one kind of queries. The first of them on a socket needs a place in the Lane; while it has
// one, the others on the socket also need a place in further. So a client with a hundred sockets, and 32 queries on
// each, leaves places to others.
type socketLane struct {
	*xsync.Lane
	further *xsync.Lane // nil means no limit
}

// A socketPlace is the place of one query among those of its socket.
type socketPlace struct {
	taken   *atomic.Bool // of the socket: its first place is taken; nil if the query is not on a socket
	isFirst bool         // the query has taken it
}

// join takes a place until part is called, or reports that there is none.
func (l *socketLane) join(p *socketPlace) bool {
	if p.taken == nil || l.further == nil {
		return true
	}
	p.isFirst = p.taken.CompareAndSwap(false, true)
	return p.isFirst || l.further.TryEnter()
}

func (l *socketLane) part(p *socketPlace) {
	switch {
	case p.taken == nil || l.further == nil:
	case p.isFirst:
		p.taken.Store(false)
	default:
		l.further.Leave()
	}
}

// manyBlocks is the number of blocks above which a query counts as one for many. Even if they are in the window, 2,500
// blocks take fifty times as long as a page: a thousand such queries at once would hold all of Limits.Requests.
const manyBlocks = 2 * pageSize

// newMany returns a Lane for queries for many blocks, given Limits.Requests.
func newMany(requests int) *socketLane {
	if requests == 0 {
		return &socketLane{}
	}
	places, further := shareOf(requests, manyShare), shareOf(requests, furtherManyShare)
	return &socketLane{xsync.NewLane(places, 0, 0), xsync.NewLane(further, 0, 0)}
}

// enterMany counts a query for many blocks, or reports that there are too many.
func (c *call) enterMany(l *socketLane) bool {
	if !l.join(&c.inMany) {
		return false
	}
	if !l.TryEnter() {
		l.part(&c.inMany)
		return false
	}
	c.many = l
	return true
}

// leaveMany ends the count of a query for many blocks. It counts while it uses a processor, until it waits for the
// Backend.
func (c *call) leaveMany() {
	if c.many != nil {
		c.many.part(&c.inMany)
		c.many.Leave()
		c.many = nil
	}
}
