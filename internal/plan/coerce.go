package plan

import (
	"fmt"
	"strconv"

	"github.com/vektah/gqlparser/v2/ast"
)

// A literalError describes an invalid literal and has its position.
type literalError struct {
	pos *ast.Position
	msg string
}

func (f *literalError) Error() string { return f.msg }

func literalErrorf(v *ast.Value, format string, args ...any) *literalError {
	return &literalError{v.Position, fmt.Sprintf(format, args...)}
}

// describeLiteral formats a literal for a message. It abbreviates the literal, because the client knows it.
func describeLiteral(v *ast.Value) string {
	switch v.Kind {
	case ast.ListValue:
		return "[...]"
	case ast.ObjectValue:
		return "{...}"
	}
	return shorten(v.String())
}

// A lookup returns the value of the named variable and reports whether the variable is present.
type lookup func(name string) (any, bool)

// constant coerces a valid literal without variables to the type t. It returns nil if v is nil.
func (s *Schema) constant(t *ast.Type, v *ast.Value) any {
	if v == nil {
		return nil
	}
	value, err := s.fromLiteral(t, v, nil)
	if err != nil {
		panic(fmt.Sprintf("plan: invalid constant: %v", err)) // NewSchema and validation check all constants
	}
	return value
}

func (s *Schema) checkDefault(t *ast.Type, v *ast.Value) error {
	if v == nil {
		return nil
	}
	_, err := s.fromLiteral(t, v, nil)
	return err
}

// fromLiteral coerces a literal to the type t. It looks up variables in vars. During validation, vars is nil; then
// fromLiteral accepts every variable, because another rule checks the types of variables.
func (s *Schema) fromLiteral(t *ast.Type, v *ast.Value, vars lookup) (any, error) {
	if v.Kind == ast.Variable {
		if vars == nil {
			return nil, nil
		}
		value, _ := vars(v.Raw)
		if value == nil && t.NonNull {
			return nil, literalErrorf(v, "Expected variable \"$%s\" provided to non-null type %q not to be null.",
				v.Raw, t)
		}
		return value, nil
	}
	if v.Kind == ast.NullValue {
		if t.NonNull {
			return nil, literalErrorf(v, "Expected value of non-null type %q not to be null.", t)
		}
		return nil, nil
	}
	if t.Elem != nil {
		if v.Kind != ast.ListValue {
			item, err := s.fromLiteral(t.Elem, v, vars)
			return []any{item}, err
		}
		items := make([]any, len(v.Children))
		for i, child := range v.Children {
			var err error
			if items[i], err = s.fromLiteral(t.Elem, child.Value, vars); err != nil {
				return nil, err
			}
		}
		return items, nil
	}
	def := s.types.Types[t.NamedType]
	if def.Kind == ast.InputObject {
		return s.objectLiteral(def, v, vars)
	}
	value, err := s.leafLiteral(def, v)
	if err != nil {
		return nil, err
	}
	return value, nil
}

// countLiteral returns the number of values nested in a valid literal that is coerced to the type t, or in def if there
// is no literal. If a variable may be replaced with a default, it counts the default; other variables have no values.
func (s *Schema) countLiteral(t *ast.Type, v, def *ast.Value) (n int) {
	if v == nil || v.Kind == ast.Variable && def != nil {
		v = def
	}
	if v == nil || v.Kind == ast.Variable || v.Kind == ast.NullValue {
		return 0
	}
	item := t // of a list or an object for a host's scalar
	if t.Elem != nil {
		if item = t.Elem; v.Kind != ast.ListValue {
			return 1 + s.countLiteral(item, v, nil)
		}
	} else if object := s.types.Types[t.NamedType]; object.Kind == ast.InputObject {
		for _, f := range object.Fields {
			if child := v.Children.ForName(f.Name); child != nil || f.DefaultValue != nil {
				n += 1 + s.countLiteral(f.Type, child, f.DefaultValue)
			}
		}
		return n
	}
	for _, child := range v.Children {
		n += 1 + s.countLiteral(item, child.Value, nil)
	}
	return n
}

// leafLiteral coerces a literal, which is no variable, to a scalar or enum.
func (s *Schema) leafLiteral(def *ast.Definition, v *ast.Value) (any, *literalError) {
	if def.Kind == ast.Enum {
		if v.Kind != ast.EnumValue {
			return nil, literalErrorf(v, "Enum %q cannot represent non-enum value: %s.", def.Name, describeLiteral(v))
		}
		if def.EnumValues.ForName(v.Raw) == nil {
			return nil, literalErrorf(v, "Value %q does not exist in %q enum.", v.Raw, def.Name)
		}
		return s.enumValue(def.Name, v.Raw), nil
	}
	if scalar := s.hostScalar(def.Name); scalar != nil {
		value := scalar.ParseLiteral(astValue(v))
		if value == nil {
			return nil, literalErrorf(v, "Expected value of type %q, found: %s.", def.Name, describeLiteral(v))
		}
		return value, nil
	}
	return scalarLiteral(def.Name, v)
}

func scalarLiteral(name string, v *ast.Value) (any, *literalError) {
	if value, ok := scalarText(name, v.Kind, v.Raw); ok {
		return value, nil
	}
	what := name + " cannot represent "
	switch name {
	case "Int":
		what += "non-integer value"
		if v.Kind == ast.IntValue {
			what = "Int cannot represent non 32-bit signed integer value"
		}
	case "Float":
		what += "non numeric value"
	case "Boolean":
		what += "a non boolean value"
	case "ID":
		what += "a non-string and non-integer value"
	default:
		what = "String cannot represent a non string value"
	}
	return nil, literalErrorf(v, "%s: %s", what, describeLiteral(v))
}

// scalarText coerces the text of a literal to a built-in scalar type and reports whether it is valid.
func scalarText(name string, kind ast.ValueKind, raw string) (any, bool) {
	text := kind == ast.StringValue || kind == ast.BlockValue
	switch name {
	case "Int":
		if kind == ast.IntValue {
			n, err := strconv.ParseInt(raw, 10, 32)
			return int(n), err == nil
		}
		return nil, false
	case "Float":
		if kind == ast.IntValue || kind == ast.FloatValue {
			f, err := parseFloat(raw)
			return f, err == nil
		}
		return nil, false
	case "Boolean":
		return raw == "true", kind == ast.BooleanValue
	case "ID":
		return raw, text || kind == ast.IntValue
	}
	return raw, text
}

func (s *Schema) objectLiteral(def *ast.Definition, v *ast.Value, vars lookup) (any, error) {
	if v.Kind != ast.ObjectValue {
		return nil, literalErrorf(v, "Expected value of type %q to be an object, found: %s.",
			def.Name, describeLiteral(v))
	}
	for _, child := range v.Children {
		if def.Fields.ForName(child.Name) == nil {
			return nil, literalErrorf(v, "Expected value of type %q not to include unknown field %q.",
				def.Name, child.Name)
		}
	}
	object := make(map[string]any, len(v.Children))
	for _, f := range def.Fields {
		child := v.Children.ForName(f.Name)
		if child != nil && child.Kind == ast.Variable && vars != nil {
			if _, present := vars(child.Raw); !present {
				child = nil // if the variable is absent, the field is absent
			}
		}
		if child == nil {
			child = f.DefaultValue
		}
		if child == nil {
			if f.Type.NonNull {
				return nil, literalErrorf(v, "Expected value of type %q to include required field %q.",
					def.Name, f.Name)
			}
			continue
		}
		value, err := s.fromLiteral(f.Type, child, vars)
		if err != nil {
			return nil, err
		}
		object[f.Name] = value
	}
	return object, nil
}
