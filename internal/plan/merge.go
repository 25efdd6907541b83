package plan

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/vektah/gqlparser/v2/ast"
)

// A merger checks that fields with the same response name can be merged (GraphQL specification of September 2025,
// section 5.3.2). gqlparser's rule compares all pairs of fields, which takes quadratic time: 50 ms for a document
// of 5 kB. The merger compares each field only with the first field of its group. That suffices, because equality
// within a group is transitive.
//
// To compare response shapes, a group has all fields with one response name. To compare names and arguments, a
// group has only those of them that may belong to the same object type (see byObject). After comparing the fields
// of a group, the merger checks their selection sets together.
//
// A merger checks all operations of a document, so that it checks each list of fields only once, although there may be
// many paths to the fragments that contain them.
type merger struct {
	schema   *Schema
	budget   int  // number of selections and repeated comparisons that may still be visited
	compared bool // two fields were required to have equal arguments
	errs     Errors

	// checkedFields and checkedShapes have the lists of fields that sameFields and sameShapes have checked, as the
	// positions of the fields in the document.
	checkedFields, checkedShapes map[string]bool

	// seen has the fields whose arguments have been compared. The first comparison of each field does not count,
	// because all first comparisons together are linear in the document. Further comparisons count, because a fragment
	// may be reached on many paths.
	seen map[*ast.Field]bool
}

// occurrences are the fields with one response name in a merged selection set.
type occurrences []*ast.Field

func newMerger(s *Schema) *merger {
	return &merger{schema: s, checkedFields: map[string]bool{}, checkedShapes: map[string]bool{},
		seen: map[*ast.Field]bool{}}
}

// merge returns the conflicts between the fields of an operation, except those of operations that m has checked before.
// The document must have passed all other rules, so that every field and fragment spread has its definition. Afterwards
// m.compared reports whether any two fields were required to have equal arguments.
func (m *merger) merge(op *ast.OperationDefinition, maxFields int) Errors {
	m.budget = stepsPerField * maxFields
	if m.sameFields(op.SelectionSet); m.errs == nil {
		m.sameShapes(op.SelectionSet)
	}
	if m.budget < 0 {
		return Errors{fieldsError(op, maxFields)}
	}
	return m.errs
}

// groups collects the fields of selection sets by response name, in the order of the document. It returns nil if the
// list of these fields is in checked, to which it adds the list.
func (m *merger) groups(checked map[string]bool, sets ...ast.SelectionSet) []occurrences {
	var fields occurrences
	var list []byte
	spread := map[string]bool{}
	var collect func(ast.SelectionSet)
	collect = func(set ast.SelectionSet) {
		for _, sel := range set {
			if m.budget--; m.budget < 0 {
				return
			}
			switch sel := sel.(type) {
			case *ast.Field:
				fields = append(fields, sel)
				list = binary.AppendUvarint(list, uint64(sel.Position.Start))
			case *ast.InlineFragment:
				collect(sel.SelectionSet)
			case *ast.FragmentSpread:
				if !spread[sel.Name] {
					spread[sel.Name] = true
					collect(sel.Definition.SelectionSet)
				}
			}
		}
	}
	for _, set := range sets {
		collect(set)
	}
	if checked[string(list)] {
		return nil
	}
	checked[string(list)] = true
	return groupBy(fields, responseName)
}

func (group occurrences) selectionSets() []ast.SelectionSet {
	var sets []ast.SelectionSet
	for _, f := range group {
		if len(f.SelectionSet) > 0 {
			sets = append(sets, f.SelectionSet)
		}
	}
	return sets
}

// sameShapes checks that fields with the same response name have the same response shape, even if they belong to
// different object types.
func (m *merger) sameShapes(sets ...ast.SelectionSet) {
	for _, group := range m.groups(m.checkedShapes, sets...) {
		for _, f := range group[1:] {
			if a, b := group[0].Definition.Type, f.Definition.Type; !m.schema.sameResponseShape(a, b) {
				m.conflict(group[0], f, "they return conflicting types %q and %q", a, b)
				return
			}
		}
		if sets := group.selectionSets(); sets != nil {
			m.sameShapes(sets...)
		}
	}
}

// sameFields checks that two fields with the same response name have the same field name and equal arguments, if
// they may belong to the same object. Fields of different object types never belong to the same object. A field of
// an interface may belong to any object.
func (m *merger) sameFields(sets ...ast.SelectionSet) {
	for _, group := range m.groups(m.checkedFields, sets...) {
		for _, one := range group.byObject() {
			if m.budget -= len(one); m.budget < 0 {
				return
			}
			for _, f := range one[1:] {
				m.compared = m.compared || len(f.Arguments) > 0
				switch first := one[0]; {
				case f.Name != first.Name:
					m.conflict(first, f, "%q and %q are different fields", first.Name, f.Name)
					return
				case !m.sameArguments(first, f):
					m.conflict(first, f, "they have differing arguments")
					return
				}
			}
			if sets := one.selectionSets(); sets != nil {
				m.sameFields(sets...)
			}
		}
	}
}

// byObject splits a group by the object types to which the fields belong. Fields of an interface or a union belong
// to every part.
func (group occurrences) byObject() []occurrences {
	var own, shared occurrences
	for _, f := range group {
		if f.ObjectDefinition.Kind == ast.Object {
			own = append(own, f)
		} else {
			shared = append(shared, f)
		}
	}
	parts := groupBy(own, func(f *ast.Field) *ast.Definition { return f.ObjectDefinition })
	if parts == nil {
		return []occurrences{shared}
	}
	for i := range parts {
		parts[i] = append(parts[i], shared...)
	}
	return parts
}

func (m *merger) conflict(a, b *ast.Field, why string, args ...any) {
	if len(m.errs) < maxErrors {
		m.errs = append(m.errs, &Error{Code: CodeValidation, Locations: locationsOf(a.Position, b.Position),
			Message: fmt.Sprintf("Fields %q conflict because %s. "+
				"Use different aliases on the fields to fetch both if this was intentional.",
				a.Alias, fmt.Sprintf(why, args...))})
	}
}

func (s *Schema) sameResponseShape(a, b *ast.Type) bool {
	if a.NonNull != b.NonNull || (a.Elem == nil) != (b.Elem == nil) {
		return false
	}
	if a.Elem != nil {
		return s.sameResponseShape(a.Elem, b.Elem)
	}
	return a.NamedType == b.NamedType ||
		s.types.Types[a.NamedType].IsCompositeType() && s.types.Types[b.NamedType].IsCompositeType()
}

func (m *merger) sameArguments(first, f *ast.Field) bool {
	a, b := first.Arguments, f.Arguments
	if len(a) != len(b) {
		return false
	}
	steps := 0
	same := !slices.ContainsFunc(a, func(arg *ast.Argument) bool {
		other := b.ForName(arg.Name)
		return other == nil || !sameValue(arg.Value, other.Value, &steps)
	})
	if m.seen[f] {
		m.budget -= steps
	}
	m.seen[f] = true
	return same
}

// sameValue reports whether two literals are equal. It adds the number of comparisons to steps.
func sameValue(a, b *ast.Value, steps *int) bool {
	*steps++
	if a.Kind != b.Kind || a.Raw != b.Raw || len(a.Children) != len(b.Children) {
		return false
	}
	for i, child := range a.Children {
		other := b.Children[i].Value
		if a.Kind == ast.ObjectValue && b.Children[i].Name != child.Name { // the order is irrelevant
			other = b.Children.ForName(child.Name)
			*steps += len(b.Children)
		}
		if other == nil || !sameValue(child.Value, other, steps) {
			return false
		}
	}
	return true
}
