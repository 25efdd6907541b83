package plan

import (
	"container/list"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strconv"

	"github.com/vektah/gqlparser/v2/ast"
)

// A Bound is an operation with its variables: ready to run, any number of
// times, from any number of goroutines.
type Bound struct {
	op        *operation
	plan      *Plan
	cache     *Cache
	variables []any         // behind the declared ones, the literals that were lifted out
	shaper                  // whose holes are none where the plan is the text's own
	text      []byte        // where there are holes
	last      *list.Element // of the cache: what the last Find found by its text
	own       int           // of a subscription: bytes of its variables that are not the operation's
	written   int           // of a subscription: bytes of its variables, as JSON

	// Room is asked for memory by Run. If it is nil, Limits.Answer alone bounds the
	// answer. Release sets it to nil.
	Room Room
}

// mostRemembered keeps a large plan from being held past its time in the cache.
const mostRemembered = 64 << 10

// A Given is one variable of a request, its value as JSON has it.
type Given struct {
	Name  []byte
	Value any
}

// Find is Prepare for queries that are known, by their text or their shape, and
// that nothing is wrong with: it makes b ready to run, and allocates nothing
// but what the variables take. b is the caller's, to be used again: what it
// found by the same text before is found at once. It keeps nothing of text and
// variables beyond its next Find, and must not be given to Find while it runs.
// Find reports false where Prepare has to be asked.
func (c *Cache) Find(b *Bound, text []byte, operation string, variables []Given) bool {
	b.cache, b.holes = c, b.holes[:0]
	c.mu.Lock()
	at := b.last
	if at == nil || !at.Value.(*entry).is(text) {
		at = c.entries[key{text: string(text)}]
	}
	e := c.used(at)
	b.last = nil
	if e != nil && e.size <= mostRemembered {
		b.last = at
	}
	c.mu.Unlock()
	var doc *document
	if e != nil {
		doc = e.doc
	} else if doc = c.alike(b, text); doc == nil {
		return false
	}
	given := func(name string) (any, bool) {
		for i := range variables {
			if string(variables[i].Name) == name {
				return variables[i].Value, true
			}
		}
		return nil, false
	}
	return b.bind(doc, operation, given) == nil && b.Kind() == ast.Query
}

// Release lets go of what a Find has left in b.
func (b *Bound) Release() {
	clear(b.variables)
	b.op, b.plan, b.variables, b.Room = nil, nil, b.variables[:0], nil
}

// alike finds the document that a text has the shape of.
func (c *Cache) alike(b *Bound, text []byte) *document {
	if c.limits.Document > 0 && len(text) > c.limits.Document || !b.read(text) {
		return nil
	}
	c.mu.Lock()
	e := c.used(c.entries[key{text: string(b.shape), operation: ofShape}])
	c.mu.Unlock()
	if e == nil {
		return nil
	}
	b.text = append(b.text[:0], text...)
	return e.doc
}

// ofShape is no operation's name either, so that a shape is neither a text nor
// a name.
const ofShape = noOperation + noOperation

var errUnlike = &Error{Message: "A literal is not what its place wants.", Code: CodeInternal} // which nobody is told

// bind makes b ready to run an operation of a document.
func (b *Bound) bind(doc *document, operation string, given lookup) Errors {
	op, err := doc.operation(operation)
	if err != nil {
		return Errors{err}
	}
	var errs Errors
	if b.variables, errs = op.bind(b.cache, b.variables[:0], given); errs != nil {
		return errs
	}
	for i := range op.lifted {
		l := &op.lifted[i]
		value := l.value
		if len(b.holes) > 0 {
			h, ok := b.holes[i], false
			if value, ok = b.cache.schema.coerce(l.typ, h.kind, string(b.text[h.start:h.end])); !ok {
				return Errors{errUnlike}
			}
		}
		b.variables = append(b.variables, value)
	}
	b.op = op
	if op.kind == ast.Subscription {
		b.weighVariables(given)
	}
	if b.plan = op.plan; b.plan == nil {
		if b.plan, errs = b.cache.variant(doc.text, op, b.variables); errs != nil {
			return errs
		}
	}
	if err := b.afford(); err != nil {
		return Errors{err}
	}
	return nil
}

// locations are a field's in the text itself: literals of other lengths move
// what is behind them.
func (b *Bound) locations(f *field) []Location {
	if len(b.holes) == 0 || len(f.locations) == 0 {
		return f.locations
	}
	moved := slices.Clone(f.locations)
	for i := range moved {
		for j, l := range b.op.lifted {
			if l.line == f.locations[i].Line && l.column < f.locations[i].Column {
				moved[i].Column += b.holes[j].end - b.holes[j].start - l.length
			}
		}
	}
	return moved
}

// Kind tells a query from a subscription.
func (b *Bound) Kind() ast.Operation { return b.op.kind }

// Name is the operation's name, if it has one.
func (b *Bound) Name() string { return b.op.name }

// Hash is the SHA-256 of the document in lower-case hex.
func (b *Bound) Hash() string {
	if len(b.holes) > 0 {
		return Hash(string(b.text))
	}
	return b.op.hash
}

// Root returns the name and the arguments of the operation's first field: of a
// subscription, the only one.
func (b *Bound) Root() (name string, args Args, err *Error) {
	if len(b.plan.root.fields) == 0 {
		return "", nil, nil
	}
	f := b.plan.root.fields[0]
	args, fault := f.arguments(b, nil)
	if fault != nil {
		return f.def, nil, &Error{Message: fault.Error(), Code: CodeInput, Locations: b.locations(f), Path: []any{f.name}}
	}
	return f.def, args, nil
}

// Batches tells whether there is more than one for Batch to give.
func (b *Bound) Batches() bool { return len(b.plan.batch) > 1 }

// Batch gives the arguments of every field beneath which the field that its
// table calls Batch is asked for, in the order of the document. One whose
// arguments are wrong is left out: its own turn tells.
func (b *Bound) Batch() iter.Seq[Args] {
	return func(yield func(Args) bool) {
		for _, f := range b.plan.batch {
			if args, err := f.arguments(b, nil); err == nil && !yield(args) {
				return
			}
		}
	}
}

// Depends gives what the answer depends on beside the document and its
// variables: for each field what its Depends says, if anything, or Unknown.
func (b *Bound) Depends() iter.Seq[any] {
	return func(yield func(any) bool) {
		for _, f := range b.plan.dependent {
			var on any = Unknown
			if f.source.Depends != nil {
				args, err := f.arguments(b, nil)
				if err != nil {
					continue // it is an error in any case
				}
				on = f.source.Depends(args)
			}
			if on != nil && !yield(on) {
				return
			}
		}
	}
}

// Unknown is what a field depends on that does not say it.
const Unknown = "unknown"

// Identity appends what tells an operation and its variables from all others,
// in this process and in others.
func (b *Bound) Identity(dst []byte) []byte {
	dst = append(append(append(dst, b.Hash()...), ' '), b.Name()...)
	return b.appendVariables(dst, nil)
}

// Key is equal for operations that give equal answers: of the same plan, with
// the same variables. Those that are nothing but one of the first field's
// arguments listed in but, by their place, may differ.
func (b *Bound) Key(but ...int) string {
	return string(b.appendVariables(strconv.AppendUint(nil, b.plan.id, 36), but))
}

func (b *Bound) appendVariables(key []byte, but []int) []byte {
	for i, v := range b.variables {
		key = append(key, ' ')
		if v == (absent{}) || b.plan.root.only(b.plan, i, but) {
			key = append(key, '-')
			continue
		}
		text, err := json.Marshal(v) // of a map: sorted by key
		if err != nil {
			text = fmt.Appendf(nil, "%#v", v) // of a host's scalar: the rest is made of what JSON has
		}
		key = append(key, text...)
	}
	return key
}

// only tells whether a variable is nothing but one of some of the first field's
// arguments.
func (s *selection) only(p *Plan, variable int, places []int) bool {
	if p.uses[variable] != 1 || len(s.fields) == 0 {
		return false
	}
	args := s.fields[0].dynamic
	return slices.ContainsFunc(places, func(i int) bool {
		return i < len(args) && args[i].variable == variable
	})
}
