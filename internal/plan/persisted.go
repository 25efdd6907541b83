package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Hash returns the SHA-256 hash of a document in lower-case hexadecimal. Clients may send the hash instead of a
// document that is persisted.
func Hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// Check returns the errors of a document. If the document has no errors, Check compiles and caches it.
func (c *Cache) Check(text string) Errors {
	_, errs := c.load(text)
	return errs
}

// Remember stores a document, which Prepare must have accepted, under its hash for Recall. The document may be
// evicted like any other. The client then has to send its text again.
//
// Remember can store only a compiled document. Prepare may have accepted text without compiling it, because a document
// that differs only in its literals was already compiled. If so, Remember compiles text if compile is set; otherwise it
// stores nothing and returns false. In all other cases it returns true.
func (c *Cache) Remember(hash, text string, compile bool) bool {
	if compile {
		_, _ = c.load(text)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[textKey(text)] // no further use: the same request has added or found it
	if e != nil && c.entries[hashKey(hash)] == nil {
		k, before := hashKey(strings.Clone(hash)), e.size
		e.alias(k)
		c.entries[k] = e
		c.bytes += e.size - before
		if e.found {
			c.documents.foundBytes += e.size - before
		}
		c.evict()
	}
	return compile || e != nil
}

// Recall returns the document that Remember stored under the hash, unless it has been evicted.
func (c *Cache) Recall(hash string) (text string, ok bool) {
	e := c.find(hashKey(hash))
	if e == nil {
		return "", false
	}
	return e.doc.text, true
}

func hashKey(hash string) key { return key{byHash, hash} }
