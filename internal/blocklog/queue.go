package blocklog

import (
	"container/heap"
	"container/list"
)

// pageQueue has the pages that the source has still to be asked for. Every other one that it hands out is the one that
// was queued first, so each has its turn. The others are those with the highest cursors: a client that was away for a
// short time, and needs few pages, does not wait for all those that read from far back.
type pageQueue[B any] struct {
	inOrder list.List
	recent  pageHeap[B] // those that are not past the newest block
	turn    bool        // the next is the first of inOrder
}

func (q *pageQueue[B]) Len() int { return q.inOrder.Len() }

func (q *pageQueue[B]) push(p *page[B], ahead bool) {
	p.queued = q.inOrder.PushBack(p)
	if !ahead {
		heap.Push(&q.recent, p)
	}
}

func (q *pageQueue[B]) pop() *page[B] {
	p := q.inOrder.Front().Value.(*page[B])
	if q.turn = !q.turn; q.turn && q.recent.Len() > 0 {
		p = q.recent.pages[0]
	}
	q.remove(p)
	return p
}

func (q *pageQueue[B]) remove(p *page[B]) {
	q.inOrder.Remove(p.queued)
	p.queued = nil
	q.recent.remove(p)
}

// pageHeap is a heap of pages by their cursors.
type pageHeap[B any] struct {
	pages  []*page[B]
	lowest bool // comes first, else the highest
}

// index returns a page's place in its heap, plus 1; 0 if it is in none.
func (h *pageHeap[B]) index(p *page[B]) *int {
	if h.lowest {
		return &p.inAhead
	}
	return &p.inRecent
}

func (h *pageHeap[B]) Len() int { return len(h.pages) }

func (h *pageHeap[B]) Less(i, j int) bool {
	return h.pages[i].after < h.pages[j].after == h.lowest // no two are equal
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

// remove takes a page out if it is in.
func (h *pageHeap[B]) remove(p *page[B]) {
	if i := *h.index(p); i > 0 {
		heap.Remove(h, i-1)
	}
}
