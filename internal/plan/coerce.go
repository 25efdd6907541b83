package plan

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"github.com/vektah/gqlparser/v2/ast"
)

// A fault is what is wrong with a literal, and where.
type fault struct {
	pos *ast.Position
	msg string
}

func (f *fault) Error() string { return f.msg }

func faultf(pos *ast.Position, format string, args ...any) error {
	return &fault{pos, fmt.Sprintf(format, args...)}
}

// A lookup gives the value of a variable, and whether it has one.
type lookup func(name string) (any, bool)

// constant is the value of a literal that is known to be good; nil is none.
func (s *Schema) constant(t *ast.Type, v *ast.Value) any {
	if v == nil {
		return nil
	}
	value, err := s.fromLiteral(t, v, nil)
	if err != nil {
		panic(fmt.Sprintf("plan: default value: %v", err)) // the schema's author wrote it
	}
	return value
}

// fromLiteral coerces a literal to the type it stands for. Without a lookup,
// variables are taken on trust: that is how a document is validated, where
// their types are checked by a rule of their own.
func (s *Schema) fromLiteral(t *ast.Type, v *ast.Value, vars lookup) (any, error) {
	if v.Kind == ast.Variable {
		if vars == nil {
			return nil, nil
		}
		value, _ := vars(v.Raw)
		if value == nil && t.NonNull {
			return nil, faultf(v.Position, "Variable \"$%s\" must not be null where a %q is expected.", v.Raw, t)
		}
		return value, nil
	}
	if v.Kind == ast.NullValue {
		if t.NonNull {
			return nil, faultf(v.Position, "Expected value of type %q, found null.", t)
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
	switch def.Kind {
	case ast.InputObject:
		return s.objectLiteral(def, v, vars)
	case ast.Enum:
		if v.Kind != ast.EnumValue {
			return nil, faultf(v.Position, "Enum %q cannot represent non-enum value: %s.", def.Name, v)
		}
		if def.EnumValues.ForName(v.Raw) == nil {
			return nil, faultf(v.Position, "Value %q does not exist in %q enum.", v.Raw, def.Name)
		}
		return v.Raw, nil
	}
	if s.own(def.Name) != nil {
		value, ok := s.ownLiteral(def.Name, v)
		if !ok {
			return nil, faultf(v.Position, "%s cannot represent %s.", def.Name, v)
		}
		return value, nil
	}
	return scalarLiteral(def.Name, v)
}

func scalarLiteral(name string, v *ast.Value) (any, error) {
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
	return nil, faultf(v.Position, "%s: %s", what, v)
}

// scalarText is what a literal is as a value of a scalar, if it can be one.
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
			f, err := strconv.ParseFloat(raw, 64)
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
		return nil, faultf(v.Position, "Expected value of type %q, found %s.", def.Name, v)
	}
	for _, child := range v.Children {
		if def.Fields.ForName(child.Name) == nil {
			return nil, faultf(child.Position, "Field %q is not defined by type %q.", child.Name, def.Name)
		}
	}
	object := make(map[string]any, len(v.Children))
	for _, f := range def.Fields {
		child := v.Children.ForName(f.Name)
		if child != nil && child.Kind == ast.Variable && vars != nil {
			if _, present := vars(child.Raw); !present {
				child = nil // an absent variable is an absent field
			}
		}
		if child == nil {
			child = f.DefaultValue
		}
		if child == nil {
			if f.Type.NonNull {
				return nil, faultf(v.Position, "Field %q of required type %q was not provided.", def.Name+"."+f.Name, f.Type)
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

// A reader coerces what came as JSON: nil, bool, string, json.Number, []any
// and map[string]any.
type reader struct {
	s        *Schema
	maxItems int
	variable string
	path     []byte // of what is being read, for messages: "f.in[2]"
}

func (r *reader) fail(code string, v any, format string, args ...any) *Error {
	msg := fmt.Sprintf("Variable \"$%s\" got invalid value %s", r.variable, describe(v))
	if len(r.path) > len(r.variable) {
		msg += fmt.Sprintf(" at %q", r.path)
	}
	return &Error{Message: msg + "; " + fmt.Sprintf(format, args...), Code: code}
}

// describe shows a value in a message, not all of it: its sender knows it.
func describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case map[string]any:
		return "{...}"
	case []any:
		return "[...]"
	case string:
		return shorten(string(AppendString(nil, v)))
	}
	return shorten(fmt.Sprint(v))
}

func (r *reader) read(t *ast.Type, v any) (any, *Error) {
	if v == nil {
		if t.NonNull {
			return nil, r.fail(CodeInput, v, "Expected non-nullable type %q not to be null.", t)
		}
		return nil, nil
	}
	if t.Elem != nil {
		items, ok := v.([]any)
		if !ok {
			item, err := r.read(t.Elem, v)
			return []any{item}, err
		}
		if r.maxItems > 0 && len(items) > r.maxItems {
			err := r.fail(CodeLimit, v, "The list exceeds the limit of %d items.", r.maxItems)
			err.Limit = "ListItems"
			return nil, err
		}
		read := make([]any, len(items))
		here := len(r.path)
		for i, item := range items {
			r.path = fmt.Appendf(r.path, "[%d]", i)
			var err *Error
			if read[i], err = r.read(t.Elem, item); err != nil {
				return nil, err
			}
			r.path = r.path[:here]
		}
		return read, nil
	}
	def := r.s.types.Types[t.NamedType]
	switch def.Kind {
	case ast.InputObject:
		return r.object(def, v)
	case ast.Enum:
		name, ok := v.(string)
		if !ok {
			return nil, r.fail(CodeInput, v, "Enum %q cannot represent non-string value.", def.Name)
		}
		if def.EnumValues.ForName(name) == nil {
			return nil, r.fail(CodeInput, v, "Value does not exist in %q enum.", def.Name)
		}
		return name, nil
	}
	if r.s.own(def.Name) != nil {
		value, ok := r.s.ownJSON(def.Name, v)
		if !ok {
			return nil, r.fail(CodeInput, v, "%s cannot represent it.", def.Name)
		}
		return value, nil
	}
	if value, ok := scalarJSON(def.Name, v); ok {
		return value, nil
	}
	return nil, r.fail(CodeInput, v, "%s", map[string]string{
		"Int":     "Int cannot represent non-integer value, or one past 32 bits.",
		"Float":   "Float cannot represent non numeric value.",
		"Boolean": "Boolean cannot represent a non boolean value.",
		"ID":      "ID cannot represent a non-string and non-integer value.",
		"String":  "String cannot represent a non string value.",
	}[def.Name])
}

func (r *reader) object(def *ast.Definition, v any) (any, *Error) {
	given, ok := v.(map[string]any)
	if !ok {
		return nil, r.fail(CodeInput, v, "Expected type %q to be an object.", def.Name)
	}
	for name := range given {
		if def.Fields.ForName(name) == nil {
			return nil, r.fail(CodeInput, v, "Field %q is not defined by type %q.", name, def.Name)
		}
	}
	object := make(map[string]any, len(given))
	here := len(r.path)
	for _, f := range def.Fields {
		value, present := given[f.Name]
		switch {
		case present:
			r.path = append(append(r.path, '.'), f.Name...)
			read, err := r.read(f.Type, value)
			if err != nil {
				return nil, err
			}
			object[f.Name] = read
			r.path = r.path[:here]
		case f.DefaultValue != nil:
			object[f.Name] = r.s.constant(f.Type, f.DefaultValue)
		case f.Type.NonNull:
			return nil, r.fail(CodeInput, v, "Field %q of required type %q was not provided.", f.Name, f.Type)
		}
	}
	return object, nil
}

func scalarJSON(name string, v any) (any, bool) {
	switch name {
	case "Boolean":
		_, ok := v.(bool)
		return v, ok
	case "String":
		_, ok := v.(string)
		return v, ok
	case "ID":
		if _, ok := v.(string); ok {
			return v, true
		}
		if n, err := strconv.ParseInt(fmt.Sprint(v), 10, 64); err == nil {
			return strconv.FormatInt(n, 10), true // a float would lose digits of it
		}
		f, ok := number(v)
		return strconv.FormatFloat(f, 'f', 0, 64), ok && f == math.Trunc(f) && math.Abs(f) < 1<<53
	case "Float":
		f, ok := number(v)
		return f, ok
	}
	f, ok := number(v) // Int: JSON knows no difference between 5 and 5.0
	return int(f), ok && f == math.Trunc(f) && math.Abs(f) <= math.MaxInt32+1 && f <= math.MaxInt32
}

func number(v any) (float64, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	f, err := n.Float64()
	return f, err == nil
}
