package plan

import (
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/validator/core"
)

// valuesOfCorrectType reports literals that are not of the type of their place.
func valuesOfCorrectType(v *validation) {
	check := func(args ast.ArgumentList, defs ast.ArgumentDefinitionList) {
		for _, arg := range args {
			if def := defs.ForName(arg.Name); def != nil {
				v.value(def.Type, arg.Value)
			}
		}
	}
	v.OnField(func(_ *core.Walker, f *ast.Field) {
		if f.Definition != nil {
			check(f.Arguments, f.Definition.Arguments)
		}
	})
	v.OnDirective(func(_ *core.Walker, d *ast.Directive) {
		if d.Definition != nil {
			check(d.Arguments, d.Definition.Arguments)
		}
	})
	v.OnVariable(func(_ *core.Walker, variable *ast.VariableDefinition) {
		def := v.schema.types.Types[variable.Type.Name()]
		if variable.DefaultValue != nil && def != nil && def.IsInputType() {
			v.value(variable.Type, variable.DefaultValue)
		}
	})
}

// value reports all values nested in a literal that are not of their type. variablesInAllowedPosition checks the types
// of variables.
func (v *validation) value(t *ast.Type, value *ast.Value) {
	switch {
	case v.full(), value.Kind == ast.Variable:
	case value.Kind == ast.NullValue:
		if t.NonNull {
			v.invalid(locationsOf(value.Position), "Expected value of non-null type %q not to be null.", t)
		}
	case t.Elem != nil && value.Kind == ast.ListValue:
		for _, item := range value.Children {
			v.value(t.Elem, item.Value)
		}
	case t.Elem != nil:
		v.value(t.Elem, value)
	default:
		def := v.schema.types.Types[t.NamedType]
		if def.Kind == ast.InputObject {
			v.object(def, value)
			return
		}
		if _, err := v.schema.leafLiteral(def, value); err != nil {
			v.invalid(locationsOf(err.pos), "%s", err.msg)
		}
	}
}

func (v *validation) object(def *ast.Definition, value *ast.Value) {
	if value.Kind != ast.ObjectValue {
		v.invalid(locationsOf(value.Position), "Expected value of type %q to be an object, found: %s.",
			def.Name, describeLiteral(value))
		return
	}
	for _, f := range def.Fields {
		if child := value.Children.ForName(f.Name); child != nil {
			v.value(f.Type, child)
		} else if f.Type.NonNull && f.DefaultValue == nil {
			v.invalid(locationsOf(value.Position), "Expected value of type %q to include required field %q, found: %s.",
				def.Name, f.Name, describeLiteral(value))
		}
	}
	for _, child := range value.Children {
		if def.Fields.ForName(child.Name) == nil {
			v.invalid(locationsOf(child.Position),
				"Expected value of type %q not to include unknown field %q, found: %s.",
				def.Name, child.Name, describeLiteral(value))
		}
	}
}
