package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/graphql-go/graphql"
	"github.com/vektah/gqlparser/v2/ast"
)

// hosted reports whether the host declared f, a field of an object. Such a field is resolved as in graphql-go.
func (f *Field) hosted() bool {
	return f.Append == nil && !f.Same && f.Get == nil && f.Resolve == nil
}

// selectsHosted reports whether a valid document selects a field of the host.
func (s *Schema) selectsHosted(tree *ast.QueryDocument) bool {
	for sel := range selections(tree, tree.Operations...) {
		if sel, ok := sel.(*ast.Field); ok && sel.ObjectDefinition.Kind == ast.Object {
			if f := s.fields[sel.ObjectDefinition.Name][sel.Name]; f != nil && f.hosted() {
				return true
			}
		}
	}
	return false
}

// hostScalar returns the host's scalar with this name, or nil.
func (s *Schema) hostScalar(name string) *graphql.Scalar {
	scalar, _ := s.declared[name].(*graphql.Scalar)
	return scalar
}

// plainJSON returns v with each json.Number replaced with a float64, or with a string if it exceeds the range of
// float64.
func plainJSON(v any) any {
	return copyValue(v, func(v any) any {
		number, ok := v.(json.Number)
		if !ok {
			return v
		}
		if f, err := parseFloat(string(number)); err == nil {
			return f
		}
		return string(number)
	})
}

// enumValue returns what resolvers receive for the enum value with this name. For a built-in enum, that is the
// name.
func (s *Schema) enumValue(enum, name string) any {
	if declared, ok := s.declared[enum].(*graphql.Enum); ok {
		return declared.ParseValue(name)
	}
	return name
}

// cloneValue returns a copy of a coerced value, including the lists and objects in it.
func cloneValue(v any) any { return copyValue(v, func(leaf any) any { return leaf }) }

// copyValue returns a copy of v, including the lists and objects in it, in which each other value is replaced with the
// result of leaf.
func copyValue(v any, leaf func(any) any) any {
	switch v := v.(type) {
	case []any:
		items := make([]any, len(v))
		for i := range v {
			items[i] = copyValue(v[i], leaf)
		}
		return items
	case map[string]any:
		object := make(map[string]any, len(v))
		for name := range v {
			object[name] = copyValue(v[name], leaf)
		}
		return object
	}
	return leaf(v)
}

// appendHostLeaf appends a value of a host's scalar or enum. If the scalar serializes the value to nil,
// appendHostLeaf appends null.
func appendHostLeaf(dst []byte, t graphql.Type, v any) ([]byte, error) {
	var out any
	switch t := t.(type) {
	case *graphql.Scalar:
		out = t.Serialize(v)
	case *graphql.Enum:
		if out = t.Serialize(v); out == nil {
			return dst, errCannotRepresent(t.Name(), v)
		}
	}
	if text, ok := out.(string); ok {
		return AppendString(dst, text), nil
	}
	text, err := marshal(out)
	if err != nil {
		return dst, fmt.Errorf("%s: %w", t.Name(), err)
	}
	return append(dst, text...), nil
}

// textOf converts a value of type String or ID to a string, as graphql-go does. It does not format structs and maps
// with fmt, because they may contain cycles.
func textOf(s *outputType, v any) any {
	if s.leaf != "String" && s.leaf != "ID" {
		return v
	}
	switch said := v.(type) {
	case string:
		return said
	case fmt.Stringer:
		return said.String()
	case error:
		return said.Error()
	}
	switch reflect.Indirect(reflect.ValueOf(v)).Kind() {
	case reflect.Bool, reflect.Float32, reflect.Float64:
		return fmt.Sprint(reflect.Indirect(reflect.ValueOf(v)))
	}
	return v
}

// literalOf formats a default value of the host in SDL. It returns "" if v is nil, because there is no default
// then.
func literalOf(t graphql.Type, v any) (string, error) {
	if isNil(v) {
		return "", nil
	}
	return literalIn(t, v)
}

// literalIn formats a value in SDL. Unlike literalOf, it formats nil as null, because v may be an item of a list or
// a field of an object.
func literalIn(t graphql.Type, v any) (string, error) {
	if isNil(v) {
		return "null", nil
	}
	switch t := t.(type) {
	case *graphql.NonNull:
		return literalIn(t.OfType, v)
	case *graphql.List:
		rv := reflect.ValueOf(v)
		if rv.Kind() != reflect.Slice {
			return literalIn(t.OfType, v)
		}
		items := make([]string, rv.Len())
		for i := range items {
			var err error
			if items[i], err = literalIn(t.OfType, rv.Index(i).Interface()); err != nil {
				return "", err
			}
		}
		return "[" + strings.Join(items, ", ") + "]", nil
	case *graphql.InputObject:
		given, ok := v.(map[string]any)
		if !ok {
			return "", fmt.Errorf("default value %v is not a map[string]any", v)
		}
		fields := t.Fields()
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(given)) {
			if fields[name] == nil {
				return "", fmt.Errorf("default value has a field %q, which %s lacks", name, t.Name())
			}
			text, err := literalIn(fields[name].Type, given[name])
			if err != nil {
				return "", err
			}
			parts = append(parts, name+": "+text)
		}
		return "{" + strings.Join(parts, ", ") + "}", nil
	case *graphql.Enum:
		if name, ok := t.Serialize(v).(string); ok {
			return name, nil
		}
		return "", fmt.Errorf("default value %v is not a value of enum %s", v, t.Name())
	case *graphql.Scalar:
		out := t.Serialize(v)
		if isNil(out) {
			return "", fmt.Errorf("default value %v is not a valid %s", v, t.Name())
		}
		return marshalSDL(out)
	}
	return "", fmt.Errorf("a %T cannot have a default value", t)
}

// marshalSDL formats a value in SDL syntax. It returns an error if encoding/json cannot marshal the value.
func marshalSDL(v any) (string, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("default value %v: %w", v, err)
	}
	var read any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&read); err != nil {
		return "", fmt.Errorf("default value %s: %w", text, err)
	}
	return string(appendSDL(nil, read)), nil
}

func appendSDL(dst []byte, v any) []byte {
	switch v := v.(type) {
	case string:
		return AppendString(dst, v)
	case []any:
		dst = append(dst, '[')
		for _, item := range v {
			dst = append(appendSDL(dst, item), ' ')
		}
		return append(dst, ']')
	case map[string]any:
		dst = append(dst, '{')
		for _, name := range slices.Sorted(maps.Keys(v)) {
			dst = append(appendSDL(append(append(dst, name...), ": "...), v[name]), ' ')
		}
		return append(dst, '}')
	case nil:
		return append(dst, "null"...)
	}
	return fmt.Append(dst, v)
}

// isNull reports whether graphql-go treats v as null. Unlike isNil, it treats a nil slice or map as an empty one.
func isNull(v any) bool {
	switch rv := reflect.ValueOf(v); rv.Kind() {
	case reflect.Pointer, reflect.Func:
		return rv.IsNil()
	case reflect.Invalid:
		return true
	}
	return false
}
