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
	"github.com/vektah/gqlparser/v2/parser"
	"github.com/vektah/gqlparser/v2/validator"
)

// A Type is one row of the table that a schema is declared in, once: the
// graphql-go schema, the checker's schema, the SDL and introspection all come
// from it, in the order of the table.
type Type struct {
	Kind       ast.DefinitionKind
	Name, Desc string
	Interfaces []string
	Fields     []Field            // of an object, interface or input object
	Values     []Value            // of an enum
	Members    []string           // of a union
	Is         func(src any) bool // of an object that an interface or union may turn out to be

	declared graphql.Type // by a host
}

// A Field is one field of an object, interface or input object. Of a field
// that has a value to give, one of the following five is set; one that has none
// is resolved as graphql-go does without a resolver.
type Field struct {
	Name, Type, Desc string // Type as SDL writes it, such as "[ID!]!"
	Args             []Arg
	Default          string // an input field's, as SDL writes it
	Deprecated       string // the reason, if it is

	// Append writes the JSON of a leaf whose value needs nothing but its
	// source and cannot fail.
	Append func(dst []byte, src any) []byte
	// Same is an object that is seen through its source's own Go value.
	Same bool
	// Get finds an object or list that needs nothing but its source.
	Get func(src any) any
	// Resolve may fail, block and use arguments. An *Error it returns is for
	// the client; any other is masked.
	Resolve func(ctx context.Context, src any, args Args) (any, error)
	// Resolver is a field as graphql-go knows it. It may give a thunk, and lead
	// to fields of its kind only.
	Resolver graphql.FieldResolveFn
	// Enter is called before a Resolver, for the context of it and all beneath
	// it, and leave behind them. An error is the field's.
	Enter func(ctx context.Context, src any) (within context.Context, leave func(), err error)

	// Batch names a field somewhere beneath this one that is better asked for
	// all at once: [Bound.Batch] then tells this one's arguments ahead. It costs
	// one call of the backend for each of this one, or for all of them AtOnce.
	Batch  string
	AtOnce bool

	// Cost prices a call of Resolve, before it is made; nil is free. Without
	// arguments it is the most that a call can cost.
	Cost func(args Args) Cost
	// Price is the Cost of a field that has a Resolver, or could have, with the
	// arguments that one is given.
	Price func(args map[string]any) Cost

	// Depends tells what the value of a Resolve depends on, beside the document
	// and its variables; nil is nothing else. Where Depends is nil, and of
	// a Resolver, it may be anything.
	Depends func(args Args) any

	declared *graphql.Field // by a host
}

// An Arg is one argument of a field.
type Arg struct {
	Name, Type, Desc string
	Default          string // as SDL writes it
}

// A Value is one value of an enum; to resolvers it is its name.
type Value struct{ Name, Desc, Deprecated string }

// Args are a field's arguments in the order of its declaration; one that is
// absent or null is nil. Int is int, Float is float64, ID is string, an enum
// is its name, a list is []any, an input object is map[string]any. They are
// shared between requests and must not be modified; a resolver must not keep
// the slice itself beyond its call.
type Args []any

// A List is a list that hands out its items one at a time.
type List interface {
	Len() int
	At(i int) any
}

// A Schema is what documents are checked and compiled against. It is
// read-only once made.
type Schema struct {
	types    *ast.Schema
	order    []*ast.Definition // as declared, then the built-in ones
	ql       graphql.Schema
	fields   map[string]map[string]*Field // by type and field
	is       map[string]func(any) bool
	declared map[string]graphql.Type      // by a host
	opaque   map[string]bool              // input types whose values a host's scalar may have made
	objects  map[string][]*ast.Definition // that a type may turn out to be, by its name
	defaults map[*ast.ArgumentDefinition]any
	document *ast.SchemaDocument
}

// NewSchema makes a schema from its table. Types named Query and Subscription
// are the roots.
func NewSchema(table []Type) (*Schema, error) {
	s := &Schema{fields: map[string]map[string]*Field{}, is: map[string]func(any) bool{}, declared: map[string]graphql.Type{}, document: &ast.SchemaDocument{}}
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
		return nil, errors.New("plan: schema: no type Query")
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	s.findOpaque()
	s.defaults = map[*ast.ArgumentDefinition]any{}
	for _, def := range s.types.Types {
		for _, f := range def.Fields {
			for _, a := range f.Arguments {
				s.defaults[a] = s.constant(a.Type, a.DefaultValue)
			}
		}
	}
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

// prelude is what every schema has built in: gqlparser's, without what is no
// part of the language yet, and not served: @defer, and directives on
// directives.
func prelude() *ast.SchemaDocument {
	const draft = "DIRECTIVE_DEFINITION"
	doc := validator.PreludeDocument()
	doc.Directives = slices.DeleteFunc(doc.Directives, func(d *ast.DirectiveDefinition) bool { return d.Name == "defer" })
	for _, d := range doc.Directives {
		d.Locations = slices.DeleteFunc(d.Locations, func(l ast.DirectiveLocation) bool { return l == draft })
	}
	locations := doc.Definitions.ForName("__DirectiveLocation")
	locations.EnumValues = slices.DeleteFunc(locations.EnumValues, func(v *ast.EnumValueDefinition) bool { return v.Name == draft })
	return doc
}

// GraphQL returns the schema as graphql-go's.
func (s *Schema) GraphQL() graphql.Schema { return s.ql }

// SDL prints the schema without what every schema has built in.
func (s *Schema) SDL() string {
	var b strings.Builder
	formatter.NewFormatter(&b, formatter.WithIndent("  ")).FormatSchemaDocument(s.document)
	return b.String()
}

func (t *Type) definition() (*ast.Definition, error) {
	def := &ast.Definition{Kind: t.Kind, Name: t.Name, Description: t.Desc, Interfaces: t.Interfaces, Types: t.Members, Position: nowhere}
	for _, v := range t.Values {
		def.EnumValues = append(def.EnumValues, &ast.EnumValueDefinition{Name: v.Name, Description: v.Desc, Directives: deprecated(v.Deprecated), Position: nowhere})
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

// nowhere is the position of what no text declares; gqlparser wants one.
var nowhere = &ast.Position{Src: &ast.Source{Name: "schema"}}

// typeRef reads a type as SDL writes it.
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

// typeOf returns the type that a document names, without its place there.
func (s *Schema) typeOf(t *ast.Type) *ast.Type {
	if t.Elem != nil {
		return &ast.Type{Elem: s.typeOf(t.Elem), NonNull: t.NonNull}
	}
	return &ast.Type{NamedType: s.types.Types[t.NamedType].Name, NonNull: t.NonNull}
}

// literal reads a constant as SDL writes it; "" is none.
func literal(s string) (*ast.Value, error) {
	if s == "" {
		return nil, nil
	}
	doc, err := parser.ParseQuery(&ast.Source{Input: "query($v:X=" + s + "){a}"})
	if err != nil {
		return nil, err
	}
	return doc.Operations[0].VariableDefinitions[0].DefaultValue, nil
}

// findOpaque finds the input types in which a host's scalar may be.
func (s *Schema) findOpaque() {
	s.opaque = map[string]bool{}
	leads := func(f *ast.FieldDefinition) bool { return s.opaque[f.Type.Name()] }
	for found := true; found; { // until no type leads to another one of these
		found = false
		for name, def := range s.types.Types {
			is := s.own(name) != nil || def.Kind == ast.InputObject && slices.ContainsFunc(def.Fields, leads)
			if is && !s.opaque[name] {
				s.opaque[name], found = true, true
			}
		}
	}
}

// possible returns the object types that a value of a composite type may be.
func (s *Schema) possible(def *ast.Definition) []*ast.Definition { return s.objects[def.Name] }

// includes reports whether an object type satisfies a type condition.
func (s *Schema) includes(condition string, object *ast.Definition) bool {
	return condition == "" || condition == object.Name || slices.Contains(s.objects[condition], object)
}

// check finds what no rule of gqlparser does: defaults that are not of their
// type.
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

func (s *Schema) checkDefault(t *ast.Type, v *ast.Value) error {
	if v == nil {
		return nil
	}
	_, err := s.fromLiteral(t, v, nil)
	return err
}
