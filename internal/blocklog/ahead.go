package blocklog

import "container/heap"

// expect has a page looked at when the log reaches its cursor.
func (l *Log[B]) expect(p *page[B]) {
	if p.inAhead == 0 && p.after > l.view.Load().newest.cursor {
		heap.Push(&l.ahead, p)
	}
}

// arrive is for when the log has a new newest block: it appends the wakes of those waiting who can be placed now, and
// has pages read that were waiting for the log in vain.
func (l *Log[B]) arrive(wakes []func()) []func() {
	newest := l.view.Load().newest.cursor
	for l.ahead.Len() > 0 && l.ahead.pages[0].after <= newest {
		wakes = l.nudge(heap.Pop(&l.ahead).(*page[B]), wakes)
	}
	return wakes
}

// arriveAnew is arrive for a window that does not go on from the one before: any page may be in it.
func (l *Log[B]) arriveAnew(wakes []func()) []func() {
	l.ahead.pages = nil
	for _, p := range l.pages {
		p.inAhead = 0
		l.expect(p)
		wakes = l.nudge(p, wakes)
	}
	return wakes
}

func (l *Log[B]) nudge(p *page[B], wakes []func()) []func() {
	switch {
	case l.covers(p.after, p.state == parked):
		wakes = p.wakes(wakes)
	case p.state == parked && !l.isAhead(p.after):
		l.enqueue(p)
	}
	return wakes
}
