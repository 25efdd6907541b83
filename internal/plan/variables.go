package plan

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"github.com/vektah/gqlparser/v2/ast"
)

// A Variable is one variable of a request.
type Variable struct {
	// Name is the name without the dollar sign.
	Name []byte
	// Value is nil or a bool, string, json.Number, []any, map[string]any or *Text.
	Value any
}

// A Text is a string variable in a buffer of the request, which must not change before Run has returned. Only resolvers
// of fields with ReadsText receive it; all others receive a string. To copy a string takes two allocations.
type Text []byte

// owned returns v, or a string if v is a *Text.
func owned(v any) any {
	if t, ok := v.(*Text); ok {
		return string(*t)
	}
	return v
}

// A variableReader coerces the value that a request has for a variable: nil, or a bool, string, json.Number, []any
// or map[string]any.
type variableReader struct {
	s         *Schema
	limits    *Limits
	remaining int // number of values, including those of defaults, that may still be read
	variable  string
	path      []byte // path of the current value for messages, such as "f.in[2]"
}

func (r *variableReader) fail(code string, v any, format string, args ...any) *Error {
	msg := fmt.Sprintf("Variable \"$%s\" got invalid value %s", r.variable, describe(v))
	if len(r.path) > len(r.variable) {
		msg += fmt.Sprintf(" at %q", r.path)
	}
	return &Error{Message: msg + "; " + fmt.Sprintf(format, args...), Code: code}
}

func (r *variableReader) count(values int) *Error { return r.limits.countValues(&r.remaining, values) }

// countValues subtracts values from remaining, which begins as the limit on all variables of a request. It returns an
// error if there are too many, because a body of 128 KiB has room for 40,000 objects, which take a hundred times as
// much memory.
func (l *Limits) countValues(remaining *int, values int) *Error {
	if *remaining -= values; *remaining >= 0 || l.Tokens <= 0 {
		return nil
	}
	return limitError("Tokens", nil, "The variables exceed the limit of %d values.", l.Tokens)
}

// countValues returns the number of values nested in a list or an object.
func countValues(v any) (n int) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			n += 1 + countValues(item)
		}
	case map[string]any:
		for _, item := range v {
			n += 1 + countValues(item)
		}
	}
	return n
}

// describe formats a value for a message. It abbreviates the value, because the client knows it.
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

func (r *variableReader) read(t *ast.Type, v any) (any, *Error) {
	if err := r.count(1); err != nil {
		return nil, err
	}
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
		if most := r.limits.ListItems; most > 0 && len(items) > most {
			err := r.fail(CodeLimit, v, "The list exceeds the limit of %d items.", most)
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
		return r.s.enumValue(def.Name, name), nil
	}
	if scalar := r.s.hostScalar(def.Name); scalar != nil {
		if err := r.count(countValues(v)); err != nil {
			return nil, err
		}
		value := scalar.ParseValue(plainJSON(v)) // with numbers as float64, as encoding/json decodes them
		if value == nil {
			return nil, r.fail(CodeInput, v, "%s cannot represent it.", def.Name)
		}
		return value, nil
	}
	if value, ok := scalarJSON(def.Name, v); ok {
		return value, nil
	}
	return nil, r.invalidScalar(def.Name, v)
}

// invalidScalar returns the error for a value that is not of the built-in scalar type name.
func (r *variableReader) invalidScalar(name string, v any) *Error {
	return r.fail(CodeInput, v, "%s", map[string]string{
		"Int":     "Int cannot represent non-integer value, or one past 32 bits.",
		"Float":   "Float cannot represent non numeric value.",
		"Boolean": "Boolean cannot represent a non boolean value.",
		"ID":      "ID cannot represent a non-string and non-integer value.",
		"String":  "String cannot represent a non string value.",
	}[name])
}

func (r *variableReader) object(def *ast.Definition, v any) (any, *Error) {
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
			value := r.s.constant(f.Type, f.DefaultValue)
			if err := r.count(1 + countValues(value)); err != nil {
				return nil, err
			}
			object[f.Name] = value
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
		if n, ok := v.(json.Number); ok {
			if n, err := n.Int64(); err == nil {
				return strconv.FormatInt(n, 10), true // a float64 would lose digits
			}
		}
		f, ok := number(v)
		if !ok || f != math.Trunc(f) || math.Abs(f) >= 1<<53 {
			return nil, false // before it is formatted: 1e308 has 309 digits
		}
		return strconv.FormatFloat(f, 'f', 0, 64), true
	case "Float":
		f, ok := number(v)
		return f, ok
	}
	f, ok := number(v) // Int: in JSON, 5 and 5.0 are the same number
	return int(f), ok && f == math.Trunc(f) && math.Abs(f) <= math.MaxInt32+1 && f <= math.MaxInt32
}

func number(v any) (float64, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	f, err := parseFloat(string(n))
	return f, err == nil
}
