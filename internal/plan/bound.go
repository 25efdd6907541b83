package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strconv"

	"github.com/vektah/gqlparser/v2/ast"
)

// A Bound is an operation with its coerced variables, ready to run. It may run any number of times, also
// concurrently.
type Bound struct {
	op    *operation
	plan  *Plan
	cache *Cache

	// variables has the values of the declared variables, followed by those of the parameters.
	variables []any

	// cachedOnly is set if bind must not compile a plan.
	cachedOnly bool

	// tree is the syntax tree of the document, if it was parsed for this request. It is set only for bind.
	tree *ast.QueryDocument

	// parameterizer has the placeholders of this request, and text has its document, if the plan was compiled from
	// another text with the same fingerprint.
	parameterizer
	text []byte

	// literals has the values of the placeholders if the cache has them; otherwise nil.
	literals []any

	// cost is the result of Cost, if priced is set.
	cost   Cost
	priced bool

	// ownBytes is the memory of a subscription's variables in bytes, without values that belong to the operation.
	ownBytes int

	// jsonBytes is the length of a subscription's variables and of the literals in its arguments as JSON.
	jsonBytes int

	// Reservation grows with the response of Run. If it is nil, only Limits.Answer
	// limits the response. Release sets it to nil.
	Reservation Reservation
}

// maxKeptBuffers is the maximum capacity of the buffers that a Bound keeps for the next Find. A request holds its Bound
// until the client has received the response, and no limit counts this memory.
const maxKeptBuffers = 4 << 10

// Find binds the cached plan of a query to b and reports whether it succeeded. It reports false if the document is
// not compiled, if the request has an error or if the operation is a subscription. In these cases, call Prepare.
// Find allocates memory only for coerced variables, and to look up the plan of a document that has several operations
// or in which @skip or @include use variables.
//
// The caller owns b and may reuse it after Run has returned. b keeps references to the values in variables until
// Release or the next Find.
func (c *Cache) Find(b *Bound, text []byte, operation string, variables []Variable) bool {
	b.cache, b.placeholders, b.literals, b.cachedOnly = c, b.placeholders[:0], nil, true
	e := c.findText(text)
	var doc *document
	repeated := false
	if e != nil {
		doc = e.doc
		e.literals.restore(b, text)
	} else if doc = c.findByFingerprint(b, text); doc == nil {
		return false
	} else {
		repeated = c.isRepeated(text)
	}
	valueOf := func(name string) (any, bool) {
		for i := range variables {
			if string(variables[i].Name) == name {
				return variables[i].Value, true
			}
		}
		return nil, false
	}
	op, err := doc.operation(operation)
	if err != nil {
		return false
	}
	if op.kind == ast.Subscription { // PrepareCached coerces its variables
		b.op = op
		return false
	}
	if b.bindOperation(op, doc.text, valueOf) != nil {
		return false
	}
	if repeated {
		c.keepLiterals(b, doc)
	}
	return true
}

// Release drops the references that Find left in b, and its buffers if they are large.
func (b *Bound) Release() {
	if cap(b.fingerprint)+cap(b.text)+placeholderBytes*cap(b.placeholders) > maxKeptBuffers {
		b.parameterizer, b.text = parameterizer{}, nil
	}
	clear(b.variables)
	b.op, b.plan, b.variables, b.literals, b.Reservation = nil, nil, b.variables[:0], nil, nil
}

// findByFingerprint returns the cached document that has the same fingerprint as text, or nil if there is none. If
// there is one, it stores text and its placeholders in b.
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

// These errors make the caller compile the document. Clients never receive them.
var (
	errNotCompiled     = &Error{Message: "The plan for these variables is not compiled.", Code: CodeInternal}
	errLiteralMismatch = &Error{Message: "A literal does not have the type of its parameter.", Code: CodeInternal}
)

// bind selects an operation of doc and binds it.
func (b *Bound) bind(doc *document, operation string, valueOf lookup) Errors {
	op, err := doc.operation(operation)
	if err != nil {
		return Errors{err}
	}
	return b.bindOperation(op, doc.text, valueOf)
}

// bindOperation coerces the variables and parameters of op, chooses its plan and checks its cost. text is the document
// that was compiled.
func (b *Bound) bindOperation(op *operation, text string, valueOf lookup) Errors {
	var errs Errors
	b.priced = false
	if b.variables, errs = op.bind(b.cache, b.variables[:0], valueOf); errs != nil {
		return errs
	}
	b.variables = append(b.variables, b.literals...)
	for i := range op.parameters[len(b.literals):] {
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
	var compiled *entry
	if b.plan = op.plan; b.plan == nil {
		if b.plan, compiled, errs = b.cache.planVariant(b, text); errs != nil {
			return errs
		}
	}
	if err := b.checkCost(); err != nil {
		return Errors{err}
	}
	if compiled != nil {
		b.cache.add(compiled)
	}
	return nil
}

// locations returns locations in the text of this request. The plan may have been compiled from another text, whose
// literals are longer or shorter. So locations corrects a column that follows literals on its line.
func (b *Bound) locations(compiled []Location) []Location {
	if len(b.placeholders) == 0 || len(compiled) == 0 {
		return compiled
	}
	moved := slices.Clone(compiled)
	for i := range moved {
		for j, l := range b.op.parameters {
			if l.line == compiled[i].Line && l.column < compiled[i].Column {
				moved[i].Column += b.placeholders[j].end - b.placeholders[j].start - l.length
			}
		}
	}
	return moved
}

// Kind returns the kind of the operation: ast.Query or ast.Subscription.
func (b *Bound) Kind() ast.Operation { return b.op.kind }

// Subscribes reports whether Find found a subscription. Find does not bind subscriptions: use PrepareCached
// instead.
func (b *Bound) Subscribes() bool { return b.op != nil && b.op.kind == ast.Subscription }

// Name returns the name of the operation, or "" if it is anonymous.
func (b *Bound) Name() string { return b.op.name }

// Hash returns the SHA-256 hash of the document in lower-case hexadecimal.
func (b *Bound) Hash() string {
	if len(b.placeholders) > 0 {
		return Hash(string(b.text))
	}
	return b.op.hash
}

// Root returns the name and the arguments of the operation's first field, which is the only field of a
// subscription. The name is empty if @skip or @include leave out all fields.
func (b *Bound) Root() (name string, args Args, err *Error) {
	if len(b.plan.root.fields) == 0 {
		return "", nil, nil
	}
	f := b.plan.root.fields[0]
	args, err = b.rootArguments(f)
	return f.declaredName(), args, err
}

func (b *Bound) rootArguments(f *field) (Args, *Error) {
	args, err := f.arguments(b, nil)
	if err != nil {
		return nil, &Error{Message: err.Message, Code: CodeInput, Locations: b.locations(err.Locations),
			Path: []any{f.name()}}
	}
	return args, nil
}

// Batches reports whether Batch yields the arguments of more than one field.
func (b *Bound) Batches() bool { return len(b.plan.batch) > 1 }

// Batch yields the arguments of the fields that need a batch read, in the order of the document. These are the
// fields that set [Field].Batch and below which a field with that name is selected. Batch skips fields with invalid
// arguments, because Run reports them.
func (b *Bound) Batch() iter.Seq[Args] {
	return func(yield func(Args) bool) {
		for _, f := range b.plan.batch {
			if args, err := f.arguments(b, nil); err == nil && !yield(args) {
				return
			}
		}
	}
}

// Depends yields the data on which the response depends, in addition to the document and its variables. For each
// field with a resolver, it yields the result of [Field].Depends unless that is nil. If a field has no Depends
// function, it yields Unknown.
func (b *Bound) Depends() iter.Seq[any] {
	return func(yield func(any) bool) {
		for _, f := range b.plan.dependent {
			var on any = Unknown
			if f.source.Depends != nil {
				args, err := f.arguments(b, nil)
				if err != nil {
					continue // the result is an error that depends only on the arguments
				}
				on = f.source.Depends(args)
			}
			if on != nil && !yield(on) {
				return
			}
		}
	}
}

// Unknown is the value that [Bound.Depends] yields for a field that may depend on anything.
const Unknown = "unknown"

// Identity appends a text that identifies the operation and its variables. The text is the same in every process.
func (b *Bound) Identity(dst []byte) []byte {
	dst = append(append(append(dst, b.Hash()...), ' '), b.Name()...)
	return b.appendVariables(dst, nil)
}

// Shared returns a copy of b that requests with an equal Key can share: without the request's text, and with null as
// the values that Key ignores.
func (b *Bound) Shared(ignored ...int) *Bound {
	own := &Bound{op: b.op, plan: b.plan, cache: b.cache, variables: slices.Clone(b.variables)}
	for i := range own.variables {
		if b.plan.root.only(b.plan, i, ignored) {
			own.variables[i] = nil
		}
	}
	return own
}

// Key returns a text that is equal for two Bounds that have the same plan and variables, and therefore the same
// response. It ignores variables that are used only as arguments of the first field with the indexes in ignored.
func (b *Bound) Key(ignored ...int) string {
	return string(b.appendVariables(strconv.AppendUint(nil, b.plan.id, 36), ignored))
}

func (b *Bound) appendVariables(key []byte, ignored []int) []byte {
	for i, v := range b.variables {
		key = append(key, ' ')
		if v == (absent{}) || b.plan.root.only(b.plan, i, ignored) {
			key = append(key, '-')
			continue
		}
		switch v := v.(type) { // most variables are strings, and may be long
		case string:
			key = appendCounted(key, v)
		case *Text:
			key = appendCounted(key, *v)
		default:
			b := bytes.NewBuffer(key)
			text := json.NewEncoder(b) // sorts maps by key
			text.SetEscapeHTML(false)  // it would make a text six times as long
			if text.Encode(v) == nil {
				key = b.Bytes()
			} else { // only the value of a host's scalar can have no JSON form
				key = fmt.Appendf(key, "%#v", v)
			}
		}
	}
	return key
}

// appendCounted appends the length of s and s, without a copy for escapes. No other value looks like this.
func appendCounted[T string | Text](dst []byte, s T) []byte {
	return append(append(strconv.AppendInt(dst, int64(len(s)), 10), ':'), s...)
}

// only reports whether the plan uses a variable exactly once, as one of the first field's arguments with the indexes in
// places.
func (s *selection) only(p *Plan, variable int, places []int) bool {
	if p.uses[variable] != 1 || len(s.fields) == 0 {
		return false
	}
	args := s.fields[0].dynamic
	return slices.ContainsFunc(places, func(i int) bool {
		return i < len(args) && args[i].variable == variable
	})
}
