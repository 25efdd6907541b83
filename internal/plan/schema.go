package plan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/graphql-go/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/formatter"
	"github.com/vektah/gqlparser/v2/validator"
)

// A Type is a row of the table that declares a schema. graphql-go's schema, the schema against which documents are
// checked, the SDL and introspection are all built from this table and keep its order.
type Type struct {
	// Kind is the kind of the type, such as ast.Object.
	Kind ast.DefinitionKind
	// Name and Desc are the name and the description of the type.
	Name, Desc string
	// Interfaces are the names of the interfaces that an object implements.
	Interfaces []string
	// Fields are the fields of an object, interface or input object.
	Fields []Field
	// Values are the values of an enum.
	Values []Value
	// Members are the names of the object types of a union.
	Members []string
	// Is reports whether a value of an interface or union is of this object type.
	Is func(src any) bool

	// declared is the type that the host declared, or nil.
	declared graphql.Type
}

// A Field is a field of an object, interface or input object. A field of an object sets at most one of Append,
// Same, Get, Resolve and Resolver. If it sets none of them, graphql.DefaultResolveFn resolves it, or, if [Extend] added
// it to Subscription, its value is the event.
type Field struct {
	// Name and Desc are the name and the description of the field. Type is its type in SDL, such as "[ID!]!".
	Name, Type, Desc string
	// Args are the arguments of the field.
	Args []Arg
	// Default is the default value of an input field in SDL, or "".
	Default string
	// Deprecated is the reason why the field is deprecated, or "" if it is not.
	Deprecated string

	// Append appends the value of a scalar or enum as JSON. It needs only the source and cannot fail.
	Append func(dst []byte, src any) []byte
	Part   int // the number, from 1, of the field's part in a [Prepared] source; 0 if it is none
	// Same marks a field of an object type whose Go value is the source itself.
	Same bool
	// Get returns an object or a list. It needs only the source and cannot fail.
	Get func(src any) any
	// Resolve may block, fail and use arguments. If it returns an *Error, the client receives that error. All other
	// errors are masked.
	Resolve func(ctx context.Context, src any, args Args) (any, error)
	// ReadsText is set if Resolve accepts a *Text as an argument that is a string. It must not keep the Text.
	ReadsText bool
	// Resolver is a resolver of graphql-go, which may return a thunk. All fields below are fields of the host, too,
	// because [Extend] rejects types of the host that refer to built-in types.
	Resolver graphql.FieldResolveFn
	// Enter is called before Resolver. It returns the context for the field and all fields below it, and the function
	// leave, which is called after them. If Enter returns an error, the field fails with this error.
	Enter func(ctx context.Context, src any) (within context.Context, leave func(), err error)

	// Batch is the name of a field, at any depth below this one, whose values are read together. If it is selected,
	// [Bound.Batch] yields the arguments of this field in advance, and reading the values costs one backend call.
	Batch string
	// AtOnce is set if all fields with a Batch share one backend call.
	AtOnce bool

	// Cost returns the cost of a call of Resolve with these arguments. If args is nil, it returns the maximum cost of
	// any call. If Cost is nil, calls cost nothing.
	Cost func(args Args) Cost
	// Price returns the cost of a call of Resolver with these arguments. Only a field of the host can have a price.
	Price func(args map[string]any) Cost

	// Depends returns the data on which the value of Resolve depends, in addition to the document and its variables,
	// or nil if there is no such data. If Depends is nil, or the field is a field of the host, the value may depend on
	// anything.
	Depends func(args Args) any

	// declared is the field that the host added to Query or Subscription, or nil.
	declared *graphql.Field
}

// An Arg is one argument of a field.
type Arg struct {
	// Name and Desc are the name and the description of the argument. Type is its type in SDL.
	Name, Type, Desc string
	// Default is the default value in SDL, or "".
	Default string
}

// A Value is a value of an enum. Resolvers receive its name. Deprecated is the reason why it is deprecated, or "".
type Value struct{ Name, Desc, Deprecated string }

// Args are the arguments of a field in the order in which the field declares them. An absent or null argument is
// nil. An Int is an int, a Float is a float64, an ID is a string, an enum value is its name, a list is an []any,
// and an input object is a map[string]any. The values are shared between requests and must not be modified. A
// resolver must not retain the slice.
type Args []any

// A List is a list that is read one item at a time.
type List interface {
	// Len returns the number of items.
	Len() int
	// At returns the item with index i. An item that is null is nil, not a nil pointer.
	At(i int) any
}

// A Schema is the schema against which documents are checked and compiled. It is read-only.
type Schema struct {
	// types is the schema in the form of gqlparser, and document its definitions without the built-in ones.
	types    *ast.Schema
	document *ast.SchemaDocument
	// order has all definitions: the declared ones, then the built-in ones.
	order []*ast.Definition
	// ql is the schema in the form of graphql-go.
	ql graphql.Schema
	// fields maps the name of a type and the name of its field to the row of the field.
	fields map[string]map[string]*Field
	// is maps the name of a type to its [Type].Is.
	is map[string]func(any) bool
	// declared maps the name of a type to the type that the host declared, or nil.
	declared map[string]graphql.Type
	// opaque has the names of the input types whose values may contain a value of a host's scalar.
	opaque map[string]bool
	// objects maps the name of a composite type to its object types.
	objects map[string][]*ast.Definition
	// defaults maps an argument to its default value.
	defaults map[*ast.ArgumentDefinition]any
	// alike maps a field to the first one whose arguments have the same names, types and default values.
	alike map[*ast.FieldDefinition]*ast.FieldDefinition
}

// NewSchema returns the schema that a table declares. The types named Query and Subscription are the root types.
func NewSchema(table []Type) (*Schema, error) {
	s := &Schema{fields: map[string]map[string]*Field{}, is: map[string]func(any) bool{},
		declared: map[string]graphql.Type{}, document: &ast.SchemaDocument{}}
	for _, t := range slices.Concat(table, introspection) {
		fields := make(map[string]*Field, len(t.Fields))
		for i := range t.Fields {
			fields[t.Fields[i].Name] = &t.Fields[i]
		}
		s.fields[t.Name] = fields
		s.is[t.Name] = t.Is
		s.declared[t.Name] = t.declared
	}
	for _, t := range table {
		def, err := t.definition()
		if err != nil {
			return nil, err
		}
		s.document.Definitions = append(s.document.Definitions, def)
	}
	whole := &ast.SchemaDocument{}
	whole.Merge(s.document)
	whole.Merge(prelude())
	var err error
	if s.types, err = validator.ValidateSchemaDocument(whole); err != nil {
		return nil, fmt.Errorf("plan: schema: %w", err)
	}
	if s.types.Query == nil {
		return nil, errors.New("plan: schema: the type Query is missing")
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	s.findOpaque()
	s.indexArguments()
	s.order = whole.Definitions
	s.objects = map[string][]*ast.Definition{}
	for _, def := range s.order {
		for _, p := range s.types.GetPossibleTypes(def) {
			if p.Kind == ast.Object {
				s.objects[def.Name] = append(s.objects[def.Name], p)
			}
		}
	}
	query := s.fields[s.types.Query.Name]
	query["__schema"], query["__type"] = s.introspectionFields()
	if s.ql, err = graphqlSchema(s, table); err != nil {
		return nil, fmt.Errorf("plan: schema: %w", err)
	}
	return s, nil
}

// prelude returns the built-in types and directives of the specification of September 2025: those of gqlparser without
// those that only a draft has, @defer and directives on directives. Arguments with a default value are non-null since
// September 2025, but nullable in gqlparser.
func prelude() *ast.SchemaDocument {
	const draft = "DIRECTIVE_DEFINITION"
	doc := validator.PreludeDocument()
	isDefer := func(d *ast.DirectiveDefinition) bool { return d.Name == "defer" }
	doc.Directives = slices.DeleteFunc(doc.Directives, isDefer)
	nonNull := func(args ast.ArgumentDefinitionList) {
		for _, a := range args {
			a.Type.NonNull = a.Type.NonNull || a.DefaultValue != nil
		}
	}
	for _, d := range doc.Directives {
		d.Locations = slices.DeleteFunc(d.Locations, func(l ast.DirectiveLocation) bool { return l == draft })
		nonNull(d.Arguments)
	}
	for _, def := range doc.Definitions {
		for _, f := range def.Fields {
			nonNull(f.Arguments)
		}
	}
	isDraft := func(v *ast.EnumValueDefinition) bool { return v.Name == draft }
	locations := doc.Definitions.ForName("__DirectiveLocation")
	locations.EnumValues = slices.DeleteFunc(locations.EnumValues, isDraft)
	return doc
}

// GraphQL returns the schema in the form of graphql-go.
func (s *Schema) GraphQL() graphql.Schema { return s.ql }

// SDL returns the schema in the schema definition language of GraphQL (SDL), without built-in types and directives.
func (s *Schema) SDL() string {
	var b strings.Builder
	formatter.NewFormatter(&b, formatter.WithIndent("  ")).FormatSchemaDocument(s.document)
	return b.String()
}

func (t *Type) definition() (*ast.Definition, error) {
	def := &ast.Definition{Kind: t.Kind, Name: t.Name, Description: t.Desc, Interfaces: t.Interfaces,
		Types: t.Members, Position: nowhere}
	for _, v := range t.Values {
		def.EnumValues = append(def.EnumValues, &ast.EnumValueDefinition{
			Name: v.Name, Description: v.Desc, Directives: deprecated(v.Deprecated), Position: nowhere})
	}
	for _, f := range t.Fields {
		field := &ast.FieldDefinition{Name: f.Name, Description: f.Desc, Type: typeRef(f.Type), Position: nowhere}
		var err error
		if field.DefaultValue, err = literal(f.Default); err != nil {
			return nil, fmt.Errorf("plan: %s.%s: %w", t.Name, f.Name, err)
		}
		for _, a := range f.Args {
			arg := &ast.ArgumentDefinition{Name: a.Name, Description: a.Desc, Type: typeRef(a.Type), Position: nowhere}
			if arg.DefaultValue, err = literal(a.Default); err != nil {
				return nil, fmt.Errorf("plan: %s.%s(%s:): %w", t.Name, f.Name, a.Name, err)
			}
			field.Arguments = append(field.Arguments, arg)
		}
		field.Directives = deprecated(f.Deprecated)
		def.Fields = append(def.Fields, field)
	}
	return def, nil
}

func deprecated(why string) ast.DirectiveList {
	if why == "" {
		return nil
	}
	reason := &ast.Value{Kind: ast.StringValue, Raw: why, Position: nowhere}
	return ast.DirectiveList{{Name: "deprecated", Position: nowhere,
		Arguments: ast.ArgumentList{{Name: "reason", Value: reason, Position: nowhere}}}}
}

// nowhere is the position of definitions that are not parsed from a text. gqlparser requires a position.
var nowhere = &ast.Position{Src: &ast.Source{Name: "schema"}}

// typeRef parses the notation of a type in SDL, such as "[ID!]".
func typeRef(s string) *ast.Type {
	name, nonNull := strings.CutSuffix(s, "!")
	t := &ast.Type{NonNull: nonNull, Position: nowhere}
	if inner, ok := strings.CutPrefix(name, "["); ok {
		t.Elem = typeRef(strings.TrimSuffix(inner, "]"))
	} else {
		t.NamedType = name
	}
	return t
}

// typeOf returns a copy of a type from a document. The copy has no positions and uses the strings of the schema, so
// that it does not keep the document in memory.
func (s *Schema) typeOf(t *ast.Type) *ast.Type {
	if t.Elem != nil {
		return &ast.Type{Elem: s.typeOf(t.Elem), NonNull: t.NonNull}
	}
	return &ast.Type{NamedType: s.types.Types[t.NamedType].Name, NonNull: t.NonNull}
}

// literal parses a constant value in SDL. It returns nil for "".
func literal(s string) (*ast.Value, error) {
	if s == "" {
		return nil, nil
	}
	v, err := parseConstant(s)
	if err != nil {
		return nil, err
	}
	return v, nil
}

// findOpaque sets s.opaque: it finds the input types that contain a host's scalar at any depth.
func (s *Schema) findOpaque() {
	s.opaque = map[string]bool{}
	leads := func(f *ast.FieldDefinition) bool { return s.opaque[f.Type.Name()] }
	for found := true; found; { // repeat until no new type is found
		found = false
		for name, def := range s.types.Types {
			is := s.hostScalar(name) != nil || def.Kind == ast.InputObject && slices.ContainsFunc(def.Fields, leads)
			if is && !s.opaque[name] {
				s.opaque[name], found = true, true
			}
		}
	}
}

// possible returns the object types that a value of a composite type can have.
func (s *Schema) possible(def *ast.Definition) []*ast.Definition { return s.objects[def.Name] }

// includes reports whether an object type satisfies a type condition.
func (s *Schema) includes(condition string, object *ast.Definition) bool {
	return condition == "" || condition == object.Name || slices.Contains(s.objects[condition], object)
}

// check checks that default values are of their types, because gqlparser does not check that.
func (s *Schema) check() error {
	for _, def := range s.document.Definitions {
		for _, f := range def.Fields {
			if err := s.checkDefault(f.Type, f.DefaultValue); err != nil {
				return fmt.Errorf("plan: %s.%s: %w", def.Name, f.Name, err)
			}
			for _, a := range f.Arguments {
				if err := s.checkDefault(a.Type, a.DefaultValue); err != nil {
					return fmt.Errorf("plan: %s.%s(%s:): %w", def.Name, f.Name, a.Name, err)
				}
			}
		}
	}
	return nil
}
