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

// hosted tells whether a field of an object is resolved as graphql-go does it.
func (f *Field) hosted() bool {
	return f.Append == nil && !f.Same && f.Get == nil && f.Resolve == nil
}

// hosts tells whether a checked document asks for anything of a host's.
func (s *Schema) hosts(tree *ast.QueryDocument) bool {
	for sel := range selections(tree, tree.Operations...) {
		if sel, ok := sel.(*ast.Field); ok && sel.ObjectDefinition.Kind == ast.Object {
			if f := s.fields[sel.ObjectDefinition.Name][sel.Name]; f != nil && f.hosted() {
				return true
			}
		}
	}
	return false
}

// own is a scalar that a host declared, or nil.
func (s *Schema) own(name string) *graphql.Scalar {
	scalar, _ := s.declared[name].(*graphql.Scalar)
	return scalar
}

// ownLiteral is a literal as the host's scalar reads it, if it does.
func (s *Schema) ownLiteral(name string, v *ast.Value) (any, bool) {
	if scalar := s.own(name); scalar != nil {
		value := scalar.ParseLiteral(mirrorValue(v))
		return value, value != nil
	}
	return nil, false
}

// ownJSON is a variable's value as the host's scalar reads it, if it does.
// Numbers are what encoding/json makes of them.
func (s *Schema) ownJSON(name string, v any) (any, bool) {
	if scalar := s.own(name); scalar != nil {
		value := scalar.ParseValue(unread(v))
		return value, value != nil
	}
	return nil, false
}

func unread(v any) any {
	switch v := v.(type) {
	case json.Number:
		f, err := v.Float64()
		if err != nil {
			return string(v)
		}
		return f
	case []any:
		items := make([]any, len(v))
		for i := range v {
			items[i] = unread(v[i])
		}
		return items
	case map[string]any:
		object := make(map[string]any, len(v))
		for name := range v {
			object[name] = unread(v[name])
		}
		return object
	}
	return v
}

// forHost is a coerced value as graphql-go would give it to a resolver: with
// what the host's enums mean in place of their names.
func (s *Schema) forHost(t *ast.Type, v any) any {
	switch v := v.(type) {
	case []any:
		if t.Elem == nil {
			return v
		}
		items := make([]any, len(v))
		for i := range v {
			items[i] = s.forHost(t.Elem, v[i])
		}
		return items
	case map[string]any:
		def := s.types.Types[t.NamedType]
		if def == nil || def.Kind != ast.InputObject {
			return v
		}
		object := make(map[string]any, len(v))
		for name := range v {
			object[name] = s.forHost(def.Fields.ForName(name).Type, v[name])
		}
		return object
	case string:
		if enum, ok := s.declared[t.NamedType].(*graphql.Enum); ok {
			return enum.ParseValue(v)
		}
	}
	return v
}

// appendOwn appends a value of a scalar or an enum that a host declared. What a
// scalar does not serialize is null to it.
func appendOwn(dst []byte, t graphql.Type, v any) ([]byte, error) {
	var out any
	switch t := t.(type) {
	case *graphql.Scalar:
		out = t.Serialize(v)
	case *graphql.Enum:
		if out = t.Serialize(v); out == nil {
			return dst, misfit(t.Name(), v)
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

// spelled is what a value says where text is wanted, as graphql-go has it: of
// what does not say it itself, only what is one word.
func spelled(s *shape, v any) any {
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

// literalOf writes a default value, as a host gave it, in the way of SDL; ""
// is none.
func literalOf(t graphql.Type, v any) (string, error) {
	if isNil(v) {
		return "", nil
	}
	return literalIn(t, v)
}

// literalIn is literalOf for what is in a list or an object: nil is null there.
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
			return "", fmt.Errorf("default value %v is no map[string]any", v)
		}
		fields := t.Fields()
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(given)) {
			if fields[name] == nil {
				return "", fmt.Errorf("default value has a field %q that %s has not", name, t.Name())
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
		return "", fmt.Errorf("default value %v is none of %s", v, t.Name())
	case *graphql.Scalar:
		out := t.Serialize(v)
		if isNil(out) {
			return "", fmt.Errorf("default value %v is no %s", v, t.Name())
		}
		return sdl(out)
	}
	return "", fmt.Errorf("%T has no default values", t)
}

// sdl writes what JSON can, in the way of SDL.
func sdl(v any) (string, error) {
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
