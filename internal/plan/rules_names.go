package plan

import (
	"slices"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/validator/core"
)

// These rules check that names are known and unique.

func knownOperationTypes(v *validation) {
	v.OnOperation(func(_ *core.Walker, op *ast.OperationDefinition) {
		if v.schema.rootType(op.Operation) == nil {
			v.invalid(locationsOf(op.Position), "The %s operation is not supported by the schema.", op.Operation)
		}
	})
}

func knownTypeNames(v *validation) {
	check := func(name string, at []Location) {
		if v.schema.types.Types[name] == nil {
			v.invalid(at, "Unknown type %q.", name)
		}
	}
	v.OnVariable(func(_ *core.Walker, variable *ast.VariableDefinition) {
		t := variable.Type
		for t.Elem != nil {
			t = t.Elem
		}
		check(t.NamedType, locationsOf(t.Position))
	})
	v.OnInlineFragment(func(_ *core.Walker, f *ast.InlineFragment) {
		if f.TypeCondition != "" {
			check(f.TypeCondition, v.at(f, partTypeCondition))
		}
	})
	v.OnFragment(func(f *ast.FragmentDefinition) {
		check(f.TypeCondition, v.at(f, partTypeCondition))
	})
}

func knownFragmentNames(v *validation) {
	v.OnFragmentSpread(func(_ *core.Walker, s *ast.FragmentSpread) {
		if s.Definition == nil {
			v.invalid(v.at(s, partName), "Unknown fragment %q.", s.Name)
		}
	})
}

func knownArgumentNames(v *validation) {
	v.OnField(func(_ *core.Walker, f *ast.Field) {
		if f.Definition == nil || f.ObjectDefinition == nil {
			return
		}
		for _, a := range f.Arguments {
			if f.Definition.Arguments.ForName(a.Name) == nil {
				v.invalid(locationsOf(a.Position), "Unknown argument %q on field \"%s.%s\".",
					a.Name, f.ObjectDefinition.Name, f.Name)
			}
		}
	})
	v.OnDirective(func(_ *core.Walker, d *ast.Directive) {
		for _, a := range d.Arguments {
			if d.Definition != nil && d.Definition.Arguments.ForName(a.Name) == nil {
				v.invalid(locationsOf(a.Position), "Unknown argument %q on directive \"@%s\".", a.Name, d.Name)
			}
		}
	})
}

// noUndefinedVariables reports uses of variables that the operation does not define.
func noUndefinedVariables(v *validation) {
	v.OnValue(func(w *core.Walker, value *ast.Value) {
		op := w.CurrentOperation
		if op == nil || value.Kind != ast.Variable || value.VariableDefinition != nil {
			return
		}
		at := locationsOf(value.Position, op.Position)
		if op.Name == "" {
			v.invalid(at, "Variable \"$%s\" is not defined.", value.Raw)
		} else {
			v.invalid(at, "Variable \"$%s\" is not defined by operation %q.", value.Raw, op.Name)
		}
	})
}

func noUnusedFragments(v *validation) {
	used := map[string]bool{}
	v.OnFragmentSpread(func(w *core.Walker, s *ast.FragmentSpread) {
		if w.CurrentOperation != nil {
			used[s.Name] = true
		}
	})
	v.OnFragment(func(f *ast.FragmentDefinition) {
		if !used[f.Name] {
			v.invalid(locationsOf(f.Position), "Fragment %q is never used.", f.Name)
		}
	})
}

func noUnusedVariables(v *validation) {
	v.OnOperation(func(_ *core.Walker, op *ast.OperationDefinition) {
		used := map[string]bool{} // of two definitions of one variable, only the first one has Used set
		for _, def := range op.VariableDefinitions {
			used[def.Variable] = used[def.Variable] || def.Used
		}
		for _, def := range op.VariableDefinitions {
			switch at := locationsOf(def.Position); {
			case used[def.Variable]:
			case op.Name == "":
				v.invalid(at, "Variable \"$%s\" is never used.", def.Variable)
			default:
				v.invalid(at, "Variable \"$%s\" is never used in operation %q.", def.Variable, op.Name)
			}
		}
	})
}

// uniqueNames reports names and directives that occur twice in one place.
func uniqueNames(v *validation) {
	operations, fragments := map[string]*ast.OperationDefinition{}, map[string]*ast.FragmentDefinition{}
	v.OnOperation(func(_ *core.Walker, op *ast.OperationDefinition) {
		if first := operations[op.Name]; first == nil {
			operations[op.Name] = op
		} else if op.Name != "" {
			v.invalid(slices.Concat(v.at(first, partName), v.at(op, partName)),
				"There can be only one operation named %q.", op.Name)
		}
		for _, same := range groupBy(op.VariableDefinitions, variableName) {
			var at []Location
			for _, d := range same {
				at = append(at, v.at(d, partName)...)
			}
			if len(same) > 1 {
				v.invalid(at, "There can be only one variable named \"$%s\".", same[0].Variable)
			}
		}
	})
	v.OnFragment(func(f *ast.FragmentDefinition) {
		if first := fragments[f.Name]; first == nil {
			fragments[f.Name] = f
		} else {
			v.invalid(slices.Concat(v.at(first, partName), v.at(f, partName)),
				"There can be only one fragment named %q.", f.Name)
		}
	})
	arguments := func(args ast.ArgumentList) {
		for _, same := range groupBy(args, argumentName) {
			var at []Location
			for _, a := range same {
				at = append(at, location(a.Position))
			}
			if len(same) > 1 {
				v.invalid(at, "There can be only one argument named %q.", same[0].Name)
			}
		}
	}
	v.OnField(func(_ *core.Walker, f *ast.Field) { arguments(f.Arguments) })
	v.OnDirective(func(_ *core.Walker, d *ast.Directive) { arguments(d.Arguments) })
	v.OnValue(func(_ *core.Walker, value *ast.Value) {
		if value.Kind != ast.ObjectValue {
			return
		}
		for _, same := range groupBy(value.Children, childName) {
			for _, f := range same[1:] {
				v.invalid(locationsOf(same[0].Position, f.Position),
					"There can be only one input field named %q.", f.Name)
			}
		}
	})
	v.OnDirectiveList(func(_ *core.Walker, list []*ast.Directive) {
		for _, same := range groupBy(list, directiveName) {
			for _, d := range same[1:] {
				if d.Definition != nil && !d.Definition.IsRepeatable {
					v.invalid(locationsOf(same[0].Position, d.Position),
						"The directive \"@%s\" can only be used once at this location.", d.Name)
				}
			}
		}
	})
}

func variableName(d *ast.VariableDefinition) string { return d.Variable }
func argumentName(a *ast.Argument) string           { return a.Name }
func childName(c *ast.ChildValue) string            { return c.Name }
func directiveName(d *ast.Directive) string         { return d.Name }
func responseName(f *ast.Field) string              { return f.Alias }

// groupBy groups items by a key. The groups are in the order of their first items.
func groupBy[S ~[]T, T any, K comparable](items S, key func(T) K) (groups []S) {
	switch len(items) {
	case 0:
		return nil // rules visit fields without arguments and directives thousands of times
	case 1:
		return []S{items}
	}
	index := make(map[K]int, len(items))
	for _, item := range items {
		i, known := index[key(item)]
		if !known {
			i = len(groups)
			index[key(item)] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], item)
	}
	return groups
}

// noFragmentCycles reports fragments that spread each other in a cycle. It visits each fragment once.
func noFragmentCycles(v *validation) {
	visited := map[string]bool{}
	var path []*ast.FragmentSpread
	index := map[string]int{} // of the spreads within a fragment that is being visited, in path
	var visit func(f *ast.FragmentDefinition)
	spread := func(s *ast.FragmentSpread) {
		path = append(path, s)
		start, open := index[s.Name]
		switch {
		case !open && s.Definition != nil && !visited[s.Name]:
			visit(s.Definition)
		case open && !v.full():
			message, positions := "Cannot spread fragment %q within itself", []*ast.Position{}
			var via []string
			for _, p := range path[start:] {
				positions = append(positions, p.Position)
				via = append(via, `"`+p.Name+`"`)
			}
			if via = via[:len(via)-1]; len(via) > 0 {
				message += " via " + strings.Join(via, ", ")
			}
			v.invalid(locationsOf(positions...), message+".", s.Name)
		}
		path = path[:len(path)-1]
	}
	visit = func(f *ast.FragmentDefinition) {
		visited[f.Name] = true
		index[f.Name] = len(path)
		for sets := []ast.SelectionSet{f.SelectionSet}; len(sets) > 0; {
			set := sets[len(sets)-1]
			sets = sets[:len(sets)-1]
			for _, sel := range set {
				switch sel := sel.(type) {
				case *ast.Field:
					sets = append(sets, sel.SelectionSet)
				case *ast.InlineFragment:
					sets = append(sets, sel.SelectionSet)
				case *ast.FragmentSpread:
					spread(sel)
				}
			}
		}
		delete(index, f.Name)
	}
	v.OnFragment(func(f *ast.FragmentDefinition) {
		if !visited[f.Name] {
			visit(f)
		}
	})
}
