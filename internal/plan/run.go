package plan

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
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

	hostArguments map[any]map[string]any // of the host's fields; see hostArgs

	dst        []byte
	dataStart  int  // index of the response's data in dst
	threshold  int  // if dst is longer, overflow is called
	reserved   int  // length of dst for which memory is reserved
	overflowed bool // the response exceeds its limit or its reservation

	errs            []byte // the errors as JSON, with commas
	errorsTruncated bool   // errs has reached maxFieldErrors
	first           *Error
}

// runPool saves the allocation of runs and their buffers.
var runPool = sync.Pool{New: func() any { return new(run) }}

// A step of a path is a response name or, if that is empty, an index.
type step struct {
	name  string
	index int
}

// Run executes the operation with root as the source of its fields and appends the
// response to dst: data in the order of the request, then the errors if there are
// any, and the cost of a query if Limits.ShowCost is set. first is the first error or
// nil.
func (b *Bound) Run(ctx context.Context, root any, dst []byte) (response []byte, first *Error) {
	r := runPool.Get().(*run)
	// Assign the fields one by one, here and below: a composite literal copies the whole struct.
	r.Bound, r.ctx, r.dst = b, ctx, append(dst, `{"data":`...)
	start := len(r.dst)
	r.dataStart, r.threshold, r.reserved, r.steps = start, start+r.maxBytes(), 0, 0
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
	dst, first = append(r.dst, '}'), r.first
	clear(r.args[:cap(r.args)])
	r.Bound, r.ctx, r.dst, r.errs, r.first, r.overflowed, r.errorsTruncated = nil, nil, nil, nil, nil, false, false
	r.path, r.hostArguments = r.path[:0], nil
	runPool.Put(r)
	return dst, first
}

// data appends the operation's object. If an Append or a Get panics, the response
// has no data: they are called without a recover of their own.
func (r *run) data(root any) (ok bool) {
	defer func() {
		if p := recover(); p != nil {
			r.fail(&field{}, guard.New(p))
			ok = false
		}
	}()
	return r.object(r.plan.root, root)
}

// object appends a selection of src. If a non-null field has no value, it appends
// nothing and reports false: then the object is null.
func (r *run) object(s *selection, src any) bool {
	start := len(r.dst)
	dst := append(r.dst, '{')
	for _, f := range s.fields {
		dst = append(dst, f.key...)
		switch {
		case f.append != nil:
			dst = f.append(dst, src)
		case f.typename != nil:
			dst = append(dst, f.typename...)
		default:
			r.dst = dst
			r.path = append(r.path, step{name: f.name})
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

// field appends the value of a field that has a resolver. Like object, it and the
// functions below report false if a null is not allowed here.
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

// resolve calls a field's resolver. A panic becomes an error of the field.
func (r *run) resolve(f *field, src any) (value any, err error) {
	args, err := f.arguments(r.Bound, r.args)
	if err != nil {
		return nil, err
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

// arguments returns the field's arguments with the variables of b. It may use buf.
func (f *field) arguments(b *Bound, buf Args) (Args, error) {
	if f.dynamic == nil {
		return f.constant, nil
	}
	args := slices.Grow(buf[:0], len(f.dynamic))[:len(f.dynamic)]
	for i := range f.dynamic {
		a := &f.dynamic[i]
		if a.value == nil {
			args[i] = cloneValue(a.def) // a host's resolver may change it
			continue
		}
		if a.variable >= 0 {
			if value := b.variables[a.variable]; value == (absent{}) {
				if args[i] = cloneValue(a.def); a.def != nil || !a.typ.NonNull {
					continue
				}
			} else if value != nil {
				args[i] = value
				continue
			}
		}
		value, err := b.cache.schema.fromLiteral(a.typ, a.value, b.value)
		if err != nil {
			return nil, inputError("Argument %q has an invalid value: %s", a.name, err)
		}
		args[i] = value
	}
	return args, nil
}

// value returns a variable's value and whether the variable is present.
func (b *Bound) value(name string) (any, bool) {
	i := b.op.variable(name)
	if i < 0 || b.variables[i] == (absent{}) {
		return nil, false
	}
	return b.variables[i], true
}

// null appends a null, or reports false if the type is non-null.
func (r *run) null(s *outputType) bool {
	if s.nonNull || r.overflowed {
		return false
	}
	r.dst = append(r.dst, "null"...)
	return true
}

// value appends a value as its type requires.
func (r *run) value(f *field, s *outputType, v any) bool {
	if isNil(v) {
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
		r.fail(f, fmt.Errorf("no object type of the schema fits a %T", v))
		return r.null(s)
	}
	var err error
	start := len(r.dst)
	if r.dst, err = appendLeaf(r.dst, s, v); err != nil {
		r.dst = r.dst[:start]
		r.fail(f, err)
		return r.null(s)
	}
	return true
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
	for i := range list.Len() {
		if i > 0 {
			r.dst = append(r.dst, ',')
		}
		r.path[len(r.path)-1].index = i
		if !r.value(f, s.elem, list.At(i)) {
			r.dst = r.dst[:start]
			return r.null(s)
		}
	}
	r.dst = append(r.dst, ']')
	return true
}

var errNull = errors.New("null for a non-null field")

// listOf returns v as a List.
func listOf(v any) (List, error) {
	if list, ok := v.(List); ok {
		return list, nil
	}
	return sliceOf(v)
}

// sliceOf returns a List of a slice's items, even if v implements List.
func sliceOf(v any) (List, error) {
	rv := reflect.Indirect(reflect.ValueOf(v))
	if rv.Kind() != reflect.Slice && rv.Kind() != reflect.Array {
		return nil, fmt.Errorf("a %T is not a list", v)
	}
	return reflected{rv}, nil
}

type reflected struct{ reflect.Value }

func (r reflected) At(i int) any { return r.Index(i).Interface() }

// isNil reports whether v is nil or holds a nil pointer, map, slice or func. A List
// or a Leaf is never nil: its methods decide.
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

var tooManyErrors = (&Error{Message: "Further field errors are left out.", Code: CodeLimit}).AppendJSON([]byte{','})

// fail records a field's error. It masks an error that is not for the client.
func (r *run) fail(f *field, err error) {
	if r.errorsTruncated || r.overflowed {
		return
	}
	mask := r.maskBuiltIn
	if f.source != nil && f.source.hosted() {
		mask = r.Mask
	}
	e := mask(r.ctx, err)
	known := *e // e may be shared
	e = &known
	e.Locations, e.Path = r.locations(f), make([]any, len(r.path))
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
