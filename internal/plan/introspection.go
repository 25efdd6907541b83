package plan

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
)

// The introspection types are rows of the table, like all other types. gqlparser's prelude declares them. The source
// values of their fields hold gqlparser's definitions.

// A typeSource is the source value of a __Type: a named type, a list or a non-null type.
type typeSource struct {
	s *Schema
	t *ast.Type
}

func (n typeSource) def() *ast.Definition { return n.s.types.Types[n.t.NamedType] }

// wrapping returns NON_NULL or LIST for a wrapping type, and "" for a named type.
func (n typeSource) wrapping() string {
	switch {
	case n.t.NonNull:
		return "NON_NULL"
	case n.t.Elem != nil:
		return "LIST"
	}
	return ""
}

// An inputSource is the source value of an __InputValue: an argument or a field of an input object.
type inputSource struct {
	s          *Schema
	name, desc string
	typ        *ast.Type
	def        *ast.Value
	directives ast.DirectiveList
}

type itemList []any

func (l itemList) Len() int     { return len(l) }
func (l itemList) At(i int) any { return l[i] }

// appendStringOrNull appends s as a JSON string, or null if it is empty.
func appendStringOrNull(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, "null"...)
	}
	return AppendString(dst, s)
}

func deprecation(ds ast.DirectiveList) (reason string, deprecated bool) {
	d := ds.ForName("deprecated")
	if d == nil {
		return "", false
	}
	if arg := d.Arguments.ForName("reason"); arg != nil {
		return arg.Value.Raw, true
	}
	return "No longer supported", true
}

// describedFields returns the fields that __Field, __InputValue, __EnumValue and __Directive have in common. The
// function of returns the name, the description and the directives of a source value. If deprecable is set, the
// result includes the fields about deprecation.
func describedFields(of func(src any) (name, desc string, ds ast.DirectiveList), deprecable bool) []Field {
	fields := []Field{
		{Name: "name", Append: func(dst []byte, src any) []byte {
			name, _, _ := of(src)
			return AppendString(dst, name)
		}},
		{Name: "description", Append: func(dst []byte, src any) []byte {
			_, desc, _ := of(src)
			return appendStringOrNull(dst, desc)
		}},
	}
	if deprecable {
		fields = append(fields,
			Field{Name: "isDeprecated", Append: func(dst []byte, src any) []byte {
				_, _, ds := of(src)
				_, is := deprecation(ds)
				return strconv.AppendBool(dst, is)
			}},
			Field{Name: "deprecationReason", Append: func(dst []byte, src any) []byte {
				_, _, ds := of(src)
				reason, _ := deprecation(ds)
				return appendStringOrNull(dst, reason)
			}})
	}
	return fields
}

// These types are the source values of a __Field, an __EnumValue and a __Directive.
type (
	fieldSource struct {
		s   *Schema
		def *ast.FieldDefinition
	}
	enumValueSource struct{ def *ast.EnumValueDefinition }
	directiveSource struct {
		s   *Schema
		def *ast.DirectiveDefinition
	}
)

// visible reports whether a definition with these directives is listed. A deprecated definition is only listed if
// includeDeprecated, the only argument in args, is true.
func visible(args Args, ds ast.DirectiveList) bool {
	_, deprecated := deprecation(ds)
	return !deprecated || args[0] == true
}

func argumentsOf(s *Schema, defs ast.ArgumentDefinitionList, args Args) itemList {
	list := itemList{}
	for _, a := range defs {
		if visible(args, a.Directives) {
			list = append(list, inputSource{s, a.Name, a.Description, a.Type, a.DefaultValue, a.Directives})
		}
	}
	return list
}

func namedType(s *Schema, name string) typeSource { return typeSource{s, &ast.Type{NamedType: name}} }

func (s *Schema) root(def *ast.Definition) any {
	if def == nil {
		return nil
	}
	return namedType(s, def.Name)
}

// onlyOnSchema is the [Field].Depends function of fields that depend only on the schema.
func onlyOnSchema(Args) any { return nil }

// introspectionFields returns the root fields __schema and __type.
func (s *Schema) introspectionFields() (schema, typ *Field) {
	schema = &Field{Name: "__schema", Get: func(any) any { return s }}
	typ = &Field{Name: "__type", Depends: onlyOnSchema}
	typ.Resolve = func(_ context.Context, _ any, args Args) (any, error) {
		name, _ := args[0].(string)
		return s.root(s.types.Types[name]), nil
	}
	return schema, typ
}

// introspection has the rows of the table for the types that gqlparser's prelude declares.
var introspection = []Type{
	{Name: "__Schema", Fields: []Field{
		{Name: "description", Append: func(dst []byte, src any) []byte {
			return appendStringOrNull(dst, src.(*Schema).types.Description)
		}},
		{Name: "types", Get: func(src any) any {
			s := src.(*Schema)
			list := itemList{}
			for _, def := range s.order {
				list = append(list, namedType(s, def.Name))
			}
			return list
		}},
		{Name: "queryType", Get: func(src any) any { return src.(*Schema).root(src.(*Schema).types.Query) }},
		{Name: "mutationType", Get: func(src any) any { return src.(*Schema).root(src.(*Schema).types.Mutation) }},
		{Name: "subscriptionType", Get: func(src any) any {
			return src.(*Schema).root(src.(*Schema).types.Subscription)
		}},
		{Name: "directives", Get: func(src any) any {
			s := src.(*Schema)
			list := itemList{}
			for _, d := range s.types.Directives {
				list = append(list, directiveSource{s, d})
			}
			slices.SortFunc(list, func(a, b any) int {
				return strings.Compare(a.(directiveSource).def.Name, b.(directiveSource).def.Name)
			})
			return list
		}},
	}},
	{Name: "__Type", Fields: []Field{
		{Name: "kind", Append: func(dst []byte, src any) []byte {
			n := src.(typeSource)
			if kind := n.wrapping(); kind != "" {
				return AppendString(dst, kind)
			}
			return AppendString(dst, string(n.def().Kind))
		}},
		{Name: "name", Append: func(dst []byte, src any) []byte {
			if n := src.(typeSource); n.wrapping() == "" {
				return AppendString(dst, n.t.NamedType)
			}
			return append(dst, "null"...)
		}},
		{Name: "description", Append: func(dst []byte, src any) []byte {
			if n := src.(typeSource); n.wrapping() == "" {
				return appendStringOrNull(dst, n.def().Description)
			}
			return append(dst, "null"...)
		}},
		{Name: "specifiedByURL", Append: func(dst []byte, src any) []byte {
			if n := src.(typeSource); n.wrapping() == "" {
				if d := n.def().Directives.ForName("specifiedBy"); d != nil {
					return AppendString(dst, d.Arguments.ForName("url").Value.Raw)
				}
			}
			return append(dst, "null"...)
		}},
		{Name: "fields", Depends: onlyOnSchema, Resolve: func(_ context.Context, src any, args Args) (any, error) {
			n := src.(typeSource)
			if n.wrapping() != "" || n.def().Kind != ast.Object && n.def().Kind != ast.Interface {
				return nil, nil
			}
			list := itemList{}
			for _, f := range n.def().Fields {
				if visible(args, f.Directives) && !strings.HasPrefix(f.Name, "__") {
					list = append(list, fieldSource{n.s, f})
				}
			}
			return list, nil
		}},
		{Name: "interfaces", Get: func(src any) any {
			n := src.(typeSource)
			if n.wrapping() != "" || n.def().Kind != ast.Object && n.def().Kind != ast.Interface {
				return nil
			}
			list := itemList{}
			for _, name := range n.def().Interfaces {
				list = append(list, namedType(n.s, name))
			}
			return list
		}},
		{Name: "possibleTypes", Get: func(src any) any {
			n := src.(typeSource)
			if n.wrapping() != "" || !n.def().IsAbstractType() {
				return nil
			}
			list := itemList{}
			for _, def := range n.s.possible(n.def()) {
				list = append(list, namedType(n.s, def.Name))
			}
			return list
		}},
		{Name: "enumValues", Depends: onlyOnSchema, Resolve: func(_ context.Context, src any, args Args) (any, error) {
			n := src.(typeSource)
			if n.wrapping() != "" || n.def().Kind != ast.Enum {
				return nil, nil
			}
			list := itemList{}
			for _, v := range n.def().EnumValues {
				if visible(args, v.Directives) {
					list = append(list, enumValueSource{v})
				}
			}
			return list, nil
		}},
		{Name: "inputFields", Depends: onlyOnSchema, Resolve: func(_ context.Context, src any, args Args) (any, error) {
			n := src.(typeSource)
			if n.wrapping() != "" || n.def().Kind != ast.InputObject {
				return nil, nil
			}
			list := itemList{}
			for _, f := range n.def().Fields {
				if visible(args, f.Directives) {
					list = append(list, inputSource{n.s, f.Name, f.Description, f.Type, f.DefaultValue, f.Directives})
				}
			}
			return list, nil
		}},
		{Name: "ofType", Get: func(src any) any {
			n := src.(typeSource)
			switch n.wrapping() {
			case "NON_NULL":
				inner := *n.t
				inner.NonNull = false
				return typeSource{n.s, &inner}
			case "LIST":
				return typeSource{n.s, n.t.Elem}
			}
			return nil
		}},
		{Name: "isOneOf", Append: func(dst []byte, src any) []byte {
			n := src.(typeSource)
			if n.wrapping() != "" || n.def().Kind != ast.InputObject {
				return append(dst, "null"...)
			}
			return strconv.AppendBool(dst, n.def().Directives.ForName("oneOf") != nil)
		}},
	}},
	{Name: "__Field", Fields: append(describedFields(func(src any) (string, string, ast.DirectiveList) {
		f := src.(fieldSource).def
		return f.Name, f.Description, f.Directives
	}, true),
		Field{Name: "args", Depends: onlyOnSchema, Resolve: func(_ context.Context, src any, args Args) (any, error) {
			f := src.(fieldSource)
			return argumentsOf(f.s, f.def.Arguments, args), nil
		}},
		Field{Name: "type", Get: func(src any) any { f := src.(fieldSource); return typeSource{f.s, f.def.Type} }},
	)},
	{Name: "__InputValue", Fields: append(describedFields(func(src any) (string, string, ast.DirectiveList) {
		in := src.(inputSource)
		return in.name, in.desc, in.directives
	}, true),
		Field{Name: "type", Get: func(src any) any { in := src.(inputSource); return typeSource{in.s, in.typ} }},
		Field{Name: "defaultValue", Append: func(dst []byte, src any) []byte {
			if in := src.(inputSource); in.def != nil {
				return AppendString(dst, in.def.String())
			}
			return append(dst, "null"...)
		}},
	)},
	{Name: "__EnumValue", Fields: describedFields(func(src any) (string, string, ast.DirectiveList) {
		v := src.(enumValueSource).def
		return v.Name, v.Description, v.Directives
	}, true)},
	{Name: "__Directive", Fields: append(describedFields(func(src any) (string, string, ast.DirectiveList) {
		d := src.(directiveSource).def
		return d.Name, d.Description, nil
	}, false),
		Field{Name: "isRepeatable", Append: func(dst []byte, src any) []byte {
			return strconv.AppendBool(dst, src.(directiveSource).def.IsRepeatable)
		}},
		Field{Name: "locations", Get: func(src any) any {
			list := itemList{}
			for _, l := range src.(directiveSource).def.Locations {
				list = append(list, string(l))
			}
			return list
		}},
		Field{Name: "args", Depends: onlyOnSchema, Resolve: func(_ context.Context, src any, args Args) (any, error) {
			d := src.(directiveSource)
			return argumentsOf(d.s, d.def.Arguments, args), nil
		}},
	)},
}
