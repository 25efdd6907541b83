package plan

import (
	"container/list"
	"context"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/vektah/gqlparser/v2/ast"

	"github.com/chaingql/chaingql/internal/guard"
)

// A Cache checks and compiles documents and keeps the compiled ones. If these take more memory than
// Limits.CacheBytes, it evicts the least recently used of those that were not found again: see lru. A document that was
// found again without a lock counts as used when it is to be evicted. It is safe for concurrent use.
type Cache struct {
	schema *Schema
	limits Limits
	rules  []rule

	// mask and limitHit are the arguments of NewCache.
	mask     Mask
	limitHit func(ctx context.Context, limit string)

	// mu guards the fields below.
	mu sync.Mutex
	// entries has each entry under its key and its aliases.
	entries map[key]*entry
	// documents and variants list the entries of documents and of plans.
	documents, variants lru
	// bytes is the sum of the sizes of all entries and of their documents. variantBytes is the part of the plans.
	bytes, variantBytes int
	// known has entries that Find has found by their text, each at an index that depends on its text. Find reads it
	// without mu.
	known [knownTexts]atomic.Pointer[entry]
	// uses counts the uses of entries by their hash.
	uses frequency
	// recent has hashes of the texts that were last found by their fingerprint, and next is the index of the oldest.
	recent [recentTexts]uint64
	next   int
}

// A key identifies a cache entry.
type key struct {
	kind keyKind
	text string
}

// A keyKind says what the text of a key is. Keys of different kinds never match, so that a client cannot, for example,
// send a hash as a document.
type keyKind byte

const (
	byText         keyKind = iota // the text of a document
	byFingerprint                 // the text of a document with placeholders instead of literals
	byHash                        // the hash of a persisted document
	byConditions                  // the id of an operation and the values of its conditions
	byRepeatedText                // the text of a document that repeats and has the fingerprint of another one
)

func textKey(text string) key { return key{byText, text} }

// An entry holds a document or, if its key is of kind byConditions, a plan.
type entry struct {
	key     key
	aliases []key // further keys of a document: its fingerprint and its hashes
	doc     *document
	plan    *Plan
	size    int // in bytes, without doc, which several entries may share

	literals *literals // of a repeated text; otherwise nil

	at    *list.Element // guarded by Cache.mu, like found and hash
	found bool          // the entry is in lru.found
	hash  uint64        // of key, for Cache.uses

	used atomic.Bool // Find has found the entry in Cache.known since evict has last seen it
}

// knownTexts is the number of entries in Cache.known. Clients of a service have few different queries.
const knownTexts = 256

// knownAt returns the place in c.known of the entry whose text has this hash with textSeed.
func (c *Cache) knownAt(sum uint64) *atomic.Pointer[entry] { return &c.known[sum%knownTexts] }

// findText returns the entry of a document or of a repeated text, or nil if there is none. If the entry is known,
// findText takes no lock, and does not mark the entry as used twice, because processors wait for each other's changes
// (BenchmarkFindOnAllProcessors).
func (c *Cache) findText(text []byte) *entry {
	at := c.knownAt(maphash.Bytes(textSeed, text))
	if e := at.Load(); e != nil && e.key.text == string(text) {
		if !e.used.Load() {
			e.used.Store(true)
		}
		return e
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[key{byText, string(text)}]
	if e == nil {
		e = c.entries[key{byRepeatedText, string(text)}]
	}
	if c.touch(e) != nil {
		at.Store(e)
	}
	return e
}

// A Mask returns the error that the client receives instead of a resolver's error. *report is nil at the first call of
// a Run, and Mask may set it; Run then calls its Done at its end.
type Mask func(ctx context.Context, err error, report *Report) *Error

// A Report collects the errors that were masked in one Run, so that equal errors are logged once.
type Report interface{ Done(ctx context.Context) }

// Once masks a single error.
func (m Mask) Once(ctx context.Context, err error) *Error {
	var report Report
	defer func() {
		if report != nil {
			report.Done(ctx)
		}
	}()
	return m(ctx, err, &report)
}

// NewCache returns an empty cache for documents that are checked against s.
//
// Run calls mask with its own context, on its own goroutine. If a document makes the parser or a validation rule panic,
// Prepare calls mask with context.Background.
//
// limitHit may be nil. If a response exceeds a limit, Run calls limitHit with its own context and the name of the
// limit. If a request exceeds a limit in Prepare, the name is in the returned Errors instead.
func NewCache(
	s *Schema, limits Limits, mask Mask, limitHit func(context.Context, string),
) *Cache {
	rules := validationRules
	if limits.NoIntrospect {
		rules = slices.Concat(rules, []rule{noIntrospection})
	}
	return &Cache{schema: s, limits: limits.withDefaults(), rules: rules,
		mask: mask, limitHit: limitHit, entries: map[key]*entry{}}
}

// Prepare returns an operation of a document with its coerced variables, ready to run. If the document is not
// cached, Prepare checks and compiles it. operation may be empty if the document has only one operation. A value in
// variables is nil or a bool, string, json.Number, []any or map[string]any.
func (c *Cache) Prepare(text, operation string, variables map[string]any) (*Bound, Errors) {
	b, errs := c.bindCached(text, operation, variables, true)
	if b == nil {
		b = &Bound{cache: c}
		var e *entry
		if e, b.tree, errs = c.compileDocument(text); errs != nil {
			return nil, errs
		}
		errs = b.bind(e.doc, operation, valuesOf(variables))
		b.tree = nil
		if len(errs) == 0 || !errs[0].tooExpensive() {
			c.add(e)
		}
	}
	if errs != nil {
		return nil, errs
	}
	return b, nil
}

// PrepareCached is like Prepare but compiles nothing, so it takes microseconds. It returns neither an operation nor
// errors if the document is not compiled.
func (c *Cache) PrepareCached(text, operation string, variables map[string]any) (*Bound, Errors) {
	b, errs := c.bindCached(text, operation, variables, false)
	switch {
	case errs == nil:
		return b, nil
	case errs[0] == errNotCompiled:
		return nil, nil
	}
	return nil, errs
}

// bindCached binds a document that is cached by its text or its fingerprint. It returns nil if there is none. It
// also returns nil if a document with the same fingerprint cannot be bound, because the errors must be those of
// text itself.
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

// recoverPanic recovers a panic of the parser or of a validation rule and stores the masked error in errs. It must
// be deferred.
func (c *Cache) recoverPanic(errs *Errors) {
	if p := recover(); p != nil {
		*errs = Errors{c.mask.Once(context.Background(), guard.New(p))}
	}
}

// load returns the compiled document with this text. If the document is not cached, load compiles it. It does not count
// as a use of the document.
func (c *Cache) load(text string) (*document, Errors) {
	c.mu.Lock()
	e := c.entries[textKey(text)]
	c.mu.Unlock()
	if e != nil {
		return e.doc, nil
	}
	e, _, errs := c.compileDocument(text)
	if errs != nil {
		return nil, errs
	}
	c.add(e)
	return e.doc, nil
}

// compileDocument checks and compiles a document and returns its entry for the cache. It also returns the syntax tree
// for the operations that it has not compiled.
func (c *Cache) compileDocument(text string) (e *entry, tree *ast.QueryDocument, errs Errors) {
	defer c.recoverPanic(&errs)
	text = strings.Clone(text) // otherwise the document would keep the request body in memory
	tree, independent, errs := c.parse(text)
	if errs != nil {
		return nil, nil, errs
	}
	var s parameterizer
	if !independent || c.schema.selectsHosted(tree) || !s.parameterize([]byte(text)) {
		s = parameterizer{}
	}
	doc, errs := c.compileOperations(text, tree, s.placeholders)
	if errs != nil {
		return nil, nil, errs
	}
	e = &entry{key: textKey(text), doc: doc, size: entryBytes + keyBytes}
	if doc.operations != nil && doc.operations[0].parameters != nil {
		e.alias(key{byFingerprint, string(s.fingerprint)})
	}
	return e, tree, nil
}

// alias adds a key under which the document of e can be found.
func (e *entry) alias(k key) {
	e.aliases = append(e.aliases, k)
	e.size += keyBytes + textBytes(len(k.text))
}

// planVariant returns the plan of b for the values of the conditions, which are the variables that @skip and @include
// use. If the plan is not cached, planVariant compiles it, unless b.cachedOnly is set, and compiled is its entry for
// the cache. If b.tree is not set, it parses the text again: the cache does not keep syntax trees, because most
// documents need no further plan.
func (c *Cache) planVariant(b *Bound, text string) (plan *Plan, compiled *entry, errs Errors) {
	defer c.recoverPanic(&errs)
	op, values, tree := b.op, b.variables, b.tree
	id := append(make([]byte, 0, len(op.id)+1+len(op.conditions)), op.id...)
	id = append(id, ' ')
	for _, v := range op.conditions {
		switch values[v] {
		case true:
			id = append(id, '1')
		case nil:
			id = append(id, '-')
		default:
			id = append(id, '0')
		}
	}
	k := key{byConditions, string(id)}
	if e := c.find(k); e != nil {
		return e.plan, nil, nil
	}
	if b.cachedOnly {
		return nil, nil, Errors{errNotCompiled}
	}
	if tree == nil {
		if tree, _, errs = c.parse(text); errs != nil {
			return nil, nil, errs
		}
	}
	on := make(map[string]any, len(op.conditions))
	for _, v := range op.conditions {
		on[op.variables[v].name] = values[v]
	}
	p, err := c.compile(tree, tree.Operations.ForName(op.name), op, on)
	if err != nil {
		return nil, nil, Errors{err}
	}
	return p, &entry{key: k, plan: p, size: entryBytes + keyBytes + p.size + textBytes(len(k.text))}, nil
}

func (c *Cache) find(k key) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.touch(c.entries[k])
}
