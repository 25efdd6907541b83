package plan

import (
	"context"
	"slices"
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
)

// Introspection is a table like any other: its types are gqlparser's, its
// sources are gqlparser's tree of the schema.

// named is what __Type describes: a type, or a list or non-null of one.
type named struct {
	s *Schema
	t *ast.Type
}

func (n named) def() *ast.Definition { return n.s.types.Types[n.t.NamedType] }

// wrapped says what a type is before it is a type of its own.
func (n named) wrapped() string {
	switch {
	case n.t.NonNull:
		return "NON_NULL"
	case n.t.Elem != nil:
		return "LIST"
	}
	return ""
}

// input is what __InputValue describes: an argument or an input field.
type input struct {
	s          *Schema
	name, desc string
	typ        *ast.Type
	def        *ast.Value
	directives ast.DirectiveList
}

type items []any

func (l items) Len() int     { return len(l) }
func (l items) At(i int) any { return l[i] }

// orNull leaves out an empty string where the schema has nothing to say.
func orNull(dst []byte, s string) []byte {
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

func appendBool(dst []byte, b bool) []byte {
	if b {
		return append(dst, "true"...)
	}
	return append(dst, "false"...)
}

// described are the fields that fields, inputs, values and directives share.
func described(of func(src any) (name, desc string, ds ast.DirectiveList), deprecable bool) []Field {
	fields := []Field{
		{Name: "name", Append: func(dst []byte, src any) []byte { name, _, _ := of(src); return AppendString(dst, name) }},
		{Name: "description", Append: func(dst []byte, src any) []byte { _, desc, _ := of(src); return orNull(dst, desc) }},
	}
	if deprecable {
		fields = append(fields,
			Field{Name: "isDeprecated", Append: func(dst []byte, src any) []byte {
				_, _, ds := of(src)
				_, is := deprecation(ds)
				return appendBool(dst, is)
			}},
			Field{Name: "deprecationReason", Append: func(dst []byte, src any) []byte {
				_, _, ds := of(src)
				reason, _ := deprecation(ds)
				return orNull(dst, reason)
			}})
	}
	return fields
}

// described things, as introspection hands them on.
type (
	fieldOf struct {
		s   *Schema
		def *ast.FieldDefinition
	}
	valueOf     struct{ def *ast.EnumValueDefinition }
	directiveOf struct {
		s   *Schema
		def *ast.DirectiveDefinition
	}
)

// kept leaves deprecated ones out unless args, whose only one it is, asks for them.
func kept(args Args, ds ast.DirectiveList) bool {
	_, deprecated := deprecation(ds)
	return !deprecated || args[0] == true
}

func argumentsOf(s *Schema, defs ast.ArgumentDefinitionList, args Args) items {
	list := items{}
	for _, a := range defs {
		if kept(args, a.Directives) {
			list = append(list, input{s, a.Name, a.Description, a.Type, a.DefaultValue, a.Directives})
		}
	}
	return list
}

func namedType(s *Schema, name string) named { return named{s, &ast.Type{NamedType: name}} }

func (s *Schema) root(def *ast.Definition) any {
	if def == nil {
		return nil
	}
	return namedType(s, def.Name)
}

// ofNothing is the Depends of fields that only the schema decides.
func ofNothing(Args) any { return nil }

// introspectionFields are the root fields through which a schema is read.
func (s *Schema) introspectionFields() (schema, typ *Field) {
	schema = &Field{Get: func(any) any { return s }}
	typ = &Field{Depends: ofNothing, Resolve: func(_ context.Context, _ any, args Args) (any, error) {
		name, _ := args[0].(string)
		return s.root(s.types.Types[name]), nil
	}}
	return schema, typ
}

// introspection is the resolving side of gqlparser's prelude, which declares
// the types.
var introspection = []Type{
	{Name: "__Schema", Fields: []Field{
		{Name: "description", Append: func(dst []byte, src any) []byte { return orNull(dst, src.(*Schema).types.Description) }},
		{Name: "types", Get: func(src any) any {
			s := src.(*Schema)
			list := items{}
			for _, def := range s.order {
				list = append(list, namedType(s, def.Name))
			}
			return list
		}},
		{Name: "queryType", Get: func(src any) any { return src.(*Schema).root(src.(*Schema).types.Query) }},
		{Name: "mutationType", Get: func(src any) any { return src.(*Schema).root(src.(*Schema).types.Mutation) }},
		{Name: "subscriptionType", Get: func(src any) any { return src.(*Schema).root(src.(*Schema).types.Subscription) }},
		{Name: "directives", Get: func(src any) any {
			s := src.(*Schema)
			list := items{}
			for _, d := range s.types.Directives {
				list = append(list, directiveOf{s, d})
			}
			slices.SortFunc(list, func(a, b any) int {
				return strings.Compare(a.(directiveOf).def.Name, b.(directiveOf).def.Name)
			})
			return list
		}},
	}},
	{Name: "__Type", Fields: []Field{
		{Name: "kind", Append: func(dst []byte, src any) []byte {
			n := src.(named)
			if kind := n.wrapped(); kind != "" {
				return AppendString(dst, kind)
			}
			return AppendString(dst, string(n.def().Kind))
		}},
		{Name: "name", Append: func(dst []byte, src any) []byte {
			if n := src.(named); n.wrapped() == "" {
				return AppendString(dst, n.t.NamedType)
			}
			return append(dst, "null"...)
		}},
		{Name: "description", Append: func(dst []byte, src any) []byte {
			if n := src.(named); n.wrapped() == "" {
				return orNull(dst, n.def().Description)
			}
			return append(dst, "null"...)
		}},
		{Name: "specifiedByURL", Append: func(dst []byte, src any) []byte {
			if n := src.(named); n.wrapped() == "" {
				if d := n.def().Directives.ForName("specifiedBy"); d != nil {
					return AppendString(dst, d.Arguments.ForName("url").Value.Raw)
				}
			}
			return append(dst, "null"...)
		}},
		{Name: "fields", Depends: ofNothing, Resolve: func(_ context.Context, src any, args Args) (any, error) {
			n := src.(named)
			if n.wrapped() != "" || n.def().Kind != ast.Object && n.def().Kind != ast.Interface {
				return nil, nil
			}
			list := items{}
			for _, f := range n.def().Fields {
				if kept(args, f.Directives) && !strings.HasPrefix(f.Name, "__") {
					list = append(list, fieldOf{n.s, f})
				}
			}
			return list, nil
		}},
		{Name: "interfaces", Get: func(src any) any {
			n := src.(named)
			if n.wrapped() != "" || n.def().Kind != ast.Object && n.def().Kind != ast.Interface {
				return nil
			}
			list := items{}
			for _, name := range n.def().Interfaces {
				list = append(list, namedType(n.s, name))
			}
			return list
		}},
		{Name: "possibleTypes", Get: func(src any) any {
			n := src.(named)
			if n.wrapped() != "" || !n.def().IsAbstractType() {
				return nil
			}
			list := items{}
			for _, def := range n.s.possible(n.def()) {
				list = append(list, namedType(n.s, def.Name))
			}
			return list
		}},
		{Name: "enumValues", Depends: ofNothing, Resolve: func(_ context.Context, src any, args Args) (any, error) {
			n := src.(named)
			if n.wrapped() != "" || n.def().Kind != ast.Enum {
				return nil, nil
			}
			list := items{}
			for _, v := range n.def().EnumValues {
				if kept(args, v.Directives) {
					list = append(list, valueOf{v})
				}
			}
			return list, nil
		}},
		{Name: "inputFields", Depends: ofNothing, Resolve: func(_ context.Context, src any, args Args) (any, error) {
			n := src.(named)
			if n.wrapped() != "" || n.def().Kind != ast.InputObject {
				return nil, nil
			}
			list := items{}
			for _, f := range n.def().Fields {
				if kept(args, f.Directives) {
					list = append(list, input{n.s, f.Name, f.Description, f.Type, f.DefaultValue, f.Directives})
				}
			}
			return list, nil
		}},
		{Name: "ofType", Get: func(src any) any {
			n := src.(named)
			switch n.wrapped() {
			case "NON_NULL":
				inner := *n.t
				inner.NonNull = false
				return named{n.s, &inner}
			case "LIST":
				return named{n.s, n.t.Elem}
			}
			return nil
		}},
		{Name: "isOneOf", Append: func(dst []byte, src any) []byte {
			n := src.(named)
			if n.wrapped() != "" || n.def().Kind != ast.InputObject {
				return append(dst, "null"...)
			}
			return appendBool(dst, n.def().Directives.ForName("oneOf") != nil)
		}},
	}},
	{Name: "__Field", Fields: append(described(func(src any) (string, string, ast.DirectiveList) {
		f := src.(fieldOf).def
		return f.Name, f.Description, f.Directives
	}, true),
		Field{Name: "args", Depends: ofNothing, Resolve: func(_ context.Context, src any, args Args) (any, error) {
			f := src.(fieldOf)
			return argumentsOf(f.s, f.def.Arguments, args), nil
		}},
		Field{Name: "type", Get: func(src any) any { f := src.(fieldOf); return named{f.s, f.def.Type} }},
	)},
	{Name: "__InputValue", Fields: append(described(func(src any) (string, string, ast.DirectiveList) {
		in := src.(input)
		return in.name, in.desc, in.directives
	}, true),
		Field{Name: "type", Get: func(src any) any { in := src.(input); return named{in.s, in.typ} }},
		Field{Name: "defaultValue", Append: func(dst []byte, src any) []byte {
			if in := src.(input); in.def != nil {
				return AppendString(dst, in.def.String())
			}
			return append(dst, "null"...)
		}},
	)},
	{Name: "__EnumValue", Fields: described(func(src any) (string, string, ast.DirectiveList) {
		v := src.(valueOf).def
		return v.Name, v.Description, v.Directives
	}, true)},
	{Name: "__Directive", Fields: append(described(func(src any) (string, string, ast.DirectiveList) {
		d := src.(directiveOf).def
		return d.Name, d.Description, nil
	}, false),
		Field{Name: "isRepeatable", Append: func(dst []byte, src any) []byte { return appendBool(dst, src.(directiveOf).def.IsRepeatable) }},
		Field{Name: "locations", Get: func(src any) any {
			list := items{}
			for _, l := range src.(directiveOf).def.Locations {
				list = append(list, string(l))
			}
			return list
		}},
		Field{Name: "args", Depends: ofNothing, Resolve: func(_ context.Context, src any, args Args) (any, error) {
			d := src.(directiveOf)
			return argumentsOf(d.s, d.def.Arguments, args), nil
		}},
	)},
}
