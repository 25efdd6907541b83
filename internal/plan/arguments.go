package plan

import (
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
)

// An argument waits for variables.
type argument struct {
	name     string
	typ      *ast.Type
	value    *ast.Value // nil: not given
	variable int        // the place of the variable that the value is; -1: it is none
	def      any
}

// A callSite is where arguments are given. All fields that are compiled of it share
// their literals.
type callSite struct {
	def  *ast.FieldDefinition
	node *ast.Field
}

// arguments coerces them now where they hold no variable.
func (k *compiler) arguments(f *field, def *ast.FieldDefinition, node *ast.Field) {
	if len(def.Arguments) == 0 {
		return
	}
	variables, steps := false, k.steps
	for _, a := range node.Arguments {
		variables = k.use(a.Value) || variables
	}
	if !k.once[node] {
		k.once[node], k.steps = true, steps // the first time is linear in the document
	}
	if k.spent() {
		return
	}
	place := callSite{def, node}
	if known := k.sharing.arguments[place]; known != nil {
		f.constant, f.dynamic = known.constant, known.dynamic
		return
	}
	k.sharing.arguments[place] = f
	if variables {
		f.dynamic = make([]argument, len(def.Arguments))
		k.plan.size += argumentBytes * len(def.Arguments)
	} else {
		f.constant = make(Args, len(def.Arguments))
		k.plan.size += slotBytes * len(def.Arguments)
	}
	for i, a := range def.Arguments {
		given := argument{name: a.Name, typ: a.Type, variable: -1, def: k.c.schema.defaults[a]}
		if arg := node.Arguments.ForName(a.Name); arg != nil {
			given.value = detached(arg.Value)
		}
		switch {
		case !variables && given.value == nil:
			f.constant[i] = given.def
		case !variables:
			f.constant[i] = k.c.schema.constant(a.Type, given.value)
			k.plan.size += k.c.schema.weighConstant(a.Type, given.value, f.constant[i])
		default:
			if given.value != nil {
				k.plan.size += weighLiteral(given.value, literalBytes)
				if given.value.Kind == ast.Variable {
					given.variable = k.op.variable(given.value.Raw)
				}
			}
			f.dynamic[i] = given
		}
	}
}

// use counts the variables of a value, and reports whether there are any.
func (k *compiler) use(v *ast.Value) (found bool) {
	k.steps--
	if v.Kind == ast.Variable {
		k.plan.uses[k.op.variable(v.Raw)]++
		return true
	}
	for _, c := range v.Children {
		found = k.use(c.Value) || found
	}
	return found
}

// detached returns a copy of a literal that keeps nothing else of its document in
// memory. It has no position.
func detached(v *ast.Value) *ast.Value {
	if v == nil {
		return nil
	}
	own := &ast.Value{Kind: v.Kind, Raw: strings.Clone(v.Raw), Children: make(ast.ChildValueList, len(v.Children))}
	for i, c := range v.Children {
		own.Children[i] = &ast.ChildValue{Name: strings.Clone(c.Name), Value: detached(c.Value)}
	}
	return own
}
