package plan

import (
	"slices"
	"sync/atomic"

	"github.com/graphql-go/graphql"
	"github.com/vektah/gqlparser/v2/ast"
)

// A Plan is a compiled operation. It is read-only.
type Plan struct {
	id   uint64
	root *selection
	// batch are the fields that are asked for together with others.
	batch []*field
	// uses counts where each variable stands.
	uses []int
	// What running it costs whatever its variables, those fields whose price
	// depends on them, and what it costs at most.
	fixed  Cost
	priced []*field
	most   Cost
	size   int
	// dependent are the fields that have more to depend on than their source.
	dependent []*field
}

// A selection is what is asked of an object, in the order of the answer.
type selection struct {
	fields []*field
	is     graphql.IsTypeOfFn // of a host's object, where it looks at its values
}

// A field is one key of an answer.
type field struct {
	key       string // as JSON, with the colon and, from the second on, the comma
	name      string // the response name, for paths: a part of key
	def       string // the field's name
	source    *Field
	append    func([]byte, any) []byte // the source's own, close at hand
	get       func(any) any
	same      *selection // of the source itself
	shape     *shape
	constant  Args // the arguments, where no variable is among them
	dynamic   []argument
	locations []Location
	typename  []byte // of __typename: the answer
	info      *hostInfo
	under     *field // what it costs, it costs for each of this one's items
	priced    int    // its place among the plan's priced fields
}

// A shape says how a value of a type becomes JSON.
type shape struct {
	nonNull bool
	elem    *shape          // of a list
	leaf    string          // of a scalar, its name
	enum    *ast.Definition // of an enum
	own     graphql.Type    // of a scalar or enum of a host's
	only    *selection      // of an object
	types   []variant       // of an interface or union
	which   graphql.ResolveTypeFn
}

// A variant is what is asked of one of the types that a value may turn out to be.
type variant struct {
	is   func(any) bool
	name string
	sel  *selection
}

// compiler makes the plan of one operation for given @skip and @include.
type compiler struct {
	c    *Cache
	tree *ast.QueryDocument
	def  *ast.OperationDefinition
	op   *operation
	on   map[string]bool
	plan *Plan
	// What a host's resolvers see of the document, made where there are any.
	mirror *mirror
	under  *field // the nearest that has a price and a list of what is being compiled
	// An interface of many types multiplies the selections past what was
	// counted in the document: fields that may still be collected, and steps
	// that may be taken, those to fragments of other types and repeated literals
	// included.
	fields, steps int
	once          map[*ast.Field]bool // fields whose literals were compiled
	sharing
}

// A sharing has the parts of a plan that stand in it more than once: a fragment can
// be spread in hundreds of places, and have names and literals of kilobytes.
type sharing struct {
	keys      map[string]string       // response names, as JSON
	leaves    map[leafSite]*leafField // those compiled last, by their first node
	arguments map[callSite]*field     // that has them
}

func newSharing() sharing {
	return sharing{map[string]string{}, map[leafSite]*leafField{}, map[callSite]*field{}}
}

// A leafSite is where a field without arguments and selections is asked for.
type leafSite struct {
	object *ast.Definition
	node   *ast.Field
	comma  bool
}

// A leafField is what the nodes of a response name were compiled to.
type leafField struct {
	nodes []*ast.Field
	field *field
}

// identities tell plans and operations apart.
var identities atomic.Uint64

func (c *Cache) compile(tree *ast.QueryDocument, def *ast.OperationDefinition, op *operation, on map[string]bool) (*Plan, *Error) {
	k := compiler{c: c, tree: tree, def: def, op: op, on: on, fields: c.limits.Fields, steps: stepsPerField * c.limits.Fields,
		once: map[*ast.Field]bool{}, sharing: newSharing(),
		plan: &Plan{id: identities.Add(1), uses: make([]int, len(op.variables)), size: planBytes + 8*len(op.variables)}}
	root := c.schema.types.Query
	if def.Operation == ast.Subscription {
		root = c.schema.types.Subscription
	}
	k.plan.root = k.selection(root, def.SelectionSet)
	if k.spent() {
		return nil, fieldsError(def, c.limits.Fields)
	}
	return k.plan, nil
}

// asked collects the fields of one response name.
type asked struct {
	name  string
	nodes []*ast.Field
}

func (k *compiler) selection(object *ast.Definition, sets ...ast.SelectionSet) *selection {
	var all []*asked
	index := map[string]*asked{}
	visited := map[string]bool{}
	var collect func(ast.SelectionSet)
	collect = func(set ast.SelectionSet) {
		for _, sel := range set {
			if k.steps--; k.spent() {
				return
			}
			switch sel := sel.(type) {
			case *ast.Field:
				if !k.included(sel.Directives) {
					continue
				}
				a := index[sel.Alias]
				if a == nil {
					a = &asked{name: sel.Alias}
					index[sel.Alias] = a
					all = append(all, a)
				}
				a.nodes = append(a.nodes, sel)
				k.fields--
			case *ast.InlineFragment:
				if k.included(sel.Directives) && k.c.schema.includes(sel.TypeCondition, object) {
					collect(sel.SelectionSet)
				}
			case *ast.FragmentSpread:
				if !k.included(sel.Directives) || visited[sel.Name] {
					continue
				}
				visited[sel.Name] = true
				if f := sel.Definition; k.c.schema.includes(f.TypeCondition, object) {
					collect(f.SelectionSet)
				}
			}
		}
	}
	for _, set := range sets {
		collect(set)
	}
	s := &selection{fields: make([]*field, 0, len(all))}
	k.plan.size += selectionBytes
	if own, ok := k.c.schema.declared[object.Name].(*graphql.Object); ok {
		s.is = own.IsTypeOf
	}
	for _, a := range all {
		if k.spent() {
			break
		}
		s.fields = append(s.fields, k.field(object, a, len(s.fields) > 0))
	}
	return s
}

func (k *compiler) spent() bool { return k.fields < 0 || k.steps < 0 }

func (k *compiler) included(directives ast.DirectiveList) bool {
	for _, d := range directives {
		if d.Name != "skip" && d.Name != "include" {
			continue
		}
		v := d.Arguments.ForName("if").Value
		on := v.Raw == "true"
		if v.Kind == ast.Variable {
			on = k.on[v.Raw]
		}
		if on == (d.Name == "skip") {
			return false
		}
	}
	return true
}

// field compiles a field. One that has neither arguments nor selections is shared
// by all places where the same nodes ask for it.
func (k *compiler) field(object *ast.Definition, a *asked, comma bool) *field {
	place := leafSite{object, a.nodes[0], comma}
	if known := k.sharing.leaves[place]; known != nil && slices.Equal(known.nodes, a.nodes) {
		return known.field
	}
	f := k.fieldOf(object, a, comma)
	if f.typename != nil || f.source.Resolve == nil && f.source.Cost == nil && f.info == nil && f.constant == nil && f.dynamic == nil && f.shape.leaf != "" {
		k.sharing.leaves[place] = &leafField{a.nodes, f}
	}
	return f
}

func (k *compiler) fieldOf(object *ast.Definition, a *asked, comma bool) *field {
	node := a.nodes[0]
	f := &field{key: k.key(a.name, comma), def: "__typename"}
	f.name = f.key[len(f.key)-len(a.name)-2:][:len(a.name)]
	k.plan.size += fieldBytes
	if node.Name == f.def {
		f.typename = AppendString(nil, object.Name)
		k.plan.size += textBytes(len(f.typename))
		return f
	}
	k.plan.size += len(a.nodes) * locationBytes
	f.locations = make([]Location, 0, len(a.nodes))
	var sets []ast.SelectionSet
	for _, n := range a.nodes {
		f.locations = append(f.locations, place(n.Position))
		if len(n.SelectionSet) > 0 {
			sets = append(sets, n.SelectionSet)
		}
	}
	def := object.Fields.ForName(node.Name)
	f.def, f.source = def.Name, k.c.schema.fields[object.Name][def.Name]
	f.append, f.get = f.source.Append, f.source.Get
	k.arguments(f, def, node)
	f.under = k.under
	if f.source.hosted() {
		f.info = k.hostInfo(object, def, a.nodes)
		if f.source.Price != nil {
			k.under = f
		}
	}
	f.shape = k.shape(def.Type, sets)
	k.under = f.under
	if f.source.Resolve != nil || f.info != nil {
		k.plan.dependent = append(k.plan.dependent, f)
		k.plan.size += listedBytes
	}
	if f.source.Same {
		f.same = f.shape.only
	}
	k.price(f)
	return f
}

// key returns a response name as the answer has it. Fields of one name share it.
func (k *compiler) key(name string, comma bool) string {
	key := `"` + name + `":`
	if comma {
		key = "," + key
	}
	if known, ok := k.keys[key]; ok {
		return known
	}
	k.keys[key] = key
	k.plan.size += textBytes(len(key))
	return key
}

// asks tells whether a field is asked for anywhere beneath.
func (s *shape) asks(name string) bool {
	if s.elem != nil {
		return s.elem.asks(name)
	}
	return s.only.asks(name) || slices.ContainsFunc(s.types, func(v variant) bool { return v.sel.asks(name) })
}

func (s *selection) asks(name string) bool {
	return s != nil && slices.ContainsFunc(s.fields, func(f *field) bool {
		return f.def == name || f.shape != nil && f.shape.asks(name)
	})
}

func (k *compiler) shape(t *ast.Type, sets []ast.SelectionSet) *shape {
	s := &shape{nonNull: t.NonNull}
	k.plan.size += shapeBytes
	if t.Elem != nil {
		s.elem = k.shape(t.Elem, sets)
		return s
	}
	def := k.c.schema.types.Types[t.NamedType]
	switch def.Kind {
	case ast.Scalar:
		s.leaf = def.Name
		s.own = k.c.schema.declared[def.Name]
	case ast.Enum:
		s.enum = def
		s.own = k.c.schema.declared[def.Name]
	case ast.Object:
		s.only = k.selection(def, sets...)
	default:
		switch t := k.c.schema.declared[def.Name].(type) {
		case *graphql.Interface:
			s.which = t.ResolveType
		case *graphql.Union:
			s.which = t.ResolveType
		}
		possible := k.c.schema.possible(def)
		s.types = make([]variant, 0, len(possible))
		k.plan.size += variantBytes * len(possible)
		for _, object := range possible {
			s.types = append(s.types, variant{k.c.schema.is[object.Name], object.Name, k.selection(object, sets...)})
		}
	}
	return s
}
