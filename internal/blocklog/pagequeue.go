package blocklog

import (
	"container/heap"
	"container/list"
)

// A pageQueue contains the pages that wait to be read. pop alternates between two orders: every second page is the one
// that was queued first, so that each page is read eventually. The other pages are those of the clients that have
// requested the fewest pages lately, and of these the pages with the highest cursors. So a client that was away for a
// short time, and needs few pages, does not wait for all clients that need many, or that start again and again.
type pageQueue[B any] struct {
	inOrder    list.List
	fewest     pageHeap[B] // the queued pages except those after the newest block
	oldestNext bool        // pop returns the first page of inOrder next
}

func (q *pageQueue[B]) Len() int { return q.inOrder.Len() }

func (q *pageQueue[B]) push(p *page[B], ahead bool) {
	p.queued = q.inOrder.PushBack(p)
	if !ahead {
		heap.Push(&q.fewest, p)
	}
}

func (q *pageQueue[B]) pop() *page[B] {
	p := q.inOrder.Front().Value.(*page[B])
	if q.oldestNext = !q.oldestNext; q.oldestNext && q.fewest.Len() > 0 {
		p = q.fewest.pages[0]
	}
	q.remove(p)
	return p
}

// lower records that a client that has requested the given number of pages waits for the page, too.
func (q *pageQueue[B]) lower(p *page[B], requested int) {
	if p.requested = min(p.requested, requested); p.inFewest > 0 {
		heap.Fix(&q.fewest, p.inFewest-1)
	}
}

func (q *pageQueue[B]) remove(p *page[B]) {
	q.inOrder.Remove(p.queued)
	p.queued = nil
	q.fewest.remove(p)
}

// A pageHeap is a heap of pages, either in pageQueue.fewest or, ordered only by cursor, in log.future.
type pageHeap[B any] struct {
	pages  []*page[B]
	lowest bool // the lowest cursor comes first
}

// index returns a pointer to the field that holds the page's index in this heap, plus 1. The field is 0 if the page is
// not in the heap.
func (h *pageHeap[B]) index(p *page[B]) *int {
	if h.lowest {
		return &p.inFuture
	}
	return &p.inFewest
}

func (h *pageHeap[B]) Len() int { return len(h.pages) }

func (h *pageHeap[B]) Less(i, j int) bool {
	p, q := h.pages[i], h.pages[j]
	if h.lowest {
		return p.after < q.after
	}
	return p.requested < q.requested || p.requested == q.requested && p.after > q.after
}

func (h *pageHeap[B]) Swap(i, j int) {
	h.pages[i], h.pages[j] = h.pages[j], h.pages[i]
	*h.index(h.pages[i]), *h.index(h.pages[j]) = i+1, j+1
}

func (h *pageHeap[B]) Push(x any) {
	p := x.(*page[B])
	h.pages = append(h.pages, p)
	*h.index(p) = len(h.pages)
}

func (h *pageHeap[B]) Pop() any {
	last := len(h.pages) - 1
	p := h.pages[last]
	h.pages[last] = nil
	h.pages = h.pages[:last]
	*h.index(p) = 0
	return p
}

// remove removes a page if it is in the heap.
func (h *pageHeap[B]) remove(p *page[B]) {
	if i := *h.index(p); i > 0 {
		heap.Remove(h, i-1)
	}
}
