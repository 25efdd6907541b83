package plan

import (
	"fmt"
	"reflect"
	"runtime/debug"

	"github.com/graphql-go/graphql"
	"github.com/vektah/gqlparser/v2/ast"
)

// A harvest runs a field of a host's with all beneath it, into a tree first:
// a resolver may give a thunk, which is called when everything that could be
// resolved without it has been, so that loaders can ask for many at once.
type harvest struct {
	*run
	base      int // of the run's path: what is above the field
	variables map[string]any
	event     any     // of a subscription
	waiting   []*node // for their thunks
	bytes     int     // of what the tree has come to
}

// A node is one value of the tree.
type node struct {
	f     *field
	shape *shape
	path  *graphql.ResponsePath
	thunk func() (any, error)
	leaf  []byte     // JSON
	sel   *selection // of an object
	list  bool
	nodes []*node // of the selection's fields, or items
}

// What a node takes of an answer's limit beside its text: less than it takes of
// memory, more than any punctuation.
const nodeBytes = 32

// host appends a field of a host's.
func (r *run) host(f *field, src any) bool {
	h := harvest{run: r, base: len(r.path)}
	if f.source.Enter != nil {
		ctx, leave, err := f.source.Enter(r.ctx, src)
		if err != nil {
			r.fail(f, err)
			return r.null(f.shape)
		}
		defer leave()
		r.ctx, ctx = ctx, r.ctx
		defer func() { r.ctx = ctx }()
	}
	var path *graphql.ResponsePath
	for _, s := range r.path {
		if path = path.WithKey(s.index); s.name != "" {
			path.Key = s.name
		}
	}
	if r.op.kind == ast.Subscription {
		h.event = src
	}
	root := &node{f: f, shape: f.shape, path: path}
	h.field(root, src)
	for len(h.waiting) > 0 && !r.over {
		level := h.waiting
		h.waiting = nil
		for _, n := range level {
			v, err := h.inTime(n.thunk)
			h.settle(n, v, err)
		}
	}
	r.path = r.path[:h.base]
	return h.write(root)
}

// field resolves the field of a node. It reports false, as all that follow do,
// where that is known to be null and must not be: the rest of what it is in is
// not asked for then.
func (h *harvest) field(n *node, src any) bool {
	if h.over {
		return false
	}
	f := n.f
	switch {
	case f.typename != nil:
		return h.text(n, f.typename)
	case f.append != nil:
		return h.text(n, f.append(nil, src))
	case f.same != nil:
		return h.object(n, f.same, src)
	case f.get != nil:
		return h.settle(n, f.get(src), nil)
	case f.info != nil:
		v, err := h.inTime(func() (any, error) { return h.resolveHosted(n, src) })
		return h.settle(n, v, err)
	}
	v, err := h.resolve(f, src)
	return h.settle(n, v, err)
}

func (h *harvest) resolveHosted(n *node, src any) (any, error) {
	f := n.f
	args, err := f.arguments(h.Bound, nil)
	if err != nil {
		return nil, err
	}
	p := graphql.ResolveParams{Source: src, Context: h.ctx, Args: h.cache.schema.hostArgs(f, args), Info: h.info(n)}
	if f.source.Resolver == nil {
		if isNil(src) {
			return nil, nil // DefaultResolveFn would fall over it
		}
		return graphql.DefaultResolveFn(p)
	}
	return f.source.Resolver(p)
}

// info is what is told of the field that a node is of.
func (h *harvest) info(n *node) graphql.ResolveInfo {
	if n.f.info == nil {
		return graphql.ResolveInfo{}
	}
	if h.variables == nil {
		h.variables = h.given()
	}
	info := *n.f.info.ResolveInfo
	info.VariableValues = h.variables
	if h.event != nil {
		info.RootValue = h.event
	}
	for info.Path = n.path; ; info.Path = info.Path.Prev {
		if _, item := info.Path.Key.(int); !item {
			return info
		}
	}
}

// inTime calls what may take its time, while there is some.
func (h *harvest) inTime(call func() (any, error)) (any, error) {
	if err := h.ctx.Err(); err != nil {
		return nil, err
	}
	return guarded(call)
}

// guarded calls what is the host's: a panic is an error of its field.
func guarded(call func() (any, error)) (v any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return call()
}

// settle gives a node its value.
func (h *harvest) settle(n *node, v any, err error) bool {
	if thunk, ok := v.(func() (any, error)); ok && err == nil && thunk != nil {
		n.thunk = thunk
		h.waiting = append(h.waiting, n)
		return true
	}
	switch s := n.shape; {
	case err != nil:
	case isVoid(v):
		if s.nonNull {
			err = errNull
		}
	case s.elem != nil:
		var list List
		if list, err = sliceOf(v); err == nil {
			return h.items(n, list)
		}
	case s.only != nil:
		return h.object(n, s.only, v)
	case s.types != nil:
		var sel *selection
		if sel, err = h.which(n, v); err == nil {
			return h.object(n, sel, v)
		}
	default:
		_, err = guarded(func() (any, error) {
			leaf, err := appendLeaf(nil, s, spelled(s, v))
			switch {
			case err != nil:
				return nil, err
			case string(leaf) != "null":
				h.text(n, leaf)
			case s.nonNull:
				return nil, errNull
			}
			return nil, nil
		})
	}
	if err != nil {
		h.fault(n, err)
	}
	return n.leaf != nil || !n.shape.nonNull
}

// isVoid tells what graphql-go takes for null: a slice or map that is nil is an
// empty one.
func isVoid(v any) bool {
	switch rv := reflect.ValueOf(v); rv.Kind() {
	case reflect.Pointer, reflect.Func:
		return rv.IsNil()
	case reflect.Invalid:
		return true
	}
	return false
}

// which finds the object type that a value of an interface or union is of.
func (h *harvest) which(n *node, v any) (*selection, error) {
	found, err := guarded(func() (any, error) {
		fits := func(t *variant) bool { return t.is != nil && t.is(v) || t.sel.is != nil && h.is(n, t.sel, v) }
		if n.shape.which != nil {
			object := n.shape.which(graphql.ResolveTypeParams{Value: v, Context: h.ctx, Info: h.info(n)})
			fits = func(t *variant) bool { return object != nil && t.name == object.Name() }
		}
		for i := range n.shape.types {
			if t := &n.shape.types[i]; fits(t) {
				return t.sel, nil
			}
		}
		return nil, fmt.Errorf("no type of the schema fits a %T", v)
	})
	sel, _ := found.(*selection)
	return sel, err
}

func (h *harvest) is(n *node, sel *selection, v any) bool {
	return sel.is(graphql.IsTypeOfParams{Value: v, Context: h.ctx, Info: h.info(n)})
}

// object asks for what is selected of an object. What waits beneath one that is
// null after all is not asked any more.
func (h *harvest) object(n *node, sel *selection, src any) bool {
	if sel.is != nil {
		_, err := guarded(func() (any, error) {
			if !h.is(n, sel, src) {
				return nil, fmt.Errorf("a %T is not of the type it is given for", src)
			}
			return nil, nil
		})
		if err != nil {
			h.fault(n, err)
			return !n.shape.nonNull
		}
	}
	waiting := len(h.waiting)
	n.sel, n.nodes = sel, make([]*node, len(sel.fields))
	for i, f := range sel.fields {
		n.nodes[i] = &node{f: f, shape: f.shape, path: n.path.WithKey(f.name)}
		h.spend(len(f.key))
		if !h.field(n.nodes[i], src) {
			n.sel, n.nodes, h.waiting = nil, nil, h.waiting[:waiting]
			return !n.shape.nonNull
		}
	}
	return true
}

func (h *harvest) items(n *node, list List) bool {
	waiting := len(h.waiting)
	n.list = true
	for i := range list.Len() {
		item := &node{f: n.f, shape: n.shape.elem, path: n.path.WithKey(i)}
		n.nodes = append(n.nodes, item)
		h.spend(0)
		if h.over || !h.settle(item, list.At(i), nil) {
			n.list, n.nodes, h.waiting = false, nil, h.waiting[:waiting]
			return !n.shape.nonNull
		}
	}
	return true
}

func (h *harvest) text(n *node, leaf []byte) bool {
	n.leaf = leaf
	h.spend(len(leaf))
	return true
}

// spend keeps the tree from growing past what may be answered.
func (h *harvest) spend(bytes int) {
	h.bytes += bytes + nodeBytes
	if n := h.bytes + len(h.dst); n > h.most {
		h.overflow(n)
	}
}

// fault records the error of a node.
func (h *harvest) fault(n *node, err error) {
	h.path = h.path[:h.base]
	for _, key := range n.path.AsArray()[h.base:] {
		switch key := key.(type) {
		case string:
			h.path = append(h.path, step{name: key})
		case int:
			h.path = append(h.path, step{index: key})
		}
	}
	h.fail(n.f, err)
}

// write appends the JSON of a node. It reports false, and leaves nothing
// behind, where one that must not be null is.
func (h *harvest) write(n *node) bool {
	if h.over {
		return false
	}
	start := len(h.dst)
	switch {
	case n.leaf != nil:
		h.dst = append(h.dst, n.leaf...)
	case n.sel != nil:
		h.dst = append(h.dst, '{')
		for i, child := range n.nodes {
			h.dst = append(h.dst, n.sel.fields[i].key...)
			if !h.write(child) {
				h.dst = h.dst[:start]
				return h.null(n.shape)
			}
		}
		h.dst = append(h.dst, '}')
	case n.list:
		h.dst = append(h.dst, '[')
		for i, child := range n.nodes {
			if i > 0 {
				h.dst = append(h.dst, ',')
			}
			if !h.write(child) {
				h.dst = h.dst[:start]
				return h.null(n.shape)
			}
		}
		h.dst = append(h.dst, ']')
	default:
		return h.null(n.shape)
	}
	return !h.full()
}
