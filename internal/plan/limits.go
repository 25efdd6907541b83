package plan

import (
	"fmt"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/parser"
)

// Limits bound what a document may cost before it is checked by rules that
// take more than linear time. Zero or less means no limit, but for Depth and
// Fields, without which no document could be walked safely: they then are what
// the parser can nest, and a hundred thousand.
type Limits struct {
	Document     int // bytes of the document
	Tokens       int // lexical tokens, comments included
	Depth        int // nested selections, lists, objects and list types
	Fields       int // fields of an operation with its fragments written out
	Aliases      int // aliases in the document
	Directives   int // directives in the document
	SameName     int // fields of one response name in one written selection set
	Operations   int // operations in the document
	Fragments    int // fragment definitions in the document
	Variables    int // variables of an operation
	ListItems    int // items of one list, in a literal or in variables
	Calls        int // of the backend, that a query costs
	Blocks       int // that a query costs
	Answer       int // bytes of an answer's data
	CacheBytes   int // what the cached plans may hold; zero keeps none
	NoIntrospect bool
}

// mostFields bounds Fields where that is off: fragments that double each other
// write out to more than any memory holds.
const mostFields = 100_000

// stepsPerField bounds the work that Fields leaves open: looking at the same
// selections for one type after another, also where they come to nothing.
const stepsPerField = 20

func (l Limits) normal() Limits {
	if l.Fields <= 0 {
		l.Fields = mostFields
	}
	l.Fields = min(l.Fields, enough/stepsPerField) // above it, sums would not exceed it and steps would overflow
	if l.Depth <= 0 || l.Depth > parser.MaxNestingDepth {
		l.Depth = parser.MaxNestingDepth
	}
	return l
}

// limitError refuses what exceeds the limit of a name, which hosts know it by.
func limitError(limit string, pos *ast.Position, format string, args ...any) *Error {
	return &Error{Message: fmt.Sprintf(format, args...), Code: CodeLimit, Locations: at(pos), Limit: limit}
}

func at(pos ...*ast.Position) []Location {
	var locations []Location
	for _, p := range pos {
		if p != nil {
			locations = append(locations, place(p))
		}
	}
	return locations
}

func place(p *ast.Position) Location { return Location{p.Line, p.Column} }

// measure checks the structural limits of a parsed document. Each fragment is
// walked once and remembered, so the walk is linear in the document however
// often the fragments spread each other; a cycle is refused here, before any
// rule that would follow it.
type measure struct {
	Limits
	fragments  map[string]*ast.FragmentDefinition
	sizes      map[string]size
	blocks     map[int]block
	disguised  bool // the text's control characters are
	open       int  // selection sets that are being walked
	aliases    int
	directives int
	err        *Error
}

// size is what a selection set comes to with its fragments written out.
type size struct {
	fields, depth int
	open          bool // the fragment is being walked: meeting it again is a cycle
}

// enough caps sums of sizes, which fragments that double each other would
// overflow. The sum of two fits in 32 bits.
const enough = 1 << 29

func (l Limits) check(doc *ast.QueryDocument, blocks map[int]block, disguised bool) *Error {
	m := measure{Limits: l, sizes: map[string]size{}, fragments: map[string]*ast.FragmentDefinition{}, blocks: blocks, disguised: disguised}
	if l.Operations > 0 && len(doc.Operations) > l.Operations {
		return limitError("Operations", doc.Operations[l.Operations].Position, "The document exceeds the limit of %d operations.", l.Operations)
	}
	if l.Fragments > 0 && len(doc.Fragments) > l.Fragments {
		return limitError("Fragments", doc.Fragments[l.Fragments].Position, "The document exceeds the limit of %d fragments.", l.Fragments)
	}
	for _, f := range doc.Fragments {
		if m.fragments[f.Name] != nil { // the second would go unmeasured
			return &Error{Message: fmt.Sprintf("There can be only one fragment named %q.", f.Name), Code: CodeValidation, Locations: at(f.Position)}
		}
		m.fragments[f.Name] = f
	}
	for _, op := range doc.Operations {
		m.operation(op)
	}
	for _, f := range doc.Fragments {
		m.count(f.Directives, 0)
		m.fragment(f.Name, f.Position)
	}
	return m.err
}

func (m *measure) operation(op *ast.OperationDefinition) {
	if m.Variables > 0 && len(op.VariableDefinitions) > m.Variables {
		m.fail("Variables", op.VariableDefinitions[m.Variables].Position, "The operation exceeds the limit of %d variables.", m.Variables)
	}
	for _, v := range op.VariableDefinitions {
		levels := 0
		for t := v.Type; t.Elem != nil; t = t.Elem {
			levels++
		}
		m.deep(levels, v.Position)
		m.value(v.DefaultValue, 0)
		m.count(v.Directives, 0)
	}
	m.count(op.Directives, 0)
	total := m.set(op.SelectionSet, 0)
	if total.fields > m.Fields {
		m.refuse(fieldsError(op, m.Fields))
	}
}

func fieldsError(op *ast.OperationDefinition, limit int) *Error {
	return limitError("Fields", op.Position, "The operation exceeds the limit of %d fields with its fragments written out for each type.", limit)
}

func depthError(pos *ast.Position, limit int) *Error {
	return limitError("Depth", pos, "The document exceeds the limit of %d nested levels.", limit)
}

// set measures a selection set that stands level deep in its definition.
func (m *measure) set(set ast.SelectionSet, level int) size {
	var total size
	if len(set) == 0 || m.err != nil {
		return total
	}
	if m.deep(level+1, set[0].GetPosition()); m.err != nil {
		return total
	}
	m.open++
	defer func() { m.open-- }()
	if m.open > parser.MaxNestingDepth { // a chain of fragments nests nothing, but the walk does
		m.refuse(depthError(set[0].GetPosition(), parser.MaxNestingDepth))
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
			if m.SameName > 0 && names[sel.Alias] > m.SameName {
				m.fail("SameName", sel.Position, "A selection set exceeds the limit of %d fields of one name.", m.SameName)
			}
			m.count(sel.Directives, level+1)
			for _, arg := range sel.Arguments {
				m.value(arg.Value, level+1)
			}
			s = m.set(sel.SelectionSet, level+1)
			s.fields++
			s.depth++
		case *ast.InlineFragment:
			m.count(sel.Directives, level+1)
			s = m.set(sel.SelectionSet, level+1)
			s.depth++
		case *ast.FragmentSpread:
			m.count(sel.Directives, level+1)
			s = m.fragment(sel.Name, sel.Position)
		}
		total.fields = min(total.fields+s.fields, enough)
		total.depth = max(total.depth, s.depth)
		if m.deep(level+total.depth, sel.GetPosition()); m.err != nil {
			return total
		}
	}
	return total
}

func (m *measure) fragment(name string, pos *ast.Position) size {
	s, known := m.sizes[name]
	if known {
		if s.open {
			m.refuse(&Error{Message: fmt.Sprintf("Cannot spread fragment %q within itself.", name), Code: CodeValidation, Locations: at(pos)})
		}
		return s
	}
	f := m.fragments[name]
	if f == nil {
		return s // validation says so
	}
	m.sizes[name] = size{open: true}
	s = m.set(f.SelectionSet, 0)
	m.sizes[name] = s
	if s.fields > m.Fields {
		m.fail("Fields", f.Position, "A fragment exceeds the limit of %d fields with its fragments written out.", m.Fields)
	}
	return s
}

// value measures a literal; level counts what it stands in. It also puts strings
// right.
func (m *measure) value(v *ast.Value, level int) {
	if v == nil || m.err != nil {
		return
	}
	if v.Kind == ast.BlockValue {
		b := m.blocks[v.Position.Start]
		v.Raw, v.Position.Line, v.Position.Column = b.value, b.line, b.column
	}
	if m.disguised {
		v.Raw = undisguised(v.Raw)
	}
	if v.Kind != ast.ListValue && v.Kind != ast.ObjectValue {
		return
	}
	if m.deep(level+1, v.Position); m.err != nil {
		return
	}
	if m.ListItems > 0 && len(v.Children) > m.ListItems {
		m.fail("ListItems", v.Position, "A list or object exceeds the limit of %d items.", m.ListItems)
	}
	for _, child := range v.Children {
		m.value(child.Value, level+1)
	}
}

func (m *measure) count(directives ast.DirectiveList, level int) {
	if len(directives) == 0 {
		return
	}
	m.directives += len(directives)
	if m.Directives > 0 && m.directives > m.Directives {
		m.fail("Directives", directives[len(directives)-1].Position, "The document exceeds the limit of %d directives.", m.Directives)
	}
	for _, d := range directives {
		for _, arg := range d.Arguments {
			m.value(arg.Value, level)
		}
	}
}

func (m *measure) deep(levels int, pos *ast.Position) {
	if levels > m.Depth {
		m.refuse(depthError(pos, m.Depth))
	}
}

func (m *measure) fail(limit string, pos *ast.Position, format string, args ...any) {
	m.refuse(limitError(limit, pos, format, args...))
}

// refuse keeps the first fault: the walk stops there.
func (m *measure) refuse(e *Error) {
	if m.err == nil {
		m.err = e
	}
}
