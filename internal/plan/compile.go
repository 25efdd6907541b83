package plan

import (
	"math"
	"strings"
	"sync/atomic"

	"github.com/graphql-go/graphql"
	"github.com/vektah/gqlparser/v2/ast"
)

// A Plan is a compiled operation. It is read-only.
type Plan struct {
	// id identifies the plan in this process.
	id uint64
	// root is the selection on the root type.
	root *selection
	// size is the memory of the plan in bytes.
	size int
	// uses has the number of uses of each variable.
	uses []int

	// fixedCost is the part of the cost that is the same for all variables.
	fixedCost Cost
	// priced has the fields with a cost that is computed for each request.
	priced []pricedField
	// maxCost is the maximum cost for any variables.
	maxCost Cost

	// batch has the fields that need a batch read. See [Bound.Batch].
	batch []*field
	// dependent has the fields whose value may depend on more than their source.
	dependent []*field
}

// A selection has the fields that are selected on an object, in the order of the response.
type selection struct {
	fields   []*field
	pieces   []piece            // the whole object, if all its fields need only its source; otherwise nil
	prepared []preparedPiece    // pieces for Prepared items of a list
	isTypeOf graphql.IsTypeOfFn // of an object type that the host declared; may be nil
	invalid  *Error             // a condition in the selection is null, so it has no fields and the object is an error
}

// A field produces one key of a response object and its value. The value comes from one of typename, append, same,
// get, info and source.Resolve.
type field struct {
	*callArguments // not nil

	// key is the response name in JSON and a colon. A comma precedes it unless the field is the first.
	key       string
	source    *Field                   // nil for __typename
	append    func([]byte, any) []byte // a copy of source.Append
	get       func(any) any            // a copy of source.Get
	same      *selection               // if source.Same is set: the selection on the source itself
	typ       *outputType
	locations []Location // nil if the field cannot fail
	typename  string     // the value of __typename as JSON
	info      *hostInfo  // set if the field is a field of the host
}

// callArguments are the compiled arguments of a field. All fields that were compiled from the same place share them.
type callArguments struct {
	constant Args       // the arguments, if they contain no variable
	dynamic  []argument // the arguments, if they contain variables
}

var noArguments = new(callArguments)

// name returns the response name.
func (f *field) name() string { return strings.TrimPrefix(f.key[:len(f.key)-len(`":`)], ",")[1:] }

// declaredName returns the name that the schema declares.
func (f *field) declaredName() string {
	if f.source == nil {
		return "__typename"
	}
	return f.source.Name
}

// An outputType is the type of a field or of a list item. It determines how a value is written as JSON.
type outputType struct {
	nonNull     bool
	elem        *outputType           // the item type of a list
	leaf        string                // the name of a scalar
	enum        *ast.Definition       // the definition of an enum
	hostType    graphql.Type          // a scalar or enum that the host declared
	object      *selection            // the selection on an object
	types       []possibleType        // the object types of an interface or union
	resolveType graphql.ResolveTypeFn // of an interface or union that the host declared; may be nil
}

// A possibleType is one object type of an interface or union, with the selection on it.
type possibleType struct {
	is   func(any) bool // reports whether a value is of this type; may be nil
	name string
	sel  *selection
}

// A compiler makes the plan of one operation.
type compiler struct {
	c            *Cache
	tree         *ast.QueryDocument
	def          *ast.OperationDefinition
	op           *operation
	on           map[string]any // values of the variables that @skip and @include use
	plan         *Plan
	hostAST      *hostAST // nil until a field of the host needs it
	pricedParent *field   // the nearest host field with a price above the current field

	// fields is the number of fields that may still be collected. steps is the number of steps that may still be
	// taken: each visit of a selection is a step, even in a fragment on another type, and so is each repeated literal.
	// The limits on the document do not suffice, because an interface with many types multiplies the selections on it.
	fields, steps int

	// values is the number of values that may still be nested in the arguments of the host's fields, including defaults
	// of input types. Each run copies these arguments.
	values int

	compiled  map[*ast.Field]bool // fields with literals that have been compiled at least once
	uncounted int                 // steps for the first compilation of literals, which do not count

	sharing
}

// identities is the last id that was assigned to a plan or an operation.
var identities atomic.Uint64

// compile returns the plan of an operation. on has the values of the variables that @skip and @include use.
func (c *Cache) compile(
	tree *ast.QueryDocument, def *ast.OperationDefinition, op *operation, on map[string]any,
) (*Plan, *Error) {
	k := compiler{c: c, tree: tree, def: def, op: op, on: on,
		fields: c.limits.Fields, steps: stepsPerField * c.limits.Fields, values: math.MaxInt,
		compiled: map[*ast.Field]bool{}, sharing: newSharing(),
		plan: &Plan{id: identities.Add(1), uses: make([]int, len(op.variables)), size: planBytes + 8*len(op.variables)}}
	if c.limits.Tokens > 0 {
		k.values = c.limits.Tokens
	}
	root := c.schema.types.Query
	if def.Operation == ast.Subscription {
		root = c.schema.types.Subscription
	}
	k.plan.root = k.selection(root, def.SelectionSet)
	if k.values < 0 {
		return nil, limitError("Tokens", def.Position, "The arguments exceed the limit of %d values.", c.limits.Tokens)
	}
	if k.exhausted() {
		return nil, fieldsError(def, c.limits.Fields)
	}
	return k.plan, nil
}

// selection merges selection sets on an object type and compiles them.
func (k *compiler) selection(object *ast.Definition, sets ...ast.SelectionSet) *selection {
	var nodes occurrences
	visited := map[string]bool{}
	var invalid *Error
	included := func(directives ast.DirectiveList) (yes bool) {
		if invalid == nil {
			yes, invalid = k.included(directives)
		}
		return yes
	}
	var collect func(ast.SelectionSet)
	collect = func(set ast.SelectionSet) {
		for _, sel := range set {
			if k.steps--; k.exhausted() || invalid != nil {
				return
			}
			switch sel := sel.(type) {
			case *ast.Field:
				if !included(sel.Directives) {
					continue
				}
				nodes = append(nodes, sel)
				k.fields--
			case *ast.InlineFragment:
				if included(sel.Directives) && k.c.schema.includes(sel.TypeCondition, object) {
					collect(sel.SelectionSet)
				}
			case *ast.FragmentSpread:
				if !included(sel.Directives) || visited[sel.Name] {
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
	s := &selection{}
	k.plan.size += selectionBytes
	if own, ok := k.c.schema.declared[object.Name].(*graphql.Object); ok {
		s.isTypeOf = own.IsTypeOf
	}
	if s.invalid = invalid; invalid != nil {
		k.plan.size += errorBytes + textBytes(len(invalid.Message))
		return s
	}
	groups := groupBy(nodes, responseName)
	s.fields = make([]*field, 0, len(groups))
	for _, group := range groups {
		if k.exhausted() {
			break
		}
		s.fields = append(s.fields, k.field(object, group, len(s.fields) > 0))
	}
	s.pieces = k.pieces(s.fields)
	return s
}

func (k *compiler) exhausted() bool { return k.fields < 0 || k.steps < 0 || k.values < 0 }

// field compiles the field nodes with one response name.
func (k *compiler) field(object *ast.Definition, nodes occurrences, comma bool) *field {
	return share(k, k.sharing.fields, site{object, nodes[0], comma}, nodes, func() *field {
		return k.newField(object, nodes, comma)
	})
}

func (k *compiler) newField(object *ast.Definition, nodes occurrences, comma bool) *field {
	node := nodes[0]
	f := &field{key: k.key(node.Alias, comma), callArguments: noArguments}
	k.plan.size += fieldBytes
	if node.Name == "__typename" {
		f.typename = k.text(AppendString(nil, object.Name))
		return f
	}
	def := object.Fields.ForName(node.Name)
	f.source = k.c.schema.fields[object.Name][def.Name]
	f.append, f.get = f.source.Append, f.source.Get
	if f.append == nil {
		k.plan.size += len(nodes) * locationBytes
		f.locations = make([]Location, 0, len(nodes))
		for _, n := range nodes {
			f.locations = append(f.locations, location(n.Position))
		}
	}
	k.arguments(f, def, node)
	pricedParent := k.pricedParent
	if f.source.hosted() {
		f.info = k.hostInfo(object, def, nodes)
		f.info.pricedParent = pricedParent
		if f.source.Price != nil {
			k.pricedParent = f
		}
	}
	if sets := nodes.selectionSets(); sets == nil {
		f.typ = k.leafType(def.Type)
	} else {
		f.typ = share(k, k.sharing.types, site{object, node, false}, nodes, func() *outputType {
			return k.outputType(def.Type, sets)
		})
	}
	k.pricedParent = pricedParent
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

// leafType returns the output type of a field without a selection. All fields that the schema declares with the type t
// share it.
func (k *compiler) leafType(t *ast.Type) *outputType {
	known := k.leaves[t]
	if known == nil {
		known = k.outputType(t, nil)
		k.leaves[t] = known
	}
	return known
}

func (k *compiler) outputType(t *ast.Type, sets []ast.SelectionSet) *outputType {
	s := &outputType{nonNull: t.NonNull}
	k.plan.size += outputTypeBytes
	if t.Elem != nil {
		s.elem = k.outputType(t.Elem, sets)
		if s.elem.object != nil {
			s.elem.object.prepared = k.preparedPieces(s.elem.object.pieces)
		}
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
			sel := k.selection(object, sets...)
			s.types = append(s.types, possibleType{k.c.schema.is[object.Name], object.Name, sel})
		}
	}
	return s
}
