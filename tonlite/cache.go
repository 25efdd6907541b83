package tonlite

import (
	"container/list"
	"sync"
)

// A cache keeps the most recently used values.
type cache[K comparable, V any] struct {
	size int

	mu     sync.Mutex
	places map[K]*list.Element
	recent *list.List // of entry[K, V]; the most recently used entry is in front
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

func newCache[K comparable, V any](size int) *cache[K, V] {
	return &cache[K, V]{size: size, places: make(map[K]*list.Element), recent: list.New()}
}

func (c *cache[K, V]) get(key K) (v V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.places[key]
	if !ok {
		return v, false
	}
	c.recent.MoveToFront(e)
	return e.Value.(entry[K, V]).value, true
}

func (c *cache[K, V]) put(key K, v V) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.places[key]; ok {
		e.Value = entry[K, V]{key, v}
		c.recent.MoveToFront(e)
		return
	}
	c.places[key] = c.recent.PushFront(entry[K, V]{key, v})
	if c.recent.Len() > c.size {
		oldest := c.recent.Back()
		delete(c.places, c.recent.Remove(oldest).(entry[K, V]).key)
	}
}

func (c *cache[K, V]) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.places)
	c.recent.Init()
}
