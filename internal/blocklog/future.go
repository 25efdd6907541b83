package blocklog

import "container/heap"

// addFuture lets the log handle a page again when it reaches the page's cursor.
func (l *Log[B]) addFuture(p *page[B]) {
	if p.inFuture == 0 && p.after > l.view.Load().newest.cursor {
		heap.Push(&l.future, p)
	}
}

// wakeReached handles the pages that a new newest block has reached: it appends the wakes of readers that can become
// live now, and queues parked pages again.
func (l *Log[B]) wakeReached(wakes []func()) []func() {
	newest := l.view.Load().newest.cursor
	for l.future.Len() > 0 && l.future.pages[0].after <= newest {
		wakes = l.wakeOrRead(heap.Pop(&l.future).(*page[B]), wakes)
	}
	return wakes
}

// wakeAllReached is wakeReached for a window that does not continue the previous one: any page may be in it.
func (l *Log[B]) wakeAllReached(wakes []func()) []func() {
	l.future.pages = nil
	for _, p := range l.pages {
		p.inFuture = 0
		l.addFuture(p)
		wakes = l.wakeOrRead(p, wakes)
	}
	return wakes
}

func (l *Log[B]) wakeOrRead(p *page[B], wakes []func()) []func() {
	switch {
	case l.covers(p.after, p.state == pageParked):
		wakes = p.wakes(wakes)
	case p.state == pageParked && !l.isFuture(p.after):
		l.enqueue(p)
	}
	return wakes
}
