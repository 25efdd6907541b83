package plan

import (
	"slices"

	"github.com/vektah/gqlparser/v2/ast"
)

// The variables that @skip and @include use are the conditions of an operation. Each combination of their values has
// a plan of its own.

// conditions returns the indexes of the variables that @skip and @include use in the operation or in any fragment.
// It includes fragments that the operation does not reach: they only cause additional plans.
func conditions(tree *ast.QueryDocument, def *ast.OperationDefinition, op *operation) []int {
	var used []int
	for sel := range selections(tree, def) {
		var directives ast.DirectiveList
		switch sel := sel.(type) {
		case *ast.Field:
			directives = sel.Directives
		case *ast.InlineFragment:
			directives = sel.Directives
		case *ast.FragmentSpread:
			directives = sel.Directives
		}
		for _, d := range directives {
			v := d.Arguments.ForName("if")
			if v == nil || v.Value.Kind != ast.Variable {
				continue
			}
			i := op.variable(v.Value.Raw)
			if i >= 0 && !slices.Contains(used, i) {
				used = append(used, i)
			}
		}
	}
	slices.Sort(used)
	return used
}

// included reports whether a selection with these directives is part of the response. It returns an error if a
// condition is null, as a variable with a default value may be. It evaluates @skip before @include, whatever their
// order in the document.
func (k *compiler) included(directives ast.DirectiveList) (bool, *Error) {
	for _, name := range [...]string{"skip", "include"} {
		d := directives.ForName(name)
		if d == nil {
			continue
		}
		v := d.Arguments.ForName("if").Value
		var on any = v.Raw == "true"
		if v.Kind == ast.Variable {
			on = k.on[v.Raw]
		}
		if on == nil {
			err := inputError("Argument \"@%s(if:)\" has invalid value: Expected variable \"$%s\" "+
				"provided to non-null type \"Boolean!\" not to be null.", name, v.Raw)
			err.Locations = locationsOf(v.Position)
			return false, err
		}
		if on == (name == "skip") {
			return false, nil
		}
	}
	return true, nil
}

// failSelection records the error of an invalid selection at the object whose selection it is.
func (r *run) failSelection(s *selection) { r.fail(&field{locations: s.invalid.Locations}, s.invalid) }
