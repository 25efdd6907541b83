package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
)

// An argument is one argument of a field with variables in its arguments. It is coerced each time the field runs.
type argument struct {
	name     string
	typ      *ast.Type
	value    *ast.Value // as written in the document; nil if absent
	variable int        // if value is a variable, its index in Bound.variables; else -1
	def      any        // the default value that the schema declares
}

// A callSite is a place in the document that passes arguments to a field. All compiled fields with the same
// callSite share their compiled arguments: the types that implement an interface, too, if they have no other arguments.
type callSite struct {
	alike *ast.FieldDefinition // see Schema.alike
	node  *ast.Field
}

// indexArguments sets defaults and alike.
func (s *Schema) indexArguments() {
	s.defaults, s.alike = map[*ast.ArgumentDefinition]any{}, map[*ast.FieldDefinition]*ast.FieldDefinition{}
	first := map[string]*ast.FieldDefinition{}
	for _, def := range s.types.Types {
		for _, f := range def.Fields {
			var text []byte
			for _, a := range f.Arguments {
				s.defaults[a] = s.constant(a.Type, a.DefaultValue)
				text = fmt.Appendf(text, "%s:%s=%s ", a.Name, a.Type, a.DefaultValue)
			}
			if first[string(text)] == nil {
				first[string(text)] = f
			}
			s.alike[f] = first[string(text)]
		}
	}
}

// arguments compiles the arguments that node passes to f. If they contain no variable, it also coerces them.
func (k *compiler) arguments(f *field, def *ast.FieldDefinition, node *ast.Field) {
	if len(def.Arguments) == 0 {
		return
	}
	variables, steps := false, k.steps
	for _, a := range node.Arguments {
		variables = k.countVariables(a.Value) || variables
	}
	if !k.compiled[node] { // do not count the first time: all first times together are linear in the document
		k.compiled[node] = true
		k.uncounted += steps - k.steps
		k.steps = steps
	}
	if k.exhausted() {
		return
	}
	place := callSite{k.c.schema.alike[def], node}
	if known := k.sharing.arguments[place]; known != nil {
		f.callArguments = known
		return
	}
	f.callArguments = new(callArguments)
	k.sharing.arguments[place] = f.callArguments
	k.plan.size += callArgumentsBytes
	if variables {
		f.dynamic = make([]argument, len(def.Arguments))
		k.plan.size += argumentBytes * len(def.Arguments)
	} else {
		f.constant = make(Args, len(def.Arguments))
		k.plan.size += slotBytes * len(def.Arguments)
	}
	for i, a := range def.Arguments {
		var written *ast.Value
		if given := node.Arguments.ForName(a.Name); given != nil {
			written = given.Value
		}
		if f.source.hosted() {
			if k.values -= k.c.schema.countLiteral(a.Type, written, a.DefaultValue); k.exhausted() {
				return
			}
		}
		arg := argument{name: a.Name, typ: a.Type, value: cloneLiteral(written), variable: -1,
			def: k.c.schema.defaults[a]}
		switch {
		case !variables && arg.value == nil:
			f.constant[i] = arg.def
		case !variables:
			f.constant[i] = k.c.schema.constant(a.Type, arg.value)
			k.plan.size += k.c.schema.constantSize(a.Type, arg.value, f.constant[i])
		default:
			if arg.value != nil && !hasVariable(arg.value) { // coerce it once: a number may have 30,000 digits
				arg.def = k.c.schema.constant(a.Type, arg.value)
				k.plan.size += k.c.schema.constantSize(a.Type, arg.value, arg.def)
				arg.value = nil
			}
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

// arguments returns the arguments of f with the values of b's variables. It may use the memory of buf. Only a variable
// can be invalid: null for a non-null argument that has a default value.
func (f *field) arguments(b *Bound, buf Args) (Args, *Error) {
	if f.dynamic == nil {
		return f.constant, nil
	}
	args := slices.Grow(buf[:0], len(f.dynamic))[:len(f.dynamic)]
	for i := range f.dynamic {
		a := &f.dynamic[i]
		if a.value == nil {
			args[i] = cloneValue(a.def) // a host's resolver may change it
			continue
		}
		if a.variable >= 0 {
			if value := b.variables[a.variable]; value == (absent{}) {
				if args[i] = cloneValue(a.def); a.def != nil || !a.typ.NonNull {
					continue
				}
			} else if value != nil {
				if args[i] = value; f.source == nil || !f.source.ReadsText {
					args[i] = owned(value)
				}
				continue
			}
		}
		value, err := b.cache.schema.fromLiteral(a.typ, a.value, b.value)
		if err != nil {
			return nil, f.invalidArgument(a, err)
		}
		args[i] = value
	}
	return args, nil
}

// invalidArgument returns the error of an argument, at the variable that caused it.
func (f *field) invalidArgument(a *argument, err error) *Error {
	e := inputError("Argument %q has an invalid value: %s", a.name, err)
	e.Locations = f.locations
	var invalid *literalError
	if errors.As(err, &invalid) && invalid.pos != nil {
		e.Locations = locationsOf(invalid.pos)
	}
	return e
}

// countVariables counts each use of a variable in v and reports whether there are any. It takes one step for each value
// in v and for each eight digits of a number, because numbers beside variables are coerced each time that a plan runs.
func (k *compiler) countVariables(v *ast.Value) (found bool) {
	k.steps--
	if v.Kind == ast.IntValue || v.Kind == ast.FloatValue {
		k.steps -= len(v.Raw) / 8
	}
	if v.Kind == ast.Variable {
		k.plan.uses[k.op.variable(v.Raw)]++
		return true
	}
	for _, c := range v.Children {
		found = k.countVariables(c.Value) || found
	}
	return found
}

// cloneLiteral returns a copy of a literal, with the positions of its variables. The copy shares no memory with the
// document, so it does not keep the document in memory.
func cloneLiteral(v *ast.Value) *ast.Value {
	if v == nil {
		return nil
	}
	own := &ast.Value{Kind: v.Kind, Raw: strings.Clone(v.Raw), Children: make(ast.ChildValueList, len(v.Children))}
	if v.Kind == ast.Variable && v.Position != nil {
		own.Position = &ast.Position{Line: v.Position.Line, Column: v.Position.Column}
	}
	for i, c := range v.Children {
		own.Children[i] = &ast.ChildValue{Name: strings.Clone(c.Name), Value: cloneLiteral(c.Value)}
	}
	return own
}

// hasVariable reports whether v contains a variable.
func hasVariable(v *ast.Value) bool {
	return v.Kind == ast.Variable ||
		slices.ContainsFunc(v.Children, func(c *ast.ChildValue) bool { return hasVariable(c.Value) })
}
