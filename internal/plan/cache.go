package plan

import (
	"container/list"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/vektah/gqlparser/v2/ast"
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

// A key is a text, and for a plan that depends on @skip and @include the
// operation and what their variables were.
type key struct{ text, operation, conditions string }

type entry struct {
	key  key
	doc  *document // of a bare text
	plan *Plan     // of a text with conditions
	size int
}

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
	doc, errs := c.document(text)
	if errs != nil {
		return nil, errs
	}
	op, err := doc.operation(operation)
	if err != nil {
		return nil, Errors{err}
	}
	values, errs := op.bind(c, variables)
	if errs != nil {
		return nil, errs
	}
	p := op.plan
	if p == nil {
		if p, errs = c.variant(doc.text, op, values); errs != nil {
			return nil, errs
		}
	}
	return &Bound{plan: p, cache: c, variables: values}, nil
}

// caught makes a refusal of a panic: a text that the parser or a rule falls
// over must not take the process with it.
func (c *Cache) caught(errs *Errors) {
	if p := recover(); p != nil {
		*errs = Errors{c.mask(context.Background(), fmt.Errorf("panic: %v\n%s", p, debug.Stack()))}
	}
}

func (c *Cache) document(text string) (doc *document, errs Errors) {
	defer c.caught(&errs)
	k := key{text: text}
	if e := c.find(k); e != nil {
		return e.doc, nil
	}
	k.text = strings.Clone(text) // of what may be a small part of a request's body
	tree, errs := c.parse(k.text)
	if errs != nil {
		return nil, errs
	}
	if doc, errs = c.prepare(k.text, tree); errs != nil {
		return nil, errs
	}
	c.keep(&entry{key: k, doc: doc, size: doc.size()})
	return doc, nil
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
	k := key{text, op.name, string(chosen)}
	if e := c.find(k); e != nil {
		return e.plan, nil
	}
	tree, errs := c.parse(text)
	if errs != nil {
		return nil, errs
	}
	p, err := c.compile(tree, tree.Operations.ForName(op.name), op, on)
	if err != nil {
		return nil, Errors{err}
	}
	c.keep(&entry{key: k, plan: p, size: p.size + op.size() + len(k.text) + len(k.conditions)})
	return p, nil
}

func (c *Cache) find(k key) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	el := c.entries[k]
	if el == nil {
		return nil
	}
	c.recent.MoveToFront(el)
	return el.Value.(*entry)
}

// What an entry and an operation hold beside their plans, in bytes: measured,
// rounded up.
const (
	entryBytes     = 512
	operationBytes = 256
	variableBytes  = 384
)

func (c *Cache) keep(e *entry) {
	e.size += entryBytes
	if e.size > c.limits.CacheBytes {
		return // it would push out everything else
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries[e.key] != nil {
		return // another request was faster
	}
	c.entries[e.key] = c.recent.PushFront(e)
	c.bytes += e.size
	for c.bytes > c.limits.CacheBytes {
		oldest := c.recent.Remove(c.recent.Back()).(*entry)
		delete(c.entries, oldest.key)
		c.bytes -= oldest.size
	}
}

func (d *document) size() int {
	total := len(d.text)
	for _, op := range d.operations {
		total += op.size()
		if op.plan != nil {
			total += op.plan.size
		}
	}
	return total
}

func (op *operation) size() int { return operationBytes + len(op.variables)*variableBytes }

// A Bound is an operation with its variables: ready to run, any number of
// times, from any number of goroutines.
type Bound struct {
	plan      *Plan
	cache     *Cache
	variables []any
}

// Kind tells a query from a subscription.
func (b *Bound) Kind() ast.Operation { return b.plan.op.kind }

// Name is the operation's name, if it has one.
func (b *Bound) Name() string { return b.plan.op.name }

// Hash is the SHA-256 of the document in lower-case hex.
func (b *Bound) Hash() string { return b.plan.op.hash }

// Root returns the name and the arguments of the operation's first field: of a
// subscription, the only one.
func (b *Bound) Root() (name string, args Args, err *Error) {
	if len(b.plan.root.fields) == 0 {
		return "", nil, nil
	}
	f := b.plan.root.fields[0]
	args, fault := f.arguments(b)
	if fault != nil {
		return f.def, nil, &Error{Message: fault.Error(), Code: CodeInput, Locations: f.locations, Path: []any{f.name}}
	}
	return f.def, args, nil
}

// Batch gives the arguments of every field beneath which the field that its
// table calls Batch is asked for, in the order of the document. One whose
// arguments are wrong is left out: its own turn tells.
func (b *Bound) Batch() iter.Seq[Args] {
	return func(yield func(Args) bool) {
		for _, f := range b.plan.batch {
			if args, err := f.arguments(b); err == nil && !yield(args) {
				return
			}
		}
	}
}

// Key is equal for operations that give equal answers: of the same plan, with
// the same variables. Those that are nothing but one of the first field's
// arguments listed in but, by their place, may differ.
func (b *Bound) Key(but ...int) string {
	key := strconv.AppendUint(nil, b.plan.id, 36)
	for i, v := range b.variables {
		key = append(key, ' ')
		if v == (absent{}) || b.plan.root.only(b.plan, i, but) {
			key = append(key, '-')
			continue
		}
		text, err := json.Marshal(v) // of a map: sorted by key
		if err != nil {
			panic(err) // coerced values are made of what JSON has
		}
		key = append(key, text...)
	}
	return string(key)
}

// only tells whether a variable is nothing but one of some of the first field's
// arguments.
func (s *selection) only(p *Plan, variable int, places []int) bool {
	if p.uses[variable] != 1 || len(s.fields) == 0 {
		return false
	}
	args := s.fields[0].dynamic
	return slices.ContainsFunc(places, func(i int) bool {
		return i < len(args) && args[i].value != nil && args[i].value.Kind == ast.Variable && args[i].value.Raw == p.op.variables[variable].name
	})
}
