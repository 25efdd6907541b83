package plan

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime/debug"
	"slices"
	"sync"
)

// run is one execution of a plan.
type run struct {
	*Bound
	ctx     context.Context
	dst     []byte
	path    []step
	errs    []byte
	start   int  // where data begins in dst
	most    int  // what dst may grow to before overflow is asked
	room    int  // what the Room has been asked for
	over    bool // it has
	flooded bool // the errors reached their bound
	args    Args // of the field whose resolver runs
}

// runs are used again, for what they have grown.
var runs = sync.Pool{New: func() any { return new(run) }}

// A step of a path is a response name or, where that is empty, an index.
type step struct {
	name  string
	index int
}

// Run runs the operation and appends the whole answer to dst, as JSON: data in
// the order of the request, and errors where there are any. root is what the
// fields of the operation's type find as their source.
func (b *Bound) Run(ctx context.Context, root any, dst []byte) []byte {
	r := runs.Get().(*run)
	// One by one, here and below: all at once is a copy of all.
	r.Bound, r.ctx, r.dst = b, ctx, append(dst, `{"data":`...)
	start := len(r.dst)
	r.start, r.most, r.room = start, start+r.limit(), 0
	if b.Room != nil {
		r.most = min(r.most, start+firstRoom)
	}
	if !r.data(root) {
		r.dst = append(r.dst[:start], "null"...)
	}
	if len(r.errs) > 0 {
		r.dst = append(r.dst, `,"errors":[`...)
		r.dst = append(r.dst, r.errs...)
		r.dst = append(r.dst, ']')
	}
	dst = append(r.dst, '}')
	clear(r.args[:cap(r.args)])
	r.Bound, r.ctx, r.dst, r.errs, r.over, r.flooded = nil, nil, nil, nil, false, false
	r.path = r.path[:0]
	runs.Put(r)
	return dst
}

// data appends the operation's object. A panic of what needs nothing but its
// source and so has no net of its own leaves no data.
func (r *run) data(root any) (ok bool) {
	defer func() {
		if p := recover(); p != nil {
			r.fail(&field{}, fmt.Errorf("panic: %v\n%s", p, debug.Stack()))
			ok = false
		}
	}()
	return r.object(r.plan.root, root)
}

// object appends what is asked of an object. It reports false, and leaves
// nothing behind, where a field that must not be null is: the null is the
// object's then.
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
		case f.same != nil:
			r.dst = dst
			r.path = append(r.path, step{name: f.name})
			ok := r.object(f.same, src) || r.null(f.shape)
			r.path = r.path[:len(r.path)-1]
			if !ok {
				r.dst = r.dst[:start]
				return false
			}
			dst = r.dst
		default:
			r.dst = dst
			r.path = append(r.path, step{name: f.name})
			var ok bool
			if f.get != nil {
				ok = r.value(f, f.shape, f.get(src))
			} else {
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
	return !r.full()
}

func (r *run) field(f *field, src any) bool {
	if f.info != nil {
		return r.host(f, src)
	}
	value, err := r.resolve(f, src)
	if err != nil {
		r.fail(f, err)
		return r.null(f.shape)
	}
	return r.value(f, f.shape, value)
}

// resolve asks a field's resolver for its value. What a resolver panics with is
// an error of its field, not of the process.
func (r *run) resolve(f *field, src any) (value any, err error) {
	args, err := f.arguments(r.Bound, r.args)
	if err != nil {
		return nil, err
	}
	if f.dynamic != nil {
		r.args = args
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	if err := r.ctx.Err(); err != nil {
		return nil, err
	}
	return f.source.Resolve(r.ctx, src, args)
}

// arguments are the field's, with the variables of b, in room where there is
// some.
func (f *field) arguments(b *Bound, room Args) (Args, error) {
	if f.dynamic == nil {
		return f.constant, nil
	}
	args := slices.Grow(room[:0], len(f.dynamic))[:len(f.dynamic)]
	for i := range f.dynamic {
		a := &f.dynamic[i]
		if a.value == nil {
			args[i] = a.def
			continue
		}
		if a.variable >= 0 {
			if value := b.variables[a.variable]; value == (absent{}) {
				if args[i] = a.def; a.def != nil || !a.typ.NonNull {
					continue
				}
			} else if value != nil {
				args[i] = value
				continue
			}
		}
		value, err := b.cache.schema.fromLiteral(a.typ, a.value, b.value)
		if err != nil {
			return nil, &Error{Message: fmt.Sprintf("Argument %q has an invalid value: %s", a.name, err), Code: CodeInput}
		}
		args[i] = value
	}
	return args, nil
}

// value is a variable's value; an absent one has none.
func (b *Bound) value(name string) (any, bool) {
	i := b.op.variable(name)
	if i < 0 || b.variables[i] == (absent{}) {
		return nil, false
	}
	return b.variables[i], true
}

// null appends a null where one may stand, or reports that none may.
func (r *run) null(s *shape) bool {
	if s.nonNull || r.over {
		return false
	}
	r.dst = append(r.dst, "null"...)
	return true
}

// value appends a value in the shape of its type.
func (r *run) value(f *field, s *shape, v any) bool {
	if isNil(v) {
		if s.nonNull {
			r.fail(f, errNull)
			return false
		}
		return r.null(s)
	}
	switch {
	case s.only != nil:
		return r.object(s.only, v) || r.null(s)
	case s.elem != nil:
		return r.list(f, s, v)
	case s.types != nil:
		for i := range s.types {
			if t := &s.types[i]; t.is != nil && t.is(v) {
				return r.object(t.sel, v) || r.null(s)
			}
		}
		r.fail(f, fmt.Errorf("no type of the schema fits a %T", v))
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

func (r *run) list(f *field, s *shape, v any) bool {
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

var errNull = errors.New("a resolver gave null where none may be")

// listOf is a List, or makes one of a slice.
func listOf(v any) (List, error) {
	if list, ok := v.(List); ok {
		return list, nil
	}
	return sliceOf(v)
}

// sliceOf makes a List of a slice, whatever methods it has.
func sliceOf(v any) (List, error) {
	rv := reflect.Indirect(reflect.ValueOf(v))
	if rv.Kind() != reflect.Slice && rv.Kind() != reflect.Array {
		return nil, fmt.Errorf("a %T is no list", v)
	}
	return reflected{rv}, nil
}

type reflected struct{ reflect.Value }

func (r reflected) At(i int) any { return r.Index(i).Interface() }

// isNil also finds a nil pointer, map or slice in an interface. What counts or
// writes itself knows best what it is.
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

// fail records a field's error. One that is not for the client is masked.
func (r *run) fail(f *field, err error) {
	if r.flooded || r.over {
		return
	}
	mask := r.maskBuiltIn
	if f.source != nil && f.source.hosted() {
		mask = r.Mask
	}
	e := mask(r.ctx, err)
	known := *e // which may be shared
	e = &known
	e.Locations, e.Path = r.locations(f), make([]any, len(r.path))
	for i, s := range r.path {
		if e.Path[i] = s.name; s.name == "" {
			e.Path[i] = s.index
		}
	}
	start := len(r.errs)
	if start > 0 {
		r.errs = append(r.errs, ',')
	}
	r.errs = e.AppendJSON(r.errs)
	if note := tooManyErrors; len(r.errs)+len(note) > maxFieldErrors {
		if r.flooded = true; start == 0 {
			note = note[1:]
		}
		r.errs = append(r.errs[:start], note...)
	}
}
