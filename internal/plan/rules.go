package plan

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/validator/core"
	"github.com/vektah/gqlparser/v2/validator/rules"
)

// validation returns the validation rules: those of gqlparser, without suggestions, and rules of this package that
// replace slow or incomplete ones. Limits.check has already rejected cycles of fragments and fragments with the
// same name. Schema.merge finds conflicting fields afterwards.
func (s *Schema) validation(noIntrospection bool) []core.Rule {
	all := []core.Rule{
		rules.FragmentsOnCompositeTypesRule,
		rules.KnownArgumentNamesRuleWithoutSuggestions,
		rules.KnownDirectivesRule,
		rules.KnownFragmentNamesRule,
		rules.KnownRootTypeRule,
		rules.KnownTypeNamesRuleWithoutSuggestions,
		rules.LoneAnonymousOperationRule,
		rules.MaxIntrospectionDepth,
		rules.NoUndefinedVariablesRule,
		rules.NoUnusedFragmentsRule,
		rules.NoUnusedVariablesRule,
		{Name: "PossibleFragmentSpreads", RuleFunc: s.possibleFragmentSpreads},
		rules.ProvidedRequiredArgumentsRule,
		rules.ScalarLeafsRuleWithoutSuggestions,
		rules.UniqueArgumentNamesRule,
		rules.UniqueDirectivesPerLocationRule,
		rules.UniqueInputFieldNamesRule,
		rules.UniqueOperationNamesRule,
		rules.UniqueVariableNamesRule,
		rules.VariablesAreInputTypesRule,
		rules.VariablesInAllowedPositionRule,
		{Name: "LiteralsOfCorrectType", RuleFunc: s.literalsOfCorrectType},
		{Name: "FieldsOnCorrectType", RuleFunc: fieldsOnCorrectType},
		{Name: "OneSubscriptionRoot", RuleFunc: s.oneSubscriptionRoot},
	}
	if noIntrospection {
		all = append(all, core.Rule{Name: "NoIntrospection", RuleFunc: rejectIntrospection})
	}
	return all
}

// literalsOfCorrectType checks literals by coercing them with the function that coerces them for execution.
func (s *Schema) literalsOfCorrectType(on *core.Events, addError core.AddErrFunc) {
	check := func(t *ast.Type, v *ast.Value) {
		def := s.types.Types[t.Name()]
		if v == nil || def == nil || !def.IsInputType() {
			return
		}
		var f *literalError
		if _, err := s.fromLiteral(t, v, nil); errors.As(err, &f) {
			addError(core.Message("%s", f.msg), core.At(f.pos))
		}
	}
	on.OnField(func(_ *core.Walker, f *ast.Field) {
		for _, arg := range f.Arguments {
			if f.Definition == nil {
				continue
			}
			if def := f.Definition.Arguments.ForName(arg.Name); def != nil {
				check(def.Type, arg.Value)
			}
		}
	})
	on.OnDirective(func(_ *core.Walker, d *ast.Directive) {
		for _, arg := range d.Arguments {
			if d.Definition == nil {
				continue
			}
			if def := d.Definition.Arguments.ForName(arg.Name); def != nil {
				check(def.Type, arg.Value)
			}
		}
	})
	on.OnVariable(func(_ *core.Walker, v *ast.VariableDefinition) {
		check(v.Type, v.DefaultValue)
	})
}

// fieldsOnCorrectType reports fields that their composite type does not have. The rules ScalarLeafs and
// FragmentsOnCompositeTypes report fields that are selected on other types.
func fieldsOnCorrectType(on *core.Events, addError core.AddErrFunc) {
	on.OnField(func(_ *core.Walker, f *ast.Field) {
		if of := f.ObjectDefinition; f.Definition == nil && of != nil && of.IsCompositeType() {
			addError(core.Message("Cannot query field %q on type %q.", f.Name, of.Name), core.At(f.Position))
		}
	})
}

// possibleFragmentSpreads reports fragments whose type has no object type in common with the type around them. It
// compares each pair of types only once, while gqlparser's rule compares all object types of both each time that it
// visits a spread.
func (s *Schema) possibleFragmentSpreads(on *core.Events, addError core.AddErrFunc) {
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
	on.OnInlineFragment(func(_ *core.Walker, f *ast.InlineFragment) {
		if !possible(f.ObjectDefinition, f.TypeCondition) {
			addError(core.Message("Fragment cannot be spread here as objects of type %q can never be of type %q.",
				f.ObjectDefinition.Name, f.TypeCondition), core.At(f.Position))
		}
	})
	on.OnFragmentSpread(func(_ *core.Walker, f *ast.FragmentSpread) {
		if f.Definition != nil && !possible(f.ObjectDefinition, f.Definition.TypeCondition) {
			addError(core.Message("Fragment %q cannot be spread here as objects of type %q can never be of type %q.",
				f.Name, f.ObjectDefinition.Name, f.Definition.TypeCondition), core.At(f.Position))
		}
	})
}

// oneSubscriptionRoot reports subscriptions that select more than one response name at the root, because even two
// aliases of one field would be two streams. The specification of September 2025 (section 5.2.4.1) also forbids
// introspection fields, @skip and @include at the root.
func (s *Schema) oneSubscriptionRoot(on *core.Events, addError core.AddErrFunc) {
	on.OnOperation(func(_ *core.Walker, op *ast.OperationDefinition) {
		if op.Operation != ast.Subscription || s.types.Subscription == nil {
			return
		}
		name := "Anonymous Subscription"
		if op.Name != "" {
			name = "Subscription " + strconv.Quote(op.Name)
		}
		first := ""
		// visited prevents second visits of a fragment. They would only repeat errors, and if each of n fragments
		// spreads the next one three times, there would be 3^n visits.
		visited := map[string]bool{}
		var walk func(ast.SelectionSet)
		conditional := func(directives ast.DirectiveList, pos *ast.Position) {
			if directives.ForName("skip") != nil || directives.ForName("include") != nil {
				addError(core.Message("%s must not use @skip or @include in the top level selection.", name),
					core.At(pos))
			}
		}
		walk = func(set ast.SelectionSet) {
			for _, sel := range set {
				switch sel := sel.(type) {
				case *ast.Field:
					conditional(sel.Directives, sel.Position)
					if strings.HasPrefix(sel.Name, "__") {
						addError(core.Message("%s must not select an introspection top level field.", name),
							core.At(sel.Position))
					}
					if first == "" {
						first = sel.Alias
					} else if sel.Alias != first {
						addError(core.Message("%s must select only one top level field.", name), core.At(sel.Position))
					}
				case *ast.InlineFragment:
					conditional(sel.Directives, sel.Position)
					if s.includes(sel.TypeCondition, s.types.Subscription) {
						walk(sel.SelectionSet)
					}
				case *ast.FragmentSpread:
					conditional(sel.Directives, sel.Position)
					f := sel.Definition
					if f != nil && !visited[sel.Name] && s.includes(f.TypeCondition, s.types.Subscription) {
						visited[sel.Name] = true
						walk(f.SelectionSet)
					}
				}
			}
		}
		walk(op.SelectionSet)
	})
}

// rejectIntrospection reports the fields __schema and __type.
func rejectIntrospection(on *core.Events, addError core.AddErrFunc) {
	on.OnField(func(_ *core.Walker, f *ast.Field) {
		if f.Name == "__schema" || f.Name == "__type" {
			addError(core.Message("Introspection is turned off."), core.At(f.Position))
		}
	})
}

// grammar reports documents that gqlparser accepts although they do not follow the grammar of GraphQL.
func grammar(doc *ast.QueryDocument) *Error {
	if len(doc.Operations) == 0 && len(doc.Fragments) == 0 {
		return syntaxError("Unexpected <EOF>.", []Location{{1, 1}})
	}
	for _, f := range doc.Fragments {
		if len(f.VariableDefinition) > 0 {
			return syntaxError("A fragment has no variables of its own.", locationsOf(f.VariableDefinition[0].Position))
		}
	}
	return nil
}
