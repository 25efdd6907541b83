package plan

import (
	"fmt"

	"github.com/vektah/gqlparser/v2/ast"
)

// Limits are the limits on documents, on their execution and on the cache. The limits on documents are checked
// before any rule that takes more than linear time.
//
// If a limit is zero or negative, there is no limit, with three exceptions. Without CacheBytes, nothing is cached.
// Without Depth and Fields, maxNesting and maxFields apply, because no document could be walked safely
// without any limit.
type Limits struct {
	// Document is the maximum length of a document in bytes.
	Document int
	// Tokens is the maximum number of lexical tokens in a document, of values in the variables of a request, and of
	// values in the arguments that an operation passes to the host's fields.
	Tokens int
	// Depth is the maximum number of nested selection sets, lists, objects and list types.
	Depth int
	// Fields is the maximum number of fields in an operation after its fragments are expanded for each object type.
	Fields int
	// Aliases is the maximum number of aliases in a document.
	Aliases int
	// Directives is the maximum number of directives in a document.
	Directives int
	// FieldRepeats is the maximum number of fields with the same response name in one selection set, before fragments
	// are expanded.
	FieldRepeats int
	// Operations is the maximum number of operations in a document.
	Operations int
	// Fragments is the maximum number of fragment definitions in a document.
	Fragments int
	// Variables is the maximum number of variables of an operation.
	Variables int
	// ListItems is the maximum number of items in one list, in a literal or in a variable. It also limits the fields of
	// an object literal.
	ListItems int

	// Calls is the maximum number of backend calls that a query may cost. See [Cost].
	Calls int
	// Blocks is the maximum number of blocks that a query may read.
	Blocks int
	// Answer is the maximum length of the data in a response in bytes.
	Answer int

	// CacheBytes is the maximum memory of all cached documents in bytes.
	CacheBytes int
	// NoIntrospect turns introspection off.
	NoIntrospect bool
	// ShowCost adds the cost of a query to its response.
	ShowCost bool
}

// maxFields is the maximum number of fields if Limits.Fields is not set. Without any limit, fragments that spread
// each other twice would expand to more fields than fit in memory.
const maxFields = 100_000

// stepsPerField is the maximum number of steps for each of the fields that Limits.Fields allows. Steps need a limit
// of their own, because the same selections are visited for several types, even if they apply to none of them.
const stepsPerField = 20

func (l Limits) withDefaults() Limits {
	if l.Fields <= 0 {
		l.Fields = maxFields
	}
	l.Fields = min(l.Fields, maxSum/stepsPerField) // so that capped sums can exceed it, and steps cannot overflow
	if l.Depth <= 0 || l.Depth > maxNesting {
		l.Depth = maxNesting
	}
	return l
}

// limitError returns the error for an exceeded limit. The name of the limit is for the host.
func limitError(limit string, pos *ast.Position, format string, args ...any) *Error {
	return &Error{Message: fmt.Sprintf(format, args...), Code: CodeLimit, Locations: locationsOf(pos), Limit: limit}
}

// locationsOf returns the locations of all positions that are not nil.
func locationsOf(pos ...*ast.Position) []Location {
	var locations []Location
	for _, p := range pos {
		if p != nil {
			locations = append(locations, location(p))
		}
	}
	return locations
}

func location(p *ast.Position) Location { return Location{p.Line, p.Column} }

// A measurement checks the structural limits of a parsed document. It walks each fragment once and stores its size,
// so its time is linear in the document even if the fragments spread each other often. Validation rejects cycles of
// fragments and fragments with the same name.
type measurement struct {
	Limits
	fragments  map[string]*ast.FragmentDefinition
	sizes      map[string]size // sizes of fragments, by name
	openSets   int             // number of nested selection sets that are being walked
	aliases    int
	directives int
	err        *Error
}

// A size is the size of a selection set after fragments are expanded.
type size struct {
	fields, depth int
}

// maxSum is the maximum at which sums of sizes are capped. The sizes of fragments that spread each other twice
// would overflow an int. The sum of two capped sums still fits in 32 bits.
const maxSum = 1 << 29

// check checks the structural limits of a document.
func (l Limits) check(doc *ast.QueryDocument) *Error {
	m := measurement{Limits: l, sizes: map[string]size{}, fragments: map[string]*ast.FragmentDefinition{}}
	if l.Operations > 0 && len(doc.Operations) > l.Operations {
		return limitError("Operations", doc.Operations[l.Operations].Position,
			"The document exceeds the limit of %d operations.", l.Operations)
	}
	if l.Fragments > 0 && len(doc.Fragments) > l.Fragments {
		return limitError("Fragments", doc.Fragments[l.Fragments].Position,
			"The document exceeds the limit of %d fragments.", l.Fragments)
	}
	for _, f := range doc.Fragments {
		if m.fragments[f.Name] == nil {
			m.fragments[f.Name] = f
		}
	}
	for _, op := range doc.Operations {
		m.operation(op)
	}
	for _, f := range doc.Fragments {
		m.countDirectives(f.Directives, 0)
		if m.fragments[f.Name] == f {
			m.fragment(f.Name)
		} else { // a second fragment with this name
			m.set(f.SelectionSet, 0)
		}
	}
	return m.err
}

func (m *measurement) operation(op *ast.OperationDefinition) {
	if m.Variables > 0 && len(op.VariableDefinitions) > m.Variables {
		m.fail("Variables", op.VariableDefinitions[m.Variables].Position,
			"The operation exceeds the limit of %d variables.", m.Variables)
	}
	for _, v := range op.VariableDefinitions {
		levels := 0
		for t := v.Type; t.Elem != nil; t = t.Elem {
			levels++
		}
		m.checkDepth(levels, v.Position)
		m.value(v.DefaultValue, 0)
		m.countDirectives(v.Directives, 0)
	}
	m.countDirectives(op.Directives, 0)
	total := m.set(op.SelectionSet, 0)
	if total.fields > m.Fields {
		m.reject(fieldsError(op, m.Fields))
	}
}

func fieldsError(op *ast.OperationDefinition, limit int) *Error {
	return limitError("Fields", op.Position,
		"The operation exceeds the limit of %d fields with its fragments written out for each type.", limit)
}

func depthError(pos *ast.Position, limit int) *Error {
	return limitError("Depth", pos, "The document exceeds the limit of %d nested levels.", limit)
}

// set measures a selection set. level is its nesting level within its operation or fragment.
func (m *measurement) set(set ast.SelectionSet, level int) size {
	var total size
	if len(set) == 0 || m.err != nil {
		return total
	}
	if m.checkDepth(level+1, set[0].GetPosition()); m.err != nil {
		return total
	}
	m.openSets++
	defer func() { m.openSets-- }()
	if m.openSets > maxNesting { // set also recurses for fragments, which nest nothing in the text
		m.reject(depthError(set[0].GetPosition(), maxNesting))
	}
	names := make(map[string]int, len(set))
	for _, sel := range set {
		var s size
		switch sel := sel.(type) {
		case *ast.Field:
			if sel.Alias != sel.Name {
				m.aliases++
				if m.Aliases > 0 && m.aliases > m.Aliases {
					m.fail("Aliases", sel.Position, "The document exceeds the limit of %d aliases.", m.Aliases)
				}
			}
			names[sel.Alias]++
			if m.FieldRepeats > 0 && names[sel.Alias] > m.FieldRepeats {
				m.fail("FieldRepeats", sel.Position,
					"A selection set exceeds the limit of %d fields of one name.", m.FieldRepeats)
			}
			m.countDirectives(sel.Directives, level+1)
			for _, arg := range sel.Arguments {
				m.value(arg.Value, level+1)
			}
			s = m.set(sel.SelectionSet, level+1)
			s.fields++
			s.depth++
		case *ast.InlineFragment:
			m.countDirectives(sel.Directives, level+1)
			s = m.set(sel.SelectionSet, level+1)
			s.depth++
		case *ast.FragmentSpread:
			m.countDirectives(sel.Directives, level+1)
			s = m.fragment(sel.Name)
		}
		total.fields = min(total.fields+s.fields, maxSum)
		total.depth = max(total.depth, s.depth)
		if m.checkDepth(level+total.depth, sel.GetPosition()); m.err != nil {
			return total
		}
	}
	return total
}

func (m *measurement) fragment(name string) size {
	s, known := m.sizes[name]
	f := m.fragments[name]
	if known || f == nil {
		return s // validation reports an unknown fragment, and a cycle, in which no fragment has a size yet
	}
	m.sizes[name] = size{}
	s = m.set(f.SelectionSet, 0)
	m.sizes[name] = s
	if s.fields > m.Fields {
		m.fail("Fields", f.Position,
			"A fragment exceeds the limit of %d fields with its fragments written out.", m.Fields)
	}
	return s
}

// value measures a literal. level is its nesting level within its operation or fragment.
func (m *measurement) value(v *ast.Value, level int) {
	if v == nil || m.err != nil || v.Kind != ast.ListValue && v.Kind != ast.ObjectValue {
		return
	}
	if m.checkDepth(level+1, v.Position); m.err != nil {
		return
	}
	if m.ListItems > 0 && len(v.Children) > m.ListItems {
		m.fail("ListItems", v.Position, "A list or object exceeds the limit of %d items.", m.ListItems)
	}
	for _, child := range v.Children {
		m.value(child.Value, level+1)
	}
}

func (m *measurement) countDirectives(directives ast.DirectiveList, level int) {
	if len(directives) == 0 {
		return
	}
	m.directives += len(directives)
	if m.Directives > 0 && m.directives > m.Directives {
		m.fail("Directives", directives[len(directives)-1].Position,
			"The document exceeds the limit of %d directives.", m.Directives)
	}
	for _, d := range directives {
		for _, arg := range d.Arguments {
			m.value(arg.Value, level)
		}
	}
}

func (m *measurement) checkDepth(levels int, pos *ast.Position) {
	if levels > m.Depth {
		m.reject(depthError(pos, m.Depth))
	}
}

func (m *measurement) fail(limit string, pos *ast.Position, format string, args ...any) {
	m.reject(limitError(limit, pos, format, args...))
}

// reject stores the first error. The walk then stops.
func (m *measurement) reject(e *Error) {
	if m.err == nil {
		m.err = e
	}
}
