package plan

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/vektah/gqlparser/v2/ast"

	"github.com/chaingql/chaingql/internal/guard"
)

// A run is one execution of a plan.
type run struct {
	*Bound
	ctx   context.Context
	path  []step
	args  Args // a buffer for the arguments of the field whose resolver runs
	steps int  // fields appended since the last runtime.Gosched

	hostArguments map[*callArguments]hostArguments // arguments of the host's fields; see hostArgs

	dst          []byte
	dataStart    int  // index of the response's data in dst
	threshold    int  // if dst is longer, overflow is called
	reserved     int  // length of dst for which memory is reserved
	treeBytes    int  // memory of a tree of values in addition to the length that overflow receives
	treeReserved bool // the reservation includes a tree
	overflowed   bool // the response exceeds its limit or its reservation

	errs            []byte // the errors as JSON, with commas
	errorsTruncated bool   // errs has reached maxFieldErrors
	first           *Error // the first error; nil if there is none
	report          Report // of the masked errors; nil if there is none
}

// runPool reuses runs and their buffers, to avoid allocations.
var runPool = sync.Pool{New: func() any { return new(run) }}

// A step is one element of a path: a response name or, if name is empty, a list index.
type step struct {
	name  string
	index int
}

// Run executes the operation with root as the source of its fields and appends the response to dst. The response
// has the data in the order of the document, then the errors if there are any, and the cost of a query if
// Limits.ShowCost is set. first is the first error, or nil.
func (b *Bound) Run(ctx context.Context, root any, dst []byte) (response []byte, first *Error) {
	r := runPool.Get().(*run)
	// Assign the fields one by one, because a composite literal would copy the whole struct.
	r.Bound, r.ctx, r.dst = b, ctx, append(dst, `{"data":`...)
	start := len(r.dst)
	r.dataStart, r.threshold, r.reserved, r.steps, r.treeBytes = start, start+r.maxBytes(), 0, 0, 0
	r.treeReserved = false
	if b.Reservation != nil {
		r.threshold = min(r.threshold, start+unreservedBytes)
	}
	if !r.data(root) {
		r.dst = append(r.dst[:start], "null"...)
	}
	if len(r.errs) > 0 {
		r.dst = append(r.dst, `,"errors":[`...)
		r.dst = append(r.dst, r.errs...)
		r.dst = append(r.dst, ']')
	}
	if b.cache.limits.ShowCost && b.op.kind == ast.Query {
		r.dst = b.Cost().appendJSON(append(r.dst, `,"extensions":{"cost":`...))
		r.dst = append(r.dst, '}')
	}
	if r.report != nil {
		r.report.Done(ctx)
		r.report = nil
	}
	dst, first = append(r.dst, '}'), r.first
	clear(r.args[:cap(r.args)])
	r.Bound, r.ctx, r.dst, r.errs, r.first, r.overflowed, r.errorsTruncated = nil, nil, nil, nil, nil, false, false
	r.path, r.hostArguments = r.path[:0], nil
	runPool.Put(r)
	return dst, first
}

// data appends the data of the response. If a [Field].Append or a [Field].Get panics, the response has no data,
// because these functions are called without a recover of their own.
func (r *run) data(root any) (ok bool) {
	defer func() {
		if p := recover(); p != nil {
			r.fail(&field{}, guard.New(p))
			ok = false
		}
	}()
	return r.object(r.plan.root, root)
}

// object appends the fields of s with src as their source. If a non-null field has no value, object appends nothing
// and reports false, because the object is then null.
func (r *run) object(s *selection, src any) bool {
	if s.invalid != nil {
		r.failSelection(s)
		return false
	}
	if s.pieces != nil {
		return r.pieces(s, src)
	}
	start := len(r.dst)
	dst := append(r.dst, '{')
	for _, f := range s.fields {
		dst = append(dst, f.key...)
		switch {
		case f.append != nil:
			dst = f.append(dst, src)
		case f.typename != "":
			dst = append(dst, f.typename...)
		default:
			r.dst = dst
			r.path = append(r.path, step{name: f.name()})
			var ok bool
			switch {
			case f.same != nil:
				ok = r.object(f.same, src) || r.null(f.typ)
			case f.get != nil:
				ok = r.value(f, f.typ, f.get(src))
			default:
				ok = r.field(f, src)
			}
			r.path = r.path[:len(r.path)-1]
			if !ok {
				r.dst = r.dst[:start]
				return false
			}
			dst = r.dst
		}
	}
	r.dst = append(dst, '}')
	r.step(len(s.fields) + 1)
	return !r.full()
}

// field appends the value of a field that has a resolver. It reports false if the value is null but its type is
// non-null, and so do null, value and list.
func (r *run) field(f *field, src any) bool {
	if f.info != nil {
		return r.host(f, src)
	}
	value, err := r.resolve(f, src)
	if err != nil {
		r.fail(f, err)
		return r.null(f.typ)
	}
	return r.value(f, f.typ, value)
}

// resolve calls a field's resolver and returns its panic as an error.
func (r *run) resolve(f *field, src any) (value any, err error) {
	args, invalid := f.arguments(r.Bound, r.args)
	if invalid != nil {
		return nil, invalid
	}
	if f.dynamic != nil {
		r.args = args
	}
	defer guard.Recover(&err)
	if err := r.ctx.Err(); err != nil {
		return nil, err
	}
	return f.source.Resolve(r.ctx, src, args)
}

// value returns the value of the named variable and reports whether the variable is present.
func (b *Bound) value(name string) (any, bool) {
	i := b.op.variable(name)
	if i < 0 || b.variables[i] == (absent{}) {
		return nil, false
	}
	return owned(b.variables[i]), true
}

// null appends null. If the type is non-null, it appends nothing and reports false.
func (r *run) null(s *outputType) bool {
	if s.nonNull || r.overflowed {
		return false
	}
	r.dst = append(r.dst, "null"...)
	return true
}

// value appends v in the form that its type requires.
func (r *run) value(f *field, s *outputType, v any) bool {
	if isNil(v) {
		v = nil
	}
	return r.item(f, s, v)
}

// item is like value, but v is not a nil pointer, map, slice or func.
func (r *run) item(f *field, s *outputType, v any) bool {
	if v == nil {
		if s.nonNull {
			r.fail(f, errNull)
			return false
		}
		return r.null(s)
	}
	switch {
	case s.object != nil:
		return r.object(s.object, v) || r.null(s)
	case s.elem != nil:
		return r.list(f, s, v)
	case s.types != nil:
		for i := range s.types {
			if t := &s.types[i]; t.is != nil && t.is(v) {
				return r.object(t.sel, v) || r.null(s)
			}
		}
		r.fail(f, fmt.Errorf("no object type of the schema matches a value of type %T", v))
		return r.null(s)
	}
	var err error
	start := len(r.dst)
	if r.dst, err = appendLeaf(r.dst, s, v); err != nil {
		r.dst = r.dst[:start]
		r.fail(f, err)
		return r.null(s)
	}
	return !r.full()
}

func (r *run) list(f *field, s *outputType, v any) bool {
	list, err := listOf(v)
	if err != nil {
		r.fail(f, err)
		return r.null(s)
	}
	start := len(r.dst)
	r.dst = append(r.dst, '[')
	r.path = append(r.path, step{})
	defer func() { r.path = r.path[:len(r.path)-1] }()
	appendItem := r.item
	object := s.elem.object
	if _, ok := list.(reflected); ok {
		appendItem, object = r.value, nil
	}
	for i := range list.Len() {
		if i > 0 {
			r.dst = append(r.dst, ',')
		}
		r.path[len(r.path)-1].index = i
		item, ok := list.At(i), false
		if object != nil && object.pieces != nil && item != nil {
			ok = r.pieces(object, item) // as item would, in 5 % less time for a page of blocks
		} else {
			ok = appendItem(f, s.elem, item)
		}
		if !ok {
			r.dst = r.dst[:start]
			return r.null(s)
		}
	}
	r.dst = append(r.dst, ']')
	return true
}

var errNull = errors.New("got null for a non-null type")

// listOf returns v, which is a List, a slice or an array, as a List.
func listOf(v any) (List, error) {
	if list, ok := v.(List); ok {
		return list, nil
	}
	return sliceOf(v)
}

// sliceOf returns a List of the items of a slice or an array. It ignores the methods of v, even if v implements
// List.
func sliceOf(v any) (List, error) {
	rv := reflect.Indirect(reflect.ValueOf(v))
	if rv.Kind() != reflect.Slice && rv.Kind() != reflect.Array {
		return nil, fmt.Errorf("a value of type %T is not a list", v)
	}
	return reflected{rv}, nil
}

type reflected struct{ reflect.Value }

func (r reflected) At(i int) any { return r.Index(i).Interface() }

// isNil reports whether v is nil or holds a nil pointer, map, slice or func. It reports false if such a pointer,
// map, slice or func implements List or Leaf, because then its methods determine the value.
func isNil(v any) bool {
	rv := reflect.ValueOf(v)
	switch rv.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Interface, reflect.Func:
		if !rv.IsNil() {
			return false
		}
	case reflect.Invalid:
		return true
	default:
		return false
	}
	switch v.(type) {
	case List, Leaf:
		return false
	}
	return true
}

var tooManyErrors = (&Error{Message: "Further field errors are omitted.", Code: CodeLimit}).AppendJSON([]byte{','})

// fail records the error of a field. It masks an error that the client must not see.
func (r *run) fail(f *field, err error) {
	if r.errorsTruncated || r.overflowed {
		return
	}
	mask := r.maskBuiltIn
	if f.source != nil && f.source.hosted() {
		mask = r.maskHosted
	}
	known := *mask(r.ctx, err, &r.report) // a copy, because the error may be shared
	e := &known
	if e.Locations == nil {
		e.Locations = f.locations
	}
	e.Locations, e.Path = r.locations(e.Locations), make([]any, len(r.path))
	for i, s := range r.path {
		if e.Path[i] = s.name; s.name == "" {
			e.Path[i] = s.index
		}
	}
	if r.first == nil {
		r.first = e
	}
	start := len(r.errs)
	if start > 0 {
		r.errs = append(r.errs, ',')
	}
	r.errs = e.AppendJSON(r.errs)
	if note := tooManyErrors; len(r.errs)+len(note) > maxFieldErrors {
		if r.errorsTruncated = true; start == 0 {
			note = note[1:]
		}
		r.errs = append(r.errs[:start], note...)
	}
}
