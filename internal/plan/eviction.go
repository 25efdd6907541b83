package plan

import (
	"container/list"
	"hash/maphash"
)

// variantsDivisor is the divisor of Limits.CacheBytes for the part that plans for values of conditions may use. Without
// it, short requests for one document with 16 conditions could evict all others.
const variantsDivisor = 4

// An lru has two lists of entries, each with the most recently used first. Only entries in the list once are evicted.
// With a single list, a flood of documents that are used once would evict those that clients use all the time. If the
// list found is full, an entry enters it only if it is used more often than those that have to leave for it. Otherwise
// a flood of documents that are used twice would empty it.
type lru struct {
	once  list.List // entries that were not found since they were added, and entries for which found has no room
	found list.List // entries that were found again

	foundBytes int // the sum of the sizes of the entries in found and of their documents
}

// foundDivisor determines the part of an lru's memory that the list found may not use: one part in foundDivisor.
const foundDivisor = 4

func foundPart(bytes int) int { return bytes - bytes/foundDivisor }

// lruOf returns the lru that contains e, and the maximum of its foundBytes.
func (c *Cache) lruOf(e *entry) (l *lru, mostFound int) {
	variants := c.limits.CacheBytes / variantsDivisor
	if e.doc == nil {
		return &c.variants, foundPart(variants)
	}
	return &c.documents, foundPart(c.limits.CacheBytes - variants)
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
	l, _ := c.lruOf(e)
	e.at = l.once.PushFront(e)
	c.entries[e.key] = e
	for _, k := range e.aliases {
		if c.entries[k] == nil { // otherwise the key belongs to another document
			c.entries[k] = e
		}
	}
	c.bytes += e.size
	if e.doc == nil {
		c.variantBytes += e.size
	} else if e.doc.entries++; e.doc.entries == 1 {
		c.bytes += e.doc.bytes
	}
	e.hash = maphash.Comparable(textSeed, e.key)
	if c.uses.add(e.hash); c.uses.of(e.hash) > 1 { // it was evicted before
		c.admit(e)
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

// touch marks e as found and as the most recently used, and returns it. e may be nil. The caller holds c.mu.
func (c *Cache) touch(e *entry) *entry {
	if e == nil {
		return nil
	}
	c.uses.add(e.hash)
	l, _ := c.lruOf(e)
	switch {
	case e.found:
		l.found.MoveToFront(e.at)
	case !c.admit(e):
		l.once.MoveToFront(e.at)
	}
	return e
}

// foundBytes returns the memory of e and, unless further entries in the list found have its document, of that. e itself
// is in found if own is 1, and not if it is 0.
func (e *entry) foundBytes(own int) int {
	if e.doc == nil || e.doc.found > own {
		return e.size
	}
	return e.total()
}

// mostReplaced is the maximum number of entries that are examined, and may leave found, for one that enters it.
const mostReplaced = 64

// admit moves e from once to found, and reports whether it did. If found is full, it does so only if e is used more
// often than each of the least recently used entries that have to leave found.
func (c *Cache) admit(e *entry) bool {
	l, most := c.lruOf(e)
	size := e.foundBytes(0)
	if size > most {
		return false
	}
	uses, excess := c.uses.of(e.hash), l.foundBytes+size-most
	for at, seen := l.found.Back(), 0; excess > 0; seen++ {
		if at == nil || seen == mostReplaced {
			return false
		}
		old, next := at.Value.(*entry), at.Prev()
		switch {
		case old.used.CompareAndSwap(true, false):
			c.uses.add(old.hash)
			l.found.MoveToFront(at)
		case c.uses.of(old.hash) >= uses:
			return false
		default:
			excess -= old.foundBytes(1)
		}
		at = next
	}
	l.move(e, true)
	l.shrink(most)
	return true
}

// move moves e to the front of found or, if found is false, of once.
func (l *lru) move(e *entry, found bool) {
	from, to, by := &l.once, &l.found, 1
	if !found {
		from, to, by = to, from, -1
	}
	from.Remove(e.at)
	e.at, e.found = to.PushFront(e), found
	l.foundBytes += by * e.size
	if d := e.doc; d != nil {
		before := d.found
		if d.found += by; before == 0 || d.found == 0 {
			l.foundBytes += by * d.bytes
		}
	}
}

// shrink moves the least recently used entries in found to once until the others have at most this many bytes.
func (l *lru) shrink(most int) {
	// The number of entries that are spared is bounded, because others set the mark again.
	for checked := l.found.Len(); l.foundBytes > most; checked-- {
		e := l.found.Back().Value.(*entry)
		if checked > 0 && e.used.CompareAndSwap(true, false) {
			l.found.MoveToFront(e.at)
			continue
		}
		l.move(e, false)
	}
}

// evict removes the least recently used entries in once until all entries are within Limits.CacheBytes. As found has
// less than that, there are such entries. The caller holds c.mu.
func (c *Cache) evict() {
	variants := c.limits.CacheBytes / variantsDivisor
	c.variants.shrink(foundPart(variants))
	c.documents.shrink(foundPart(c.limits.CacheBytes - variants))
	for c.variantBytes > variants {
		c.remove(c.variants.once.Back().Value.(*entry))
	}
	for checked := c.documents.once.Len(); c.bytes > c.limits.CacheBytes; checked-- {
		e := c.documents.once.Back().Value.(*entry)
		if checked > 0 && e.used.CompareAndSwap(true, false) {
			c.touch(e)
			continue
		}
		c.remove(e)
	}
}

// remove removes an entry in once. The caller holds c.mu.
func (c *Cache) remove(e *entry) {
	l, _ := c.lruOf(e)
	l.once.Remove(e.at)
	c.knownAt(maphash.String(textSeed, e.key.text)).CompareAndSwap(e, nil)
	delete(c.entries, e.key)
	for _, k := range e.aliases {
		if c.entries[k] == e {
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
