package tonlite

import (
	"container/list"
	"sync"
)

// A cache keeps the most recently used values. Its keys are the seq_nos of masterchain blocks.
type cache[V any] struct {
	size int

	mu     sync.Mutex
	places map[uint32]*list.Element
	recent *list.List // of entry[V]; the most recently used entry is in front
}

type entry[V any] struct {
	seqNo uint32
	value V
}

func newCache[V any](size int) *cache[V] {
	return &cache[V]{size: size, places: make(map[uint32]*list.Element), recent: list.New()}
}

func (c *cache[V]) get(seqNo uint32) (v V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.places[seqNo]
	if !ok {
		return v, false
	}
	c.recent.MoveToFront(e)
	return e.Value.(entry[V]).value, true
}

func (c *cache[V]) put(seqNo uint32, v V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.places[seqNo]; ok {
		e.Value = entry[V]{seqNo, v}
		c.recent.MoveToFront(e)
		return
	}
	c.places[seqNo] = c.recent.PushFront(entry[V]{seqNo, v})
	if c.recent.Len() > c.size {
		oldest := c.recent.Back()
		delete(c.places, c.recent.Remove(oldest).(entry[V]).seqNo)
	}
}

func (c *cache[V]) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.places)
	c.recent.Init()
}
