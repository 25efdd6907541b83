package plan

import (
	"container/list"
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/vektah/gqlparser/v2/validator/core"
)

// A Cache checks and compiles documents, and keeps what it made by the
// document's text, the least recently used going first when the bytes run out.
// It is safe for concurrent use.
type Cache struct {
	schema *Schema
	limits Limits
	rules  []core.Rule
	mask   func(ctx context.Context, err error) *Error
	over   func(ctx context.Context, limit string)

	mu      sync.Mutex // guards what follows
	entries map[key]*list.Element
	recent  *list.List // of *entry, newest first
	bytes   int
}

// A key is the text of a document. For a plan that depends on @skip and @include
// it is the id of the operation with the values of their variables.
type key struct{ text, operation, conditions string }

type entry struct {
	key     key
	aliases []key     // of a document: its shape, and the name by which it is remembered
	doc     *document // of a bare text
	plan    *Plan     // of an operation with conditions
	size    int
	gone    bool // from the cache; its mutex guards it
}

// is tells whether an entry is what the cache has by a text. Its mutex is held.
func (e *entry) is(text []byte) bool { return !e.gone && e.key.text == string(text) }

// NewCache returns an empty cache for documents against s. mask turns an error
// that is not for the client, from a resolver, into one that is; it is called
// on the goroutine that runs the plan, with the context given to it. Prepare
// calls it too, without a caller's context, where a text makes a rule panic. over,
// which may be nil, is called likewise with the name of a limit that a plan has
// exceeded on its way; those that Prepare finds are in its Errors.
func NewCache(s *Schema, limits Limits, mask func(context.Context, error) *Error, over func(context.Context, string)) *Cache {
	return &Cache{schema: s, limits: limits.normal(), rules: s.validation(limits.NoIntrospect), mask: mask, over: over,
		entries: map[key]*list.Element{}, recent: list.New()}
}

// Prepare makes a request ready to run: its text checked and compiled, or
// found, and its variables coerced. operation may be empty where the text has
// but one. Variables are as JSON has them: nil, bool, string, json.Number,
// []any and map[string]any.
func (c *Cache) Prepare(text, operation string, variables map[string]any) (*Bound, Errors) {
	b := &Bound{cache: c}
	given := func(name string) (any, bool) { v, present := variables[name]; return v, present }
	var doc *document
	if e := c.find(key{text: text}); e != nil {
		doc = e.doc
	} else {
		if alike := c.alike(b, []byte(text)); alike != nil && b.bind(alike, operation, given) == nil {
			b.shape = nil // may be kept for long
			return b, nil
		}
		b = &Bound{cache: c} // what is wrong is said of the text itself
		var errs Errors
		if doc, errs = c.read(text); errs != nil {
			return nil, errs
		}
	}
	if errs := b.bind(doc, operation, given); errs != nil {
		return nil, errs
	}
	return b, nil
}

// caught makes a refusal of a panic: a text that the parser or a rule falls
// over must not take the process with it.
func (c *Cache) caught(errs *Errors) {
	if p := recover(); p != nil {
		*errs = Errors{c.mask(context.Background(), fmt.Errorf("panic: %v\n%s", p, debug.Stack()))}
	}
}

func (c *Cache) document(text string) (*document, Errors) {
	if e := c.find(key{text: text}); e != nil {
		return e.doc, nil
	}
	return c.read(text)
}

// read checks, compiles and keeps a document.
func (c *Cache) read(text string) (doc *document, errs Errors) {
	defer c.caught(&errs)
	text = strings.Clone(text) // of what may be a small part of a request's body
	tree, one, errs := c.parse(text)
	if errs != nil {
		return nil, errs
	}
	var s shaper
	if !one || c.schema.hosts(tree) || !s.read([]byte(text)) {
		s = shaper{}
	}
	if doc, errs = c.prepare(text, tree, s.holes); errs != nil {
		return nil, errs
	}
	e := &entry{key: key{text: text}, doc: doc, size: entryBytes + keyBytes + doc.size()}
	if doc.operations != nil && doc.operations[0].lifted != nil {
		e.alias(key{text: string(s.shape), operation: ofShape})
	}
	c.keep(e)
	return doc, nil
}

// alias adds a key by which a document is found, too.
func (e *entry) alias(k key) {
	e.aliases = append(e.aliases, k)
	e.size += keyBytes + textBytes(len(k.text))
}

// variant finds or makes the plan for the values of the variables that @skip
// and @include ask for. The tree is not kept, so it is made again: a text has
// few variants, and most have none.
func (c *Cache) variant(text string, op *operation, values []any) (plan *Plan, errs Errors) {
	defer c.caught(&errs)
	chosen := make([]byte, len(op.conditions))
	on := make(map[string]bool, len(op.conditions))
	for i, v := range op.conditions {
		chosen[i] = '0'
		if values[v] == true {
			chosen[i] = '1'
		}
		on[op.variables[v].name] = values[v] == true
	}
	k := key{op.id, "", string(chosen)}
	if e := c.find(k); e != nil {
		return e.plan, nil
	}
	tree, _, errs := c.parse(text)
	if errs != nil {
		return nil, errs
	}
	p, err := c.compile(tree, tree.Operations.ForName(op.name), op, on)
	if err != nil {
		return nil, Errors{err}
	}
	c.keep(&entry{key: k, plan: p, size: entryBytes + keyBytes + p.size + textBytes(len(chosen))})
	return p, nil
}

func (c *Cache) find(k key) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used(c.entries[k])
}

// used makes an entry, if there is one, the newest. c.mu is held.
func (c *Cache) used(el *list.Element) *entry {
	if el == nil {
		return nil
	}
	c.recent.MoveToFront(el)
	return el.Value.(*entry)
}

func (c *Cache) keep(e *entry) {
	if e.size > c.limits.CacheBytes {
		return // it would push out everything else
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries[e.key] != nil {
		return // another request was faster
	}
	el := c.recent.PushFront(e)
	c.entries[e.key] = el
	for _, k := range e.aliases {
		if c.entries[k] == nil { // else it is another document's
			c.entries[k] = el
		}
	}
	c.bytes += e.size
	c.evict()
}

// evict drops the least recently used until the rest fits. c.mu is held.
func (c *Cache) evict() {
	for c.bytes > c.limits.CacheBytes {
		el := c.recent.Back()
		oldest := c.recent.Remove(el).(*entry)
		oldest.gone = true
		delete(c.entries, oldest.key)
		for _, k := range oldest.aliases {
			if c.entries[k] == el {
				delete(c.entries, k)
			}
		}
		c.bytes -= oldest.size
	}
}
