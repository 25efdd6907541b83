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
	size int   // memory in bytes
	uses []int // of each variable

	fixedCost Cost     // independent of variables
	priced    []*field // whose cost depends on variables
	maxCost   Cost     // for any variables

	batch     []*field // with a selected [Field].Batch
	dependent []*field // with a value that may depend on more than its source
}

// A selection is the fields that are selected of an object, in the order of the
// response.
type selection struct {
	fields   []*field
	isTypeOf graphql.IsTypeOfFn // of an object type of the host; may be nil
}

// A field is one key of a response object. One of typename, append, same, get, info
// and source.Resolve produces its value.
type field struct {
	key          string // the response name as JSON with a colon, and before it a comma if it is not the first
	name         string // the response name, for paths: a part of key
	fieldName    string
	source       *Field
	append       func([]byte, any) []byte // a copy of source.Append
	get          func(any) any
	same         *selection // if source.Same: the selection of the source itself
	typ          *outputType
	constant     Args       // the arguments, if there is no variable among them
	dynamic      []argument // else the arguments
	locations    []Location
	typename     []byte // the value of __typename
	info         *hostInfo
	pricedParent *field // multiplies the cost by its number of items; may be nil
	priceIndex   int    // index in Plan.priced
}

// An outputType is the type of a field or a list item: how a value becomes JSON.
type outputType struct {
	nonNull     bool
	elem        *outputType     // of a list
	leaf        string          // name of a scalar
	enum        *ast.Definition // of an enum
	hostType    graphql.Type    // of a scalar or enum of the host
	object      *selection      // of an object
	types       []possibleType  // of an interface or union
	resolveType graphql.ResolveTypeFn
}

// A possibleType is an object type of an interface or union, with its selection.
type possibleType struct {
	is   func(any) bool
	name string
	sel  *selection
}

// A compiler makes the plan of one operation.
type compiler struct {
	c            *Cache
	tree         *ast.QueryDocument
	def          *ast.OperationDefinition
	op           *operation
	on           map[string]bool // values of the variables of @skip and @include
	plan         *Plan
	hostAST      *hostAST // nil until a field of the host needs it
	pricedParent *field   // the nearest priced field above the current one

	// The limits that are left: fields that may be collected, and steps that may be
	// taken, also to fragments of other types and for repeated literals. The limits of
	// the document are not enough: an interface of many types multiplies selections.
	fields, steps int
	compiled      map[*ast.Field]bool // fields whose literals were compiled
	uncounted     int                 // steps that were taken for that

	sharing
}

// A sharing has parts of a plan that occur more than once in it: a fragment may be
// spread in hundreds of places and have names and literals of kilobytes.
type sharing struct {
	keys      map[string]string       // response names as JSON
	fields    map[site][]*sharedField // that cost nothing
	arguments map[callSite]*field     // the first field that was compiled from each site
}

func newSharing() sharing {
	return sharing{map[string]string{}, map[site][]*sharedField{}, map[callSite]*field{}}
}

// A site identifies a field in the document.
type site struct {
	object *ast.Definition
	node   *ast.Field
	comma  bool
}

// A sharedField is the field that nodes with one response name were compiled to, with
// all fields below. Each further place of it counts as if it was compiled again.
type sharedField struct {
	nodes         []*ast.Field
	field         *field
	fields, steps int
}

// identities is the last id of a plan or an operation.
var identities atomic.Uint64

// compile returns the plan of an operation. on has the values of the variables of
// @skip and @include.
func (c *Cache) compile(
	tree *ast.QueryDocument, def *ast.OperationDefinition, op *operation, on map[string]bool,
) (*Plan, *Error) {
	k := compiler{c: c, tree: tree, def: def, op: op, on: on,
		fields: c.limits.Fields, steps: stepsPerField * c.limits.Fields,
		compiled: map[*ast.Field]bool{}, sharing: newSharing(),
		plan: &Plan{id: identities.Add(1), uses: make([]int, len(op.variables)), size: planBytes + 8*len(op.variables)}}
	root := c.schema.types.Query
	if def.Operation == ast.Subscription {
		root = c.schema.types.Subscription
	}
	k.plan.root = k.selection(root, def.SelectionSet)
	if k.exhausted() {
		return nil, fieldsError(def, c.limits.Fields)
	}
	return k.plan, nil
}

// A fieldGroup is the fields of one response name.
type fieldGroup struct {
	name  string
	nodes []*ast.Field
}

// selection compiles the merged selection sets of an object type.
func (k *compiler) selection(object *ast.Definition, sets ...ast.SelectionSet) *selection {
	var all []*fieldGroup
	index := map[string]*fieldGroup{}
	visited := map[string]bool{}
	var collect func(ast.SelectionSet)
	collect = func(set ast.SelectionSet) {
		for _, sel := range set {
			if k.steps--; k.exhausted() {
				return
			}
			switch sel := sel.(type) {
			case *ast.Field:
				if !k.included(sel.Directives) {
					continue
				}
				a := index[sel.Alias]
				if a == nil {
					a = &fieldGroup{name: sel.Alias}
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
		s.isTypeOf = own.IsTypeOf
	}
	for _, a := range all {
		if k.exhausted() {
			break
		}
		s.fields = append(s.fields, k.field(object, a, len(s.fields) > 0))
	}
	return s
}

func (k *compiler) exhausted() bool { return k.fields < 0 || k.steps < 0 }

// included reports whether @skip and @include include a selection.
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

// field compiles a field. One that costs nothing is compiled once for all places that
// select it by the same nodes.
func (k *compiler) field(object *ast.Definition, a *fieldGroup, comma bool) *field {
	place := site{object, a.nodes[0], comma}
	for _, known := range k.sharing.fields[place] {
		if slices.Equal(known.nodes, a.nodes) {
			k.fields -= known.fields
			k.steps = max(k.steps-known.steps, -1) // which were not taken
			return known.field
		}
	}
	cost, priced, batch := k.plan.fixedCost, len(k.plan.priced), len(k.plan.batch)
	fields, steps := k.fields, k.steps-k.uncounted
	f := k.newField(object, a, comma)
	if k.plan.fixedCost == cost && len(k.plan.priced) == priced && len(k.plan.batch) == batch {
		shared := &sharedField{a.nodes, f, fields - k.fields, steps - k.steps + k.uncounted}
		k.sharing.fields[place] = append(k.sharing.fields[place], shared)
	}
	return f
}

func (k *compiler) newField(object *ast.Definition, a *fieldGroup, comma bool) *field {
	node := a.nodes[0]
	f := &field{key: k.key(a.name, comma), fieldName: "__typename"}
	f.name = f.key[len(f.key)-len(a.name)-2:][:len(a.name)]
	k.plan.size += fieldBytes
	if node.Name == f.fieldName {
		f.typename = AppendString(nil, object.Name)
		k.plan.size += textBytes(len(f.typename))
		return f
	}
	k.plan.size += len(a.nodes) * locationBytes
	f.locations = make([]Location, 0, len(a.nodes))
	var sets []ast.SelectionSet
	for _, n := range a.nodes {
		f.locations = append(f.locations, location(n.Position))
		if len(n.SelectionSet) > 0 {
			sets = append(sets, n.SelectionSet)
		}
	}
	def := object.Fields.ForName(node.Name)
	f.fieldName, f.source = def.Name, k.c.schema.fields[object.Name][def.Name]
	f.append, f.get = f.source.Append, f.source.Get
	k.arguments(f, def, node)
	f.pricedParent = k.pricedParent
	if f.source.hosted() {
		f.info = k.hostInfo(object, def, a.nodes)
		if f.source.Price != nil {
			k.pricedParent = f
		}
	}
	f.typ = k.outputType(def.Type, sets)
	k.pricedParent = f.pricedParent
	if f.source.Resolve != nil || f.info != nil {
		k.plan.dependent = append(k.plan.dependent, f)
		k.plan.size += listedBytes
	}
	if f.source.Same {
		f.same = f.typ.object
	}
	k.price(f)
	return f
}

// key returns a response name as field.key. Fields with the same name share it.
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

// selects reports whether a field with this name is selected at any depth.
func (s *outputType) selects(name string) bool {
	if s.elem != nil {
		return s.elem.selects(name)
	}
	return s.object.selects(name) || slices.ContainsFunc(s.types, func(v possibleType) bool { return v.sel.selects(name) })
}

func (s *selection) selects(name string) bool {
	return s != nil && slices.ContainsFunc(s.fields, func(f *field) bool {
		return f.fieldName == name || f.typ != nil && f.typ.selects(name)
	})
}

func (k *compiler) outputType(t *ast.Type, sets []ast.SelectionSet) *outputType {
	s := &outputType{nonNull: t.NonNull}
	k.plan.size += outputTypeBytes
	if t.Elem != nil {
		s.elem = k.outputType(t.Elem, sets)
		return s
	}
	def := k.c.schema.types.Types[t.NamedType]
	switch def.Kind {
	case ast.Scalar:
		s.leaf = def.Name
		s.hostType = k.c.schema.declared[def.Name]
	case ast.Enum:
		s.enum = def
		s.hostType = k.c.schema.declared[def.Name]
	case ast.Object:
		s.object = k.selection(def, sets...)
	default:
		switch t := k.c.schema.declared[def.Name].(type) {
		case *graphql.Interface:
			s.resolveType = t.ResolveType
		case *graphql.Union:
			s.resolveType = t.ResolveType
		}
		possible := k.c.schema.possible(def)
		s.types = make([]possibleType, 0, len(possible))
		k.plan.size += possibleTypeBytes * len(possible)
		for _, object := range possible {
			s.types = append(s.types, possibleType{k.c.schema.is[object.Name], object.Name, k.selection(object, sets...)})
		}
	}
	return s
}
