package plan

import (
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
)

// An argument is coerced when the field runs, because the field's arguments contain
// variables.
type argument struct {
	name     string
	typ      *ast.Type
	value    *ast.Value // nil if absent
	variable int        // if the value is a variable, its index; else -1
	def      any
}

// A callSite identifies the arguments of a field in the document. All fields that are
// compiled from it share their literals.
type callSite struct {
	def  *ast.FieldDefinition
	node *ast.Field
}

// arguments compiles the arguments of a field. If they contain no variable, it
// coerces them.
func (k *compiler) arguments(f *field, def *ast.FieldDefinition, node *ast.Field) {
	if len(def.Arguments) == 0 {
		return
	}
	variables, steps := false, k.steps
	for _, a := range node.Arguments {
		variables = k.countVariables(a.Value) || variables
	}
	if !k.compiled[node] { // the first time does not count: it is linear in the document
		k.compiled[node] = true
		k.uncounted += steps - k.steps
		k.steps = steps
	}
	if k.exhausted() {
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
		arg := argument{name: a.Name, typ: a.Type, variable: -1, def: k.c.schema.defaults[a]}
		if written := node.Arguments.ForName(a.Name); written != nil {
			arg.value = cloneLiteral(written.Value)
		}
		switch {
		case !variables && arg.value == nil:
			f.constant[i] = arg.def
		case !variables:
			f.constant[i] = k.c.schema.constant(a.Type, arg.value)
			k.plan.size += k.c.schema.constantSize(a.Type, arg.value, f.constant[i])
		default:
			if arg.value != nil {
				k.plan.size += literalSize(arg.value, literalBytes)
				if arg.value.Kind == ast.Variable {
					arg.variable = k.op.variable(arg.value.Raw)
				}
			}
			f.dynamic[i] = arg
		}
	}
}

// countVariables counts the uses of variables in a value and reports whether there
// are any.
func (k *compiler) countVariables(v *ast.Value) (found bool) {
	k.steps--
	if v.Kind == ast.Variable {
		k.plan.uses[k.op.variable(v.Raw)]++
		return true
	}
	for _, c := range v.Children {
		found = k.countVariables(c.Value) || found
	}
	return found
}

// cloneLiteral returns a copy of a literal without positions. It does not keep the
// document in memory.
func cloneLiteral(v *ast.Value) *ast.Value {
	if v == nil {
		return nil
	}
	own := &ast.Value{Kind: v.Kind, Raw: strings.Clone(v.Raw), Children: make(ast.ChildValueList, len(v.Children))}
	for i, c := range v.Children {
		own.Children[i] = &ast.ChildValue{Name: strings.Clone(c.Name), Value: cloneLiteral(c.Value)}
	}
	return own
}
