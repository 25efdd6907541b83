package plan

import (
	"fmt"
	"slices"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"github.com/vektah/gqlparser/v2/validator/core"
	"github.com/vektah/gqlparser/v2/validator/rules"
)

// A validation checks one document. Its rules observe the walk over the document.
type validation struct {
	core.Events
	schema *Schema
	parts  parts // positions in the document
	errs   Errors

	// fragmentRules have the functions that check a fragment's definition, without its selections.
	fragmentRules []func(*ast.FragmentDefinition)

	// invalid reports an error at some locations.
	invalid func(at []Location, format string, args ...any)
}

// A rule registers the functions of a validation that report one kind of error.
type rule struct {
	name    string
	observe func(v *validation)
}

// validationRules are the rules of the specification of September 2025, and the limit of graphql-js 17 on
// introspection. Errors have the texts and locations of graphql-js 17, without suggestions. Limits.check has already
// measured the document. A merger finds conflicting fields afterwards.
//
// Rules of gqlparser are used if they report the same errors at the same locations.
var validationRules = []rule{
	{"FieldsOnCorrectType", fieldsOnCorrectType},
	{"FragmentsOnCompositeTypes", fragmentsOnCompositeTypes},
	{"KnownArgumentNames", knownArgumentNames},
	ruleOf(rules.KnownDirectivesRule),
	{"KnownFragmentNames", knownFragmentNames},
	{"KnownOperationTypes", knownOperationTypes},
	{"KnownTypeNames", knownTypeNames},
	ruleOf(rules.LoneAnonymousOperationRule),
	ruleOf(rules.MaxIntrospectionDepth),
	{"NoFragmentCycles", noFragmentCycles},
	{"NoUndefinedVariables", noUndefinedVariables},
	{"NoUnusedFragments", noUnusedFragments},
	{"NoUnusedVariables", noUnusedVariables},
	{"PossibleFragmentSpreads", possibleFragmentSpreads},
	{"ProvidedRequiredArguments", providedRequiredArguments},
	{"ScalarLeafs", scalarLeafs},
	{"SingleFieldSubscriptions", singleFieldSubscriptions},
	{"UniqueNames", uniqueNames},
	{"ValuesOfCorrectType", valuesOfCorrectType},
	{"VariablesAreInputTypes", variablesAreInputTypes},
	{"VariablesInAllowedPosition", variablesInAllowedPosition},
}

// noIntrospection is an additional rule if introspection is turned off.
var noIntrospection = rule{"NoIntrospection", func(v *validation) {
	v.OnField(func(_ *core.Walker, f *ast.Field) {
		if f.Name == "__schema" || f.Name == "__type" {
			v.invalid(locationsOf(f.Position), "Introspection is turned off.")
		}
	})
}}

// ruleOf returns a rule of gqlparser.
func ruleOf(r core.Rule) rule {
	return rule{r.Name, func(v *validation) {
		r.RuleFunc(&v.Events, func(options ...core.ErrorOption) {
			if v.full() {
				return
			}
			var found gqlerror.Error
			for _, option := range options {
				option(&found)
			}
			var at []Location
			for _, l := range found.Locations {
				at = append(at, Location{l.Line, l.Column})
			}
			v.invalid(at, "%s", found.Message)
		})
	}}
}

// validate returns the first errors that the validation rules find.
func (c *Cache) validate(doc *ast.QueryDocument, parts parts) Errors {
	v := &validation{schema: c.schema, parts: parts}
	v.invalid = v.add
	for _, r := range c.rules {
		r.observe(v)
	}
	v.walk(doc)
	return v.errs
}

// OnFragment registers a function that checks a fragment's definition, without its selections. It replaces the method
// of core.Events.
func (v *validation) OnFragment(rule func(f *ast.FragmentDefinition)) {
	v.fragmentRules = append(v.fragmentRules, rule)
}

// walk calls the rules for each node of a document: for those in fragments once for each operation that spreads the
// fragment, and once for all fragments together, since some may be unused. Of two fragments with one name, it visits
// the first.
//
// core.Walk would visit the nodes once for each fragment from which they can be reached: 32 fragments that spread each
// other took four times as long. Therefore it first visits an additional fragment, which spreads all others. The others
// are then replaced with an empty one, so that it does not visit them again.
func (v *validation) walk(doc *ast.QueryDocument) {
	all := &ast.FragmentDefinition{}
	fragments := ast.FragmentDefinitionList{all}
	for _, f := range doc.Fragments {
		all.SelectionSet = append(all.SelectionSet, &ast.FragmentSpread{Name: f.Name})
		fragments = append(fragments, f)
	}
	v.Events.OnFragment(func(*core.Walker, *ast.FragmentDefinition) {
		all.SelectionSet = nil
		for i := range fragments {
			fragments[i] = all
		}
	})
	core.Walk(v.schema.types, &ast.QueryDocument{Operations: doc.Operations, Fragments: fragments}, &v.Events)
	for _, f := range doc.Fragments {
		for _, rule := range v.fragmentRules {
			rule(f)
		}
	}
}

// full reports whether further errors are dropped.
func (v *validation) full() bool { return len(v.errs) >= maxErrors }

// add stores an error. It drops repeated errors, because the rules visit a fragment each time that they reach it.
func (v *validation) add(at []Location, format string, args ...any) {
	if v.full() {
		return
	}
	e := &Error{Message: fmt.Sprintf(format, args...), Code: CodeValidation, Locations: at}
	if !slices.ContainsFunc(v.errs, func(o *Error) bool {
		return o.Message == e.Message && slices.Equal(o.Locations, e.Locations)
	}) {
		v.errs = append(v.errs, e)
	}
}

// at returns the location of a part of a node.
func (v *validation) at(node any, kind partKind) []Location {
	return locationsOf(v.parts[part{node, kind}])
}
