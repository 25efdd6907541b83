package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Hash returns the SHA-256 of a document in lower-case hex. Clients may send it
// instead of a persisted document.
func Hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// Check returns the errors of a document. If it has none, it is compiled and cached.
func (c *Cache) Check(text string) Errors {
	_, errs := c.load(text)
	return errs
}

// Remember makes a document that Prepare accepted available under its hash. The
// document may be evicted like any other; a client then has to send it again.
//
// A document that is only cached by its fingerprint must be compiled first. If
// compile is not set, Remember then does nothing and reports false.
func (c *Cache) Remember(hash, text string, compile bool) bool {
	if compile {
		_, _ = c.load(text)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	el := c.entries[textKey(text)]
	if e := c.touch(el); e != nil && c.entries[hashKey(hash)] == nil {
		k, before := hashKey(strings.Clone(hash)), e.size
		e.alias(k)
		c.entries[k] = el
		c.bytes += e.size - before
		c.evict()
	}
	return compile || el != nil
}

// Recall returns the document with a hash that was passed to Remember.
func (c *Cache) Recall(hash string) (text string, ok bool) {
	e := c.find(hashKey(hash))
	if e == nil {
		return "", false
	}
	return e.doc.text, true
}

func hashKey(hash string) key { return key{byHash, hash} }
