package plan

import "container/list"

// variantsDivisor is the divisor of Limits.CacheBytes for the part that plans for values of conditions may use. Without
// it, short requests for one document with 16 conditions could evict all others.
const variantsDivisor = 4

// listOf returns the list that contains e.
func (c *Cache) listOf(e *entry) *list.List {
	if e.doc == nil {
		return c.variants
	}
	return c.documents
}

func (c *Cache) add(e *entry) {
	most := c.limits.CacheBytes
	if e.doc == nil {
		most /= variantsDivisor
	}
	if e.total() > most {
		return // it would evict everything else
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries[e.key] != nil {
		return // another request has added it in the meantime
	}
	el := c.listOf(e).PushFront(e)
	c.entries[e.key] = el
	for _, k := range e.aliases {
		if c.entries[k] == nil { // otherwise the key belongs to another document
			c.entries[k] = el
		}
	}
	c.bytes += e.size
	if e.doc == nil {
		c.variantBytes += e.size
	} else if e.doc.entries++; e.doc.entries == 1 {
		c.bytes += e.doc.bytes
	}
	c.evict()
}

// total returns the memory of an entry with its document.
func (e *entry) total() int {
	if e.doc == nil {
		return e.size
	}
	return e.size + e.doc.bytes
}

// evict removes the least recently used entries until the others are within Limits.CacheBytes. The caller holds
// c.mu.
func (c *Cache) evict() {
	for c.variantBytes > c.limits.CacheBytes/variantsDivisor {
		c.remove(c.variants.Back())
	}
	for spared := 0; c.bytes > c.limits.CacheBytes; {
		el := c.documents.Back()
		// The number is bounded, because others set the mark again.
		if spared < c.documents.Len() && el.Value.(*entry).used.CompareAndSwap(true, false) {
			c.documents.MoveToFront(el)
			spared++
			continue
		}
		c.remove(el)
	}
}

// remove removes the entry in el. The caller holds c.mu.
func (c *Cache) remove(el *list.Element) {
	e := el.Value.(*entry)
	c.listOf(e).Remove(el)
	e.evicted.Store(true)
	delete(c.entries, e.key)
	for _, k := range e.aliases {
		if c.entries[k] == el {
			delete(c.entries, k)
		}
	}
	c.bytes -= e.size
	if d := e.doc; d == nil {
		c.variantBytes -= e.size
	} else if d.entries--; d.entries == 0 {
		c.bytes -= d.bytes
	}
}
