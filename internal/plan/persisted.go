package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Hash is how a document is known without its text: its SHA-256 in lower-case
// hex.
func Hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// Check tells what is wrong with a document; a good one is kept.
func (c *Cache) Check(text string) Errors {
	_, errs := c.document(text)
	return errs
}

// Remember keeps a document, which Prepare found good, under a name as well:
// by its hash, clients may ask for it without sending it. It is forgotten like
// any other when the bytes run out; a client then sends it again.
func (c *Cache) Remember(name, text string) {
	if _, errs := c.document(text); errs != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	el, k := c.entries[key{text: text}], nameKey(name)
	if el == nil || c.entries[k] != nil {
		return
	}
	e := el.Value.(*entry)
	before := e.size
	e.alias(nameKey(strings.Clone(name)))
	c.entries[k] = el
	c.bytes += e.size - before
	c.evict()
}

// Recall returns the document kept under a name.
func (c *Cache) Recall(name string) (text string, ok bool) {
	e := c.find(nameKey(name))
	if e == nil {
		return "", false
	}
	return e.doc.text, true
}

// noOperation is no operation's name, so that a name cannot be taken for a text.
const noOperation = "\x00"

func nameKey(name string) key { return key{text: name, operation: noOperation} }
