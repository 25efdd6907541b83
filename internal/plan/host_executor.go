package plan

import (
	"fmt"

	"github.com/graphql-go/graphql"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/chaingql/chaingql/internal/guard"
)

// A hostExecutor runs a field that the host declared, with all fields below it. It first builds a tree of values,
// because a resolver may return a thunk. It calls the thunks after everything that does not depend on them has been
// resolved, so that data loaders can batch their requests.
type hostExecutor struct {
	*run
	base      int            // length of the run's path above the field
	variables map[string]any // for ResolveInfo; nil until needed
	event     any            // the event of a subscription, or nil
	thunks    []*node        // nodes with thunks that have not been called yet
	bytes     int            // estimated memory of the tree
}

// A node is one value in the tree.
type node struct {
	f     *field
	typ   *outputType
	path  *graphql.ResponsePath
	thunk func() (any, error)
	leaf  []byte     // the JSON of a leaf
	sel   *selection // the selection on an object
	list  bool
	nodes []*node // the fields of an object or the items of a list
}

// nodeBytes is the number of bytes that Limits.Answer counts for each node, in addition to its text. It is less than
// the memory of a node, but more than the punctuation of a node in the response. treeBytes is the rest of the memory of
// a node. Only the reservation of a response counts it, while the tree is in memory.
const (
	nodeBytes = 32
	treeBytes = 128
)

// host appends the value of a field that the host declared.
func (r *run) host(f *field, src any) bool {
	h := hostExecutor{run: r, base: len(r.path)}
	if f.source.Enter != nil {
		ctx, leave, err := f.source.Enter(r.ctx, src)
		if err != nil {
			r.fail(f, err)
			return r.null(f.typ)
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
	root := &node{f: f, typ: f.typ, path: path}
	h.field(root, src)
	for len(h.thunks) > 0 && !r.overflowed {
		level := h.thunks
		h.thunks = nil
		for _, n := range level {
			v, err := h.callHost(n.thunk)
			h.complete(n, v, err)
		}
	}
	r.path = r.path[:h.base]
	defer r.freeTree()
	return h.write(root)
}

// field resolves the field of a node. It reports false if the value is null although its type is non-null, and so
// do complete, object and items. The parent is then null, and its other fields need not be resolved.
func (h *hostExecutor) field(n *node, src any) bool {
	if h.overflowed {
		return false
	}
	f := n.f
	switch {
	case f.typename != "":
		return h.setLeaf(n, []byte(f.typename))
	case f.append != nil:
		return h.setLeaf(n, f.append(nil, src))
	case f.same != nil:
		return h.object(n, f.same, src)
	case f.get != nil:
		return h.complete(n, f.get(src), nil)
	case f.info != nil:
		v, err := h.callHost(func() (any, error) { return h.resolveHost(n, src) })
		return h.complete(n, v, err)
	}
	v, err := h.resolve(f, src)
	return h.complete(n, v, err)
}

func (h *hostExecutor) resolveHost(n *node, src any) (any, error) {
	f := n.f
	if f.source.Resolver == nil && f.source.declared != nil {
		return src, nil // the event of a subscription; its arguments need not be copied
	}
	args, err := h.hostArgs(f)
	if err != nil {
		return nil, err
	}
	p := graphql.ResolveParams{Source: src, Context: h.ctx, Args: args, Info: h.info(n)}
	if f.source.Resolver == nil {
		if isNil(src) {
			return nil, nil // DefaultResolveFn would panic
		}
		return graphql.DefaultResolveFn(p)
	}
	return f.source.Resolver(p)
}

// info returns the ResolveInfo of a node's field.
func (h *hostExecutor) info(n *node) graphql.ResolveInfo {
	if n.f.info == nil {
		return graphql.ResolveInfo{}
	}
	if h.variables == nil {
		h.variables = h.variableValues()
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

// callHost calls a function of the host, unless the context is done.
func (h *hostExecutor) callHost(call func() (any, error)) (any, error) {
	if err := h.ctx.Err(); err != nil {
		return nil, err
	}
	return recovered(call)
}

// recovered calls a function of the host and returns its panic as an error.
func recovered(call func() (any, error)) (v any, err error) {
	defer guard.Recover(&err)
	return call()
}

// complete sets the value of a node, as CompleteValue in the GraphQL specification does. If v is a thunk, complete
// stores the thunk, which is called later.
func (h *hostExecutor) complete(n *node, v any, err error) bool {
	if thunk, ok := v.(func() (any, error)); ok && err == nil && thunk != nil {
		n.thunk = thunk
		h.thunks = append(h.thunks, n)
		return true
	}
	switch s := n.typ; {
	case err != nil:
	case isNull(v):
		if s.nonNull {
			err = errNull
		}
	case s.elem != nil:
		var list List
		if list, err = sliceOf(v); err == nil {
			return h.items(n, list)
		}
	case s.object != nil:
		return h.object(n, s.object, v)
	case s.types != nil:
		var sel *selection
		if sel, err = h.resolveType(n, v); err == nil {
			return h.object(n, sel, v)
		}
	default:
		_, err = recovered(func() (any, error) {
			leaf, err := appendLeaf(nil, s, textOf(s, v))
			switch {
			case err != nil:
				return nil, err
			case string(leaf) != "null":
				h.setLeaf(n, leaf)
			case s.nonNull:
				return nil, errNull
			}
			return nil, nil
		})
	}
	if err != nil {
		h.failNode(n, err)
	}
	return n.leaf != nil || !n.typ.nonNull
}

// resolveType determines the object type of v, a value of an interface or union, and returns the selection on it.
func (h *hostExecutor) resolveType(n *node, v any) (*selection, error) {
	found, err := recovered(func() (any, error) {
		fits := func(t *possibleType) bool {
			return t.is != nil && t.is(v) || t.sel.isTypeOf != nil && h.isTypeOf(n, t.sel, v)
		}
		if n.typ.resolveType != nil {
			object := n.typ.resolveType(graphql.ResolveTypeParams{Value: v, Context: h.ctx, Info: h.info(n)})
			fits = func(t *possibleType) bool { return object != nil && t.name == object.Name() }
		}
		for i := range n.typ.types {
			if t := &n.typ.types[i]; fits(t) {
				return t.sel, nil
			}
		}
		return nil, fmt.Errorf("no object type of the schema matches a value of type %T", v)
	})
	sel, _ := found.(*selection)
	return sel, err
}

func (h *hostExecutor) isTypeOf(n *node, sel *selection, v any) bool {
	return sel.isTypeOf(graphql.IsTypeOfParams{Value: v, Context: h.ctx, Info: h.info(n)})
}

// object resolves the fields of sel with src as their source. If the object becomes null, it drops the thunks of
// its fields.
func (h *hostExecutor) object(n *node, sel *selection, src any) bool {
	if sel.isTypeOf != nil {
		_, err := recovered(func() (any, error) {
			if !h.isTypeOf(n, sel, src) {
				return nil, fmt.Errorf("IsTypeOf rejected a value of type %T", src)
			}
			return nil, nil
		})
		if err != nil {
			h.failNode(n, err)
			return !n.typ.nonNull
		}
	}
	if sel.invalid != nil {
		h.setPath(n)
		h.failSelection(sel)
		return !n.typ.nonNull
	}
	waiting := len(h.thunks)
	n.sel, n.nodes = sel, make([]*node, len(sel.fields))
	for i, f := range sel.fields {
		n.nodes[i] = &node{f: f, typ: f.typ, path: n.path.WithKey(f.name())}
		h.grow(len(f.key))
		if !h.field(n.nodes[i], src) {
			n.sel, n.nodes, h.thunks = nil, nil, h.thunks[:waiting]
			return !n.typ.nonNull
		}
	}
	return true
}

func (h *hostExecutor) items(n *node, list List) bool {
	waiting := len(h.thunks)
	n.list = true
	for i := range list.Len() {
		item := &node{f: n.f, typ: n.typ.elem, path: n.path.WithKey(i)}
		n.nodes = append(n.nodes, item)
		h.grow(0)
		if h.overflowed || !h.complete(item, list.At(i), nil) {
			n.list, n.nodes, h.thunks = false, nil, h.thunks[:waiting]
			return !n.typ.nonNull
		}
	}
	return true
}

func (h *hostExecutor) setLeaf(n *node, leaf []byte) bool {
	n.leaf = leaf
	h.grow(len(leaf))
	return true
}

// grow counts memory of the tree against the limit on the response.
func (h *hostExecutor) grow(bytes int) {
	h.bytes += bytes + nodeBytes
	h.treeBytes += treeBytes
	if n := h.bytes + len(h.dst); n > h.threshold {
		h.overflow(n)
	}
}

// failNode records the error of a node.
func (h *hostExecutor) failNode(n *node, err error) {
	h.setPath(n)
	h.fail(n.f, err)
}

// setPath sets the path of the run to that of a node.
func (h *hostExecutor) setPath(n *node) {
	h.path = h.path[:h.base]
	for _, key := range n.path.AsArray()[h.base:] {
		switch key := key.(type) {
		case string:
			h.path = append(h.path, step{name: key})
		case int:
			h.path = append(h.path, step{index: key})
		}
	}
}

// write appends the JSON of a node. If the node is null but its type is non-null, write appends nothing and reports
// false.
func (h *hostExecutor) write(n *node) bool {
	if h.overflowed {
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
				return h.null(n.typ)
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
				return h.null(n.typ)
			}
		}
		h.dst = append(h.dst, ']')
	default:
		return h.null(n.typ)
	}
	return !h.full()
}
