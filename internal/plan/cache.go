package plan

import (
	"container/list"
	"context"
	"strings"
	"sync"

	"github.com/vektah/gqlparser/v2/validator/core"

	"github.com/chaingql/chaingql/internal/guard"
)

// A Cache checks and compiles documents and keeps the compiled ones. If they take
// more than Limits.CacheBytes, it evicts the least recently used. It is safe for
// concurrent use.
type Cache struct {
	schema   *Schema
	limits   Limits
	rules    []core.Rule
	mask     func(ctx context.Context, err error) *Error
	limitHit func(ctx context.Context, limit string)

	mu      sync.Mutex // guards the fields below
	entries map[key]*list.Element
	lru     *list.List // of *entry, the most recently used first
	bytes   int        // sum of the entries' sizes
}

// A key identifies an entry.
type key struct {
	kind keyKind
	text string
}

type keyKind byte

// The kinds differ so that, for example, no client can send a hash as a document.
const (
	byText        keyKind = iota // the document
	byFingerprint                // the document with placeholders instead of literals
	byHash                       // the hash of a persisted query
	byConditions                 // an operation's id and the values of its conditions
)

func textKey(text string) key { return key{byText, text} }

// An entry holds a document or, if its key is of kind byConditions, a plan.
type entry struct {
	key     key
	aliases []key // further keys of a document: its fingerprint and its hash
	doc     *document
	plan    *Plan
	size    int
	evicted bool // guarded by Cache.mu
}

// matches reports whether e is the cached document with this text. Cache.mu is held.
func (e *entry) matches(text []byte) bool { return !e.evicted && e.key.text == string(text) }

// NewCache returns an empty cache for documents against s.
//
// mask replaces a resolver's error by the one to send to the client. Run calls it
// with its context, on its goroutine. If a document makes the parser or a rule
// panic, Prepare calls it with context.Background.
//
// limitHit may be nil. Run calls it in the same way with the name of a limit that
// the response exceeds. Limits that Prepare finds exceeded are in its Errors instead.
func NewCache(
	s *Schema, limits Limits, mask func(context.Context, error) *Error, limitHit func(context.Context, string),
) *Cache {
	return &Cache{schema: s, limits: limits.withDefaults(), rules: s.validation(limits.NoIntrospect),
		mask: mask, limitHit: limitHit, entries: map[key]*list.Element{}, lru: list.New()}
}

// Prepare returns an operation of a document with its variables, ready to run. It
// checks and compiles the document if it is not cached. operation may be empty if
// the document has one operation. The values of variables are nil, bool, string,
// json.Number, []any and map[string]any.
func (c *Cache) Prepare(text, operation string, variables map[string]any) (*Bound, Errors) {
	b, errs := c.bindCached(text, operation, variables, true)
	if b == nil {
		var doc *document
		if doc, errs = c.compileDocument(text); errs != nil {
			return nil, errs
		}
		b = &Bound{cache: c}
		errs = b.bind(doc, operation, valuesOf(variables))
	}
	if errs != nil {
		return nil, errs
	}
	return b, nil
}

// PrepareCached is like Prepare but compiles nothing, so it takes microseconds. It
// returns nil if the document is not compiled or the request has an error.
func (c *Cache) PrepareCached(text, operation string, variables map[string]any) *Bound {
	b, errs := c.bindCached(text, operation, variables, false)
	if errs != nil {
		return nil
	}
	return b
}

// bindCached binds a document that is cached by its text or its fingerprint. It
// returns nil if there is none. It also returns nil if a document with the same
// fingerprint cannot be bound: the errors must be those of text itself.
func (c *Cache) bindCached(text, operation string, variables map[string]any, compile bool) (*Bound, Errors) {
	b := &Bound{cache: c, cachedOnly: !compile}
	var doc *document
	if e := c.find(textKey(text)); e != nil {
		doc = e.doc
	} else if doc = c.findByFingerprint(b, []byte(text)); doc == nil {
		return nil, nil
	}
	errs := b.bind(doc, operation, valuesOf(variables))
	if errs != nil && len(b.placeholders) > 0 {
		return nil, nil
	}
	b.fingerprint = nil // a subscription keeps b
	return b, errs
}

func valuesOf(variables map[string]any) lookup {
	return func(name string) (any, bool) { v, present := variables[name]; return v, present }
}

// recoverPanic turns a panic of the parser or a rule into an error of the
// document. It must be deferred.
func (c *Cache) recoverPanic(errs *Errors) {
	if p := recover(); p != nil {
		*errs = Errors{c.mask(context.Background(), guard.New(p))}
	}
}

// load returns the compiled document for text. It compiles the document if it is
// not cached.
func (c *Cache) load(text string) (*document, Errors) {
	if e := c.find(textKey(text)); e != nil {
		return e.doc, nil
	}
	return c.compileDocument(text)
}

// compileDocument checks, compiles and caches a document.
func (c *Cache) compileDocument(text string) (doc *document, errs Errors) {
	defer c.recoverPanic(&errs)
	text = strings.Clone(text) // else it keeps the request's body in memory
	tree, independent, errs := c.parse(text)
	if errs != nil {
		return nil, errs
	}
	var s parameterizer
	if !independent || c.schema.selectsHosted(tree) || !s.parameterize([]byte(text)) {
		s = parameterizer{}
	}
	if doc, errs = c.compileOperations(text, tree, s.placeholders); errs != nil {
		return nil, errs
	}
	e := &entry{key: textKey(text), doc: doc, size: entryBytes + keyBytes + doc.size()}
	if doc.operations != nil && doc.operations[0].parameters != nil {
		e.alias(key{byFingerprint, string(s.fingerprint)})
	}
	c.add(e)
	return doc, nil
}

// alias adds a further key to a document.
func (e *entry) alias(k key) {
	e.aliases = append(e.aliases, k)
	e.size += keyBytes + textBytes(len(k.text))
}

// planVariant returns the plan for the given values of the conditions, the variables
// of @skip and @include. If it is not cached, planVariant compiles it if compile is
// set. This parses the text again: most documents have no conditions, so the cache
// does not keep syntax trees.
func (c *Cache) planVariant(text string, op *operation, values []any, compile bool) (plan *Plan, errs Errors) {
	defer c.recoverPanic(&errs)
	id := append(make([]byte, 0, len(op.id)+1+len(op.conditions)), op.id...)
	id = append(id, ' ')
	for _, v := range op.conditions {
		if values[v] == true {
			id = append(id, '1')
		} else {
			id = append(id, '0')
		}
	}
	k := key{byConditions, string(id)}
	if e := c.find(k); e != nil {
		return e.plan, nil
	}
	if !compile {
		return nil, Errors{errNotCompiled}
	}
	tree, _, errs := c.parse(text)
	if errs != nil {
		return nil, errs
	}
	on := make(map[string]bool, len(op.conditions))
	for _, v := range op.conditions {
		on[op.variables[v].name] = values[v] == true
	}
	p, err := c.compile(tree, tree.Operations.ForName(op.name), op, on)
	if err != nil {
		return nil, Errors{err}
	}
	c.add(&entry{key: k, plan: p, size: entryBytes + keyBytes + p.size + textBytes(len(k.text))})
	return p, nil
}

func (c *Cache) find(k key) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.touch(c.entries[k])
}

// touch returns the entry of el and marks it as the most recently used. If el is
// nil, it returns nil. c.mu is held.
func (c *Cache) touch(el *list.Element) *entry {
	if el == nil {
		return nil
	}
	c.lru.MoveToFront(el)
	return el.Value.(*entry)
}

func (c *Cache) add(e *entry) {
	if e.size > c.limits.CacheBytes {
		return // it would evict everything else
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries[e.key] != nil {
		return // another request was faster
	}
	el := c.lru.PushFront(e)
	c.entries[e.key] = el
	for _, k := range e.aliases {
		if c.entries[k] == nil { // else another document has it
			c.entries[k] = el
		}
	}
	c.bytes += e.size
	c.evict()
}

// evict removes the least recently used entries until the rest is within the limit.
// c.mu is held.
func (c *Cache) evict() {
	for c.bytes > c.limits.CacheBytes {
		el := c.lru.Back()
		oldest := c.lru.Remove(el).(*entry)
		oldest.evicted = true
		delete(c.entries, oldest.key)
		for _, k := range oldest.aliases {
			if c.entries[k] == el {
				delete(c.entries, k)
			}
		}
		c.bytes -= oldest.size
	}
}
