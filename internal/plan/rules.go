package plan

import (
	"slices"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/validator/core"
)

// rootType returns the type of an operation's root, or nil.
func (s *Schema) rootType(kind ast.Operation) *ast.Definition {
	switch kind {
	case ast.Mutation:
		return s.types.Mutation
	case ast.Subscription:
		return s.types.Subscription
	}
	return s.types.Query
}

// fieldsOnCorrectType reports fields that their composite type does not have. scalarLeafs and
// fragmentsOnCompositeTypes report fields that are selected on other types.
func fieldsOnCorrectType(v *validation) {
	v.OnField(func(_ *core.Walker, f *ast.Field) {
		if of := f.ObjectDefinition; f.Definition == nil && of != nil && of.IsCompositeType() {
			v.invalid(locationsOf(f.Position), "Cannot query field %q on type %q.", f.Name, of.Name)
		}
	})
}

func fragmentsOnCompositeTypes(v *validation) {
	composite := func(condition string) bool {
		def := v.schema.types.Types[condition]
		return def == nil || def.IsCompositeType()
	}
	v.OnInlineFragment(func(_ *core.Walker, f *ast.InlineFragment) {
		if !composite(f.TypeCondition) {
			v.invalid(v.at(f, partTypeCondition),
				"Fragment cannot condition on non composite type %q.", f.TypeCondition)
		}
	})
	v.OnFragment(func(f *ast.FragmentDefinition) {
		if !composite(f.TypeCondition) {
			v.invalid(v.at(f, partTypeCondition), "Fragment %q cannot condition on non composite type %q.",
				f.Name, f.TypeCondition)
		}
	})
}

// scalarLeafs reports objects without a selection, and scalars with one.
func scalarLeafs(v *validation) {
	v.OnField(func(_ *core.Walker, f *ast.Field) {
		if f.Definition == nil {
			return
		}
		leaf := v.schema.types.Types[f.Definition.Type.Name()].IsLeafType()
		if leaf != (len(f.SelectionSet) > 0) {
			return
		}
		t := f.Definition.Type.String()
		if f.Name == "__typename" {
			t = "String!" // gqlparser declares it as nullable
		}
		if leaf {
			v.invalid(v.at(f, partSelectionSet), "Field %q must not have a selection since type %q has no subfields.",
				f.Name, t)
		} else {
			v.invalid(locationsOf(f.Position), "Field %q of type %q must have a selection of subfields.", f.Name, t)
		}
	})
}

func providedRequiredArguments(v *validation) {
	check := func(args ast.ArgumentList, defs ast.ArgumentDefinitionList, pos *ast.Position, of ...string) {
		for _, def := range defs {
			if def.Type.NonNull && def.DefaultValue == nil && args.ForName(def.Name) == nil {
				v.invalid(locationsOf(pos), "Argument \"%s(%s:)\" of type %q is required, but it was not provided.",
					strings.Join(of, ""), def.Name, def.Type)
			}
		}
	}
	v.OnField(func(_ *core.Walker, f *ast.Field) {
		if f.Definition != nil && f.ObjectDefinition != nil {
			check(f.Arguments, f.Definition.Arguments, f.Position, f.ObjectDefinition.Name, ".", f.Name)
		}
	})
	v.OnDirective(func(_ *core.Walker, d *ast.Directive) {
		if d.Definition != nil {
			check(d.Arguments, d.Definition.Arguments, d.Position, "@", d.Name)
		}
	})
}

func variablesAreInputTypes(v *validation) {
	v.OnVariable(func(_ *core.Walker, variable *ast.VariableDefinition) {
		if def := v.schema.types.Types[variable.Type.Name()]; def != nil && !def.IsInputType() {
			v.invalid(locationsOf(variable.Type.Position), "Variable \"$%s\" cannot be non-input type %q.",
				variable.Variable, variable.Type)
		}
	})
}

// variablesInAllowedPosition reports variables whose type does not fit the place where they are used. A nullable
// variable fits a non-null place if the variable or the place has a default value.
func variablesInAllowedPosition(v *validation) {
	v.OnValue(func(w *core.Walker, value *ast.Value) {
		if value.Kind != ast.Variable || value.ExpectedType == nil || w.CurrentOperation == nil {
			return
		}
		var def *ast.VariableDefinition
		for _, d := range w.CurrentOperation.VariableDefinitions {
			if d.Variable == value.Raw {
				def = d // of two definitions, the last one counts, as in graphql-js
			}
		}
		if def == nil || v.schema.types.Types[def.Type.Name()] == nil {
			return
		}
		place := *value.ExpectedType
		if value.ExpectedTypeHasDefault || def.DefaultValue != nil && def.DefaultValue.Kind != ast.NullValue {
			place.NonNull = false
		}
		if !def.Type.IsCompatible(&place) {
			v.invalid(locationsOf(def.Position, value.Position),
				"Variable \"$%s\" of type %q used in position expecting type %q.",
				value.Raw, def.Type, value.ExpectedType)
		}
	})
}

// possibleFragmentSpreads reports fragments whose type has no object type in common with the type around them. It
// compares each pair of types only once, while gqlparser's rule compares all object types of both each time that it
// visits a spread.
func possibleFragmentSpreads(v *validation) {
	s := v.schema
	type pair struct{ a, b *ast.Definition }
	known := map[pair]bool{}
	possible := func(in *ast.Definition, condition string) bool {
		of := s.types.Types[condition]
		if in == nil || of == nil || !in.IsCompositeType() || !of.IsCompositeType() {
			return true // other rules report the error
		}
		shared, seen := known[pair{in, of}]
		if !seen {
			includes := func(o *ast.Definition) bool { return s.includes(condition, o) }
			shared = slices.ContainsFunc(s.possible(in), includes)
			known[pair{in, of}] = shared
		}
		return shared
	}
	v.OnInlineFragment(func(_ *core.Walker, f *ast.InlineFragment) {
		if !possible(f.ObjectDefinition, f.TypeCondition) {
			v.invalid(locationsOf(f.Position),
				"Fragment cannot be spread here as objects of type %q can never be of type %q.",
				f.ObjectDefinition.Name, f.TypeCondition)
		}
	})
	v.OnFragmentSpread(func(_ *core.Walker, f *ast.FragmentSpread) {
		if f.Definition != nil && !possible(f.ObjectDefinition, f.Definition.TypeCondition) {
			v.invalid(locationsOf(f.Position),
				"Fragment %q cannot be spread here as objects of type %q can never be of type %q.",
				f.Name, f.ObjectDefinition.Name, f.Definition.TypeCondition)
		}
	})
}

// singleFieldSubscriptions reports subscriptions that do not select exactly one response name at the root, because
// even two aliases of one field would be two streams. The specification of September 2025 (section 5.2.4.1) also
// forbids introspection fields, @skip and @include at the root.
func singleFieldSubscriptions(v *validation) {
	v.OnOperation(func(_ *core.Walker, op *ast.OperationDefinition) {
		root := v.schema.types.Subscription
		if op.Operation != ast.Subscription || root == nil {
			return
		}
		name := "Anonymous Subscription"
		if op.Name != "" {
			name = `Subscription "` + op.Name + `"`
		}
		c := rootCollector{schema: v.schema, root: root, visited: map[string]bool{}}
		c.collect(op.SelectionSet)
		if len(c.conditions) > 0 {
			v.invalid(locationsOf(c.conditions...),
				"%s must not use `@skip` or `@include` directives in the top level selection.", name)
			return
		}
		groups := groupBy(c.fields, responseName)
		switch {
		case len(groups) == 0:
			v.invalid(v.at(op, partSelectionSet), "%s must select one top level field.", name)
		case len(groups) > 1:
			v.invalid(fieldLocations(groups[1:]...), "%s must select only one top level field.", name)
		}
		for _, group := range groups {
			if strings.HasPrefix(group[0].Name, "__") {
				v.invalid(fieldLocations(group), "%s must not select an introspection top level field.", name)
			}
		}
	})
}

// A rootCollector collects the root fields of a subscription.
type rootCollector struct {
	schema     *Schema
	root       *ast.Definition
	fields     []*ast.Field
	conditions []*ast.Position // of @skip and @include

	// visited prevents second visits of a fragment. They would only repeat errors, and if each of n fragments
	// spreads the next one three times, there would be 3^n visits.
	visited map[string]bool
}

func (c *rootCollector) collect(set ast.SelectionSet) {
	for _, sel := range set {
		switch sel := sel.(type) {
		case *ast.Field:
			if c.unconditional(sel.Directives) {
				c.fields = append(c.fields, sel)
			}
		case *ast.InlineFragment:
			if c.unconditional(sel.Directives) && c.schema.includes(sel.TypeCondition, c.root) {
				c.collect(sel.SelectionSet)
			}
		case *ast.FragmentSpread:
			f := sel.Definition
			if c.unconditional(sel.Directives) && f != nil && !c.visited[sel.Name] &&
				c.schema.includes(f.TypeCondition, c.root) {
				c.visited[sel.Name] = true
				c.collect(f.SelectionSet)
			}
		}
	}
}

func (c *rootCollector) unconditional(directives ast.DirectiveList) bool {
	for _, name := range [...]string{"skip", "include"} {
		if d := directives.ForName(name); d != nil {
			c.conditions = append(c.conditions, d.Position)
			return false
		}
	}
	return true
}

func fieldLocations(groups ...[]*ast.Field) (at []Location) {
	for _, group := range groups {
		for _, f := range group {
			at = append(at, location(f.Position))
		}
	}
	return at
}
