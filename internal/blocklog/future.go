package blocklog

import (
	"container/heap"
	"maps"
	"slices"

	"github.com/chaingql/chaingql/internal/xsync"
)

// addFuture registers a page with a cursor after the newest block. When the log reaches that cursor, wakeReached
// handles the page.
func (l *Log[B]) addFuture(p *page[B]) {
	if p.inFuture == 0 && p.after > l.view.Load().newest.cursor {
		heap.Push(&l.future, p)
	}
}

// wakeReached handles the pages with a cursor that the newest block has reached. If the source had no blocks after the
// cursor of a page, the page is read again. For readers that can become live now, it appends their wake functions to
// wakes.
func (l *Log[B]) wakeReached(wakes []xsync.Waker) []xsync.Waker {
	newest := l.view.Load().newest.cursor
	for l.future.Len() > 0 && l.future.pages[0].after <= newest {
		wakes = l.wakeOrRead(heap.Pop(&l.future).(*page[B]), wakes)
	}
	return wakes
}

// wakeAllReached handles all pages as wakeReached does. It is needed after a change of the window that does not append
// a block, because then the cursor of any page may be in the window.
func (l *Log[B]) wakeAllReached(wakes []xsync.Waker) []xsync.Waker {
	l.future.pages = nil
	all := slices.Collect(maps.Values(l.pages))
	for _, c := range l.clients {
		all = append(all, c.waiting...)
	}
	for _, p := range all {
		p.inFuture = 0
		l.addFuture(p)
		wakes = l.wakeOrRead(p, wakes)
	}
	return wakes
}

func (l *Log[B]) wakeOrRead(p *page[B], wakes []xsync.Waker) []xsync.Waker {
	if l.covers(p.after, p.state == pageParked) {
		return p.wakes(wakes)
	}
	l.readParked(p)
	return wakes
}
