package plan

import (
	"hash/maphash"
	"slices"
)

// A text that has only the fingerprint of a compiled document must be parameterized for each request, which takes about
// a third of the time of a small query. If a text repeats, the cache therefore keeps its literals under the text. Of a
// text that occurs only once, such as each text of a flood, the cache keeps only a hash.

// recentTexts is the number of texts among which one counts as repeated.
const recentTexts = 64

var textSeed = maphash.MakeSeed()

// literals holds the literals of a text in the form that bind needs. It does not change.
type literals struct {
	placeholders []placeholder
	values       []any
}

// isRepeated reports whether a text is among those that were last found by their fingerprint, and otherwise adds it.
func (c *Cache) isRepeated(text []byte) bool {
	sum := maphash.Bytes(textSeed, text)
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.Contains(c.recent[:], sum) {
		return true
	}
	c.recent[c.next] = sum
	c.next = (c.next + 1) % recentTexts
	return false
}

// keepLiterals adds the literals of b, which was found by its fingerprint, to the cache.
func (c *Cache) keepLiterals(b *Bound, doc *document) {
	known := b.variables[len(b.variables)-len(b.op.parameters):]
	size := entryBytes + keyBytes + literalsBytes + textBytes(len(b.text))
	for _, v := range known {
		size += placeholderBytes + slotBytes + sizeOf(v, true)
	}
	c.add(&entry{
		key: key{byRepeatedText, string(b.text)}, doc: doc, size: size,
		literals: &literals{slices.Clone(b.placeholders), slices.Clone(known)},
	})
}

// restore makes b have the literals and their text. A nil l has no effect.
func (l *literals) restore(b *Bound, text []byte) {
	if l != nil {
		b.placeholders = append(b.placeholders, l.placeholders...)
		b.text = append(b.text[:0], text...)
		b.literals = l.values
	}
}
