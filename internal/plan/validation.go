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
	core.Walk(c.schema.types, doc, &v.Events)
	return v.errs
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
