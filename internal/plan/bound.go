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

// A Bound is an operation with its variables, ready to run. It may run any number
// of times, also concurrently.
type Bound struct {
	op         *operation
	plan       *Plan
	cache      *Cache
	variables  []any // the declared variables, then the parameters
	cachedOnly bool  // nothing may be compiled for it

	// If the plan was compiled from another text with the same fingerprint, text is
	// the text of this request and parameterizer has its placeholders.
	parameterizer
	text []byte

	lastFound *list.Element // the entry that the last Find found by its text

	// For subscriptions only.
	ownBytes  int // memory of its variables, without values that the operation holds
	jsonBytes int // length of its variables as JSON

	// Reservation grows with the response of Run. If it is nil, only Limits.Answer
	// limits the response. Release sets it to nil.
	Reservation Reservation
}

// A request's Bound is kept until its client has received the response, and no limit
// counts it. So it keeps at most this many bytes for its next Find.
const (
	maxLastFound   = 8 << 10 // size of an entry, which the cache may have evicted
	maxKeptBuffers = 4 << 10 // capacity of the buffers
)

// A Variable is one variable of a request. Its value is nil, bool, string,
// json.Number, []any or map[string]any.
type Variable struct {
	Name  []byte
	Value any
}

// Find binds the cached plan of a query to b and reports whether it could. It
// reports false for a document that is not compiled, for a request with an error
// and for a subscription: then call Prepare. Only coerced variables and the lookup of a
// document with @skip or @include on variables allocate.
//
// The caller owns b and may reuse it after Run has returned; a repeated text then
// skips the lookup. b keeps references to variables until Release or the next Find.
func (c *Cache) Find(b *Bound, text []byte, operation string, variables []Variable) bool {
	b.cache, b.placeholders, b.cachedOnly = c, b.placeholders[:0], true
	c.mu.Lock()
	at := b.lastFound
	if at == nil || !at.Value.(*entry).matches(text) {
		at = c.entries[key{byText, string(text)}]
	}
	e := c.touch(at)
	b.lastFound = nil
	if e != nil && e.size <= maxLastFound {
		b.lastFound = at
	}
	c.mu.Unlock()
	var doc *document
	if e != nil {
		doc = e.doc
	} else if doc = c.findByFingerprint(b, text); doc == nil {
		return false
	}
	valueOf := func(name string) (any, bool) {
		for i := range variables {
			if string(variables[i].Name) == name {
				return variables[i].Value, true
			}
		}
		return nil, false
	}
	return b.bind(doc, operation, valueOf) == nil && b.Kind() == ast.Query
}

// Release drops the references and the large buffers that Find left in b.
func (b *Bound) Release() {
	if cap(b.fingerprint)+cap(b.text)+placeholderBytes*cap(b.placeholders) > maxKeptBuffers {
		b.parameterizer, b.text = parameterizer{}, nil
	}
	clear(b.variables)
	b.op, b.plan, b.variables, b.Reservation = nil, nil, b.variables[:0], nil
}

// findByFingerprint returns the cached document with the fingerprint of text, or
// nil. If there is one, b then has the text and its placeholders.
func (c *Cache) findByFingerprint(b *Bound, text []byte) *document {
	if c.limits.Document > 0 && len(text) > c.limits.Document || !b.parameterize(text) {
		return nil
	}
	c.mu.Lock()
	e := c.touch(c.entries[key{byFingerprint, string(b.fingerprint)}])
	c.mu.Unlock()
	if e == nil {
		return nil
	}
	b.text = append(b.text[:0], text...)
	return e.doc
}

// These make callers compile the document. Clients never receive them.
var (
	errNotCompiled     = &Error{Message: "The plan must be compiled.", Code: CodeInternal}
	errLiteralMismatch = &Error{Message: "A literal is not of its parameter's type.", Code: CodeInternal}
)

// bind selects an operation of doc, coerces its variables and parameters, and
// chooses its plan.
func (b *Bound) bind(doc *document, operation string, valueOf lookup) Errors {
	op, err := doc.operation(operation)
	if err != nil {
		return Errors{err}
	}
	var errs Errors
	if b.variables, errs = op.bind(b.cache, b.variables[:0], valueOf); errs != nil {
		return errs
	}
	for i := range op.parameters {
		p := &op.parameters[i]
		value := p.value
		if len(b.placeholders) > 0 {
			at, ok := b.placeholders[i], false
			if value, ok = b.cache.schema.coerceText(p.typ, at.kind, string(b.text[at.start:at.end])); !ok {
				return Errors{errLiteralMismatch}
			}
		}
		b.variables = append(b.variables, value)
	}
	b.op = op
	if op.kind == ast.Subscription {
		b.measureVariables(valueOf)
	}
	if b.plan = op.plan; b.plan == nil {
		if b.plan, errs = b.cache.planVariant(doc.text, op, b.variables, !b.cachedOnly); errs != nil {
			return errs
		}
	}
	if err := b.checkCost(); err != nil {
		return Errors{err}
	}
	return nil
}

// locations returns the locations of a field in the text of this request. If its
// literals are longer or shorter than those of the text that was compiled, the
// fields after them are in other columns.
func (b *Bound) locations(f *field) []Location {
	if len(b.placeholders) == 0 || len(f.locations) == 0 {
		return f.locations
	}
	moved := slices.Clone(f.locations)
	for i := range moved {
		for j, l := range b.op.parameters {
			if l.line == f.locations[i].Line && l.column < f.locations[i].Column {
				moved[i].Column += b.placeholders[j].end - b.placeholders[j].start - l.length
			}
		}
	}
	return moved
}

// Kind returns the kind of the operation: ast.Query or ast.Subscription.
func (b *Bound) Kind() ast.Operation { return b.op.kind }

// Subscribes reports whether Find has found a subscription: call PrepareCached for it.
func (b *Bound) Subscribes() bool { return b.op != nil && b.op.kind == ast.Subscription }

// Name returns the operation's name, or "".
func (b *Bound) Name() string { return b.op.name }

// Hash returns the SHA-256 of the document in lower-case hex.
func (b *Bound) Hash() string {
	if len(b.placeholders) > 0 {
		return Hash(string(b.text))
	}
	return b.op.hash
}

// Root returns the name and the arguments of the operation's first field. A
// subscription has no other.
func (b *Bound) Root() (name string, args Args, err *Error) {
	if len(b.plan.root.fields) == 0 {
		return "", nil, nil
	}
	f := b.plan.root.fields[0]
	args, err = b.rootArguments(f)
	return f.fieldName, args, err
}

func (b *Bound) rootArguments(f *field) (Args, *Error) {
	args, err := f.arguments(b, nil)
	if err != nil {
		return nil, &Error{Message: err.Error(), Code: CodeInput, Locations: b.locations(f), Path: []any{f.name}}
	}
	return args, nil
}

// Batches reports whether Batch yields the arguments of more than one field.
func (b *Bound) Batches() bool { return len(b.plan.batch) > 1 }

// Batch yields the arguments of each field whose [Field].Batch is selected below it,
// in the order of the document. It skips a field with invalid arguments: Run reports
// them.
func (b *Bound) Batch() iter.Seq[Args] {
	return func(yield func(Args) bool) {
		for _, f := range b.plan.batch {
			if args, err := f.arguments(b, nil); err == nil && !yield(args) {
				return
			}
		}
	}
}

// Depends yields what the response depends on in addition to the document and its
// variables: for each field the result of its [Field].Depends if that is not nil, or
// Unknown if the field has no such function.
func (b *Bound) Depends() iter.Seq[any] {
	return func(yield func(any) bool) {
		for _, f := range b.plan.dependent {
			var on any = Unknown
			if f.source.Depends != nil {
				args, err := f.arguments(b, nil)
				if err != nil {
					continue // the field's error depends on nothing else
				}
				on = f.source.Depends(args)
			}
			if on != nil && !yield(on) {
				return
			}
		}
	}
}

// Unknown is yielded by Bound.Depends for a field that may depend on anything.
const Unknown = "unknown"

// Identity appends a text that identifies the operation with its variables, in this
// process and in others.
func (b *Bound) Identity(dst []byte) []byte {
	dst = append(append(append(dst, b.Hash()...), ' '), b.Name()...)
	return b.appendVariables(dst, nil)
}

// Key returns a text that is equal for operations with equal responses: those with
// the same plan and the same variables. A variable may differ if its only use is as
// an argument of the first field whose index is listed in but.
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
		text, err := json.Marshal(v) // sorts maps by key
		if err != nil {              // only a host's scalar can be a value that JSON does not have
			text = fmt.Appendf(nil, "%#v", v)
		}
		key = append(key, text...)
	}
	return key
}

// only reports whether the only use of a variable is as one of the first field's
// arguments with the given indexes.
func (s *selection) only(p *Plan, variable int, places []int) bool {
	if p.uses[variable] != 1 || len(s.fields) == 0 {
		return false
	}
	args := s.fields[0].dynamic
	return slices.ContainsFunc(places, func(i int) bool {
		return i < len(args) && args[i].variable == variable
	})
}
