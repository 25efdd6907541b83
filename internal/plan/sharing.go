package plan

import (
	"slices"

	"github.com/vektah/gqlparser/v2/ast"
)

// A sharing has the parts of a plan that may be needed in several places, so that the plan has each of them only
// once. A fragment may be spread in hundreds of places and have names and literals of kilobytes.
type sharing struct {
	texts     map[string]string                   // keys and the texts of pieces
	fields    map[site][]*sharedPart[*field]      // fields without a cost
	types     map[site][]*sharedPart[*outputType] // types of fields, with selections without a cost
	arguments map[callSite]*callArguments         // the arguments that were compiled from each site
	priced    map[call]int                        // the first priced field with each call, in Plan.priced
	leaves    map[*ast.Type]*outputType           // types of fields without a selection
}

func newSharing() sharing {
	return sharing{
		map[string]string{},
		map[site][]*sharedPart[*field]{}, map[site][]*sharedPart[*outputType]{},
		map[callSite]*callArguments{}, map[call]int{}, map[*ast.Type]*outputType{},
	}
}

// A site identifies the compiled form of a field: by its object type, its first node in the document, and whether a
// comma precedes it, which is irrelevant for the type of the field.
type site struct {
	object *ast.Definition
	node   *ast.Field
	comma  bool
}

// A sharedPart is a compiled field or its type, with all fields below it, that other places with the same nodes can
// use, too. fields and steps are the limits that its compilation used up. Each further use takes them off the limits
// again, as if the part were compiled again.
type sharedPart[T any] struct {
	nodes         []*ast.Field
	compiled      T
	fields, steps int
}

// share returns what compile returns for the nodes of a field. A part without a cost is compiled only once.
func share[T any](k *compiler, parts map[site][]*sharedPart[T], place site, nodes []*ast.Field, compile func() T) T {
	for _, known := range parts[place] {
		if slices.Equal(known.nodes, nodes) {
			k.fields -= known.fields
			k.steps = max(k.steps-known.steps, -1) // counted, although they were not taken
			return known.compiled
		}
	}
	cost, priced, batch := k.plan.fixedCost, len(k.plan.priced), len(k.plan.batch)
	fields, steps := k.fields, k.steps-k.uncounted
	compiled := compile()
	if k.plan.fixedCost == cost && len(k.plan.priced) == priced && len(k.plan.batch) == batch {
		own := &sharedPart[T]{nodes, compiled, fields - k.fields, steps - k.steps + k.uncounted}
		parts[place] = append(parts[place], own)
	}
	return compiled
}
