package plan

import (
	"fmt"
	"slices"

	"github.com/vektah/gqlparser/v2/ast"
)

// merging checks that the fields of one response name can be answered as one
// (specification of September 2025, 5.3.2). gqlparser's own rule compares each
// field with each other: a document of 5 kB keeps it busy for 50 ms. Being
// alike is transitive, so here each is compared with the first of its group
// alone, and the fields below all of them are looked at together.
type merging struct {
	left     int  // selections, and repeated comparisons, that are still allowed
	compared bool // whether any field's arguments were, with another's
	errs     Errors

	// once has the fields whose arguments were compared. The first time is linear in
	// the document; a fragment may be reached in many ways.
	once map[*ast.Field]bool
}

// occurrences are the fields of one response name in a merged selection set.
type occurrences []*ast.Field

// merge finds an operation's conflicts. The document has passed all other
// rules: every field and fragment has its definition. compared tells whether any
// arguments had to be the same.
func (s *Schema) merge(op *ast.OperationDefinition, maxFields int) (compared bool, errs Errors) {
	m := merging{left: stepsPerField * maxFields, once: map[*ast.Field]bool{}}
	if m.same(op.SelectionSet); m.errs == nil {
		m.shapes(s, op.SelectionSet)
	}
	if m.left < 0 {
		return false, Errors{fieldsError(op, maxFields)}
	}
	return m.compared, m.errs
}

// groups collects fields by response name, in the order of the document.
func (m *merging) groups(sets ...ast.SelectionSet) []occurrences {
	var all []occurrences
	index := map[string]int{}
	spread := map[string]bool{}
	var collect func(ast.SelectionSet)
	collect = func(set ast.SelectionSet) {
		for _, sel := range set {
			if m.left--; m.left < 0 {
				return
			}
			switch sel := sel.(type) {
			case *ast.Field:
				i, known := index[sel.Alias]
				if !known {
					i = len(all)
					index[sel.Alias] = i
					all = append(all, nil)
				}
				all[i] = append(all[i], sel)
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
	return all
}

func (group occurrences) below() []ast.SelectionSet {
	var sets []ast.SelectionSet
	for _, f := range group {
		if len(f.SelectionSet) > 0 {
			sets = append(sets, f.SelectionSet)
		}
	}
	return sets
}

// shapes checks that fields of one name have one shape, whatever object they
// are of: a client may not know.
func (m *merging) shapes(s *Schema, sets ...ast.SelectionSet) {
	for _, group := range m.groups(sets...) {
		for _, f := range group[1:] {
			if a, b := group[0].Definition.Type, f.Definition.Type; !s.sameShape(a, b) {
				m.conflict(group[0], f, "they return conflicting types %q and %q", a, b)
				return
			}
		}
		if sets := group.below(); sets != nil {
			m.shapes(s, sets...)
		}
	}
}

// same checks that fields which may be of one object are one field with one
// list of arguments. Fields of different object types never are; those of an
// interface may be of any.
func (m *merging) same(sets ...ast.SelectionSet) {
	for _, group := range m.groups(sets...) {
		for _, one := range group.byObject() {
			if m.left -= len(one); m.left < 0 {
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
			if sets := one.below(); sets != nil {
				m.same(sets...)
			}
		}
	}
}

// byObject splits a group by the object types of its fields' parents. Those of
// an interface or union belong to every part.
func (group occurrences) byObject() []occurrences {
	var parts []occurrences
	var shared occurrences
	index := map[*ast.Definition]int{}
	for _, f := range group {
		if f.ObjectDefinition.Kind != ast.Object {
			shared = append(shared, f)
			continue
		}
		i, known := index[f.ObjectDefinition]
		if !known {
			i = len(parts)
			index[f.ObjectDefinition] = i
			parts = append(parts, nil)
		}
		parts[i] = append(parts[i], f)
	}
	if parts == nil {
		return []occurrences{shared}
	}
	for i := range parts {
		parts[i] = append(parts[i], shared...)
	}
	return parts
}

func (m *merging) conflict(a, b *ast.Field, why string, args ...any) {
	if len(m.errs) < maxErrors {
		m.errs = append(m.errs, &Error{Code: CodeValidation, Locations: at(a.Position, b.Position), Message: fmt.Sprintf(
			"Fields %q conflict because %s. Use different aliases on the fields to fetch both if this was intentional.", a.Alias, fmt.Sprintf(why, args...))})
	}
}

func (s *Schema) sameShape(a, b *ast.Type) bool {
	if a.NonNull != b.NonNull || (a.Elem == nil) != (b.Elem == nil) {
		return false
	}
	if a.Elem != nil {
		return s.sameShape(a.Elem, b.Elem)
	}
	return a.NamedType == b.NamedType || s.types.Types[a.NamedType].IsCompositeType() && s.types.Types[b.NamedType].IsCompositeType()
}

func (m *merging) sameArguments(first, f *ast.Field) bool {
	a, b := first.Arguments, f.Arguments
	if len(a) != len(b) {
		return false
	}
	steps := 0
	same := !slices.ContainsFunc(a, func(arg *ast.Argument) bool {
		other := b.ForName(arg.Name)
		return other == nil || !sameValue(arg.Value, other.Value, &steps)
	})
	if m.once[f] {
		m.left -= steps
	}
	m.once[f] = true
	return same
}

// sameValue compares two literals, and counts its steps.
func sameValue(a, b *ast.Value, steps *int) bool {
	*steps++
	if a.Kind != b.Kind || a.Raw != b.Raw || len(a.Children) != len(b.Children) {
		return false
	}
	for i, child := range a.Children {
		other := b.Children[i].Value
		if a.Kind == ast.ObjectValue && b.Children[i].Name != child.Name { // the order means nothing
			other = b.Children.ForName(child.Name)
			*steps += len(b.Children)
		}
		if other == nil || !sameValue(child.Value, other, steps) {
			return false
		}
	}
	return true
}
