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

// A Type is a row of the table that declares a schema. The table is the only source of
// graphql-go's schema, the schema that documents are checked against, the SDL and
// introspection, all in the order of the table.
type Type struct {
	Kind       ast.DefinitionKind
	Name, Desc string
	Interfaces []string
	Fields     []Field            // of an object, interface or input object
	Values     []Value            // of an enum
	Members    []string           // of a union
	Is         func(src any) bool // for an object: reports whether a value of an interface or union is of this type

	declared graphql.Type // by the host; else nil
}

// A Field is a field of an object, interface or input object. A field of an object sets
// at most one of Append, Same, Get, Resolve and Resolver. If it sets none,
// graphql.DefaultResolveFn resolves it.
type Field struct {
	Name, Type, Desc string // Type in SDL, such as "[ID!]!"
	Args             []Arg
	Default          string // for an input field: the default in SDL
	Deprecated       string // the reason; "" if the field is not deprecated

	// Append appends a leaf as JSON. It only needs the source and cannot fail.
	Append func(dst []byte, src any) []byte
	// Same marks an object that has the same Go value as its source.
	Same bool
	// Get returns an object or a list. It only needs the source and cannot fail.
	Get func(src any) any
	// Resolve may block, fail and use arguments. If it returns an *Error, the client
	// receives it; other errors are masked.
	Resolve func(ctx context.Context, src any, args Args) (any, error)
	// Resolver is a resolver of graphql-go. It may return a thunk. All fields below
	// must be the host's, too.
	Resolver graphql.FieldResolveFn
	// Enter is called before a Resolver. It returns the context for the field and all
	// fields below, and a function that is called after them. Its error is the field's.
	Enter func(ctx context.Context, src any) (within context.Context, leave func(), err error)

	// Batch is the name of a field at any depth below this one whose values are read
	// together: [Bound.Batch] yields the arguments of all fields like this in advance.
	// The batch costs one call of the backend for each field like this or, if AtOnce is
	// set, one call for all of them.
	Batch  string
	AtOnce bool

	// Cost returns the cost of a call of Resolve, before the call; nil means no cost.
	// If args is nil, it returns the maximum cost of any call.
	Cost func(args Args) Cost
	// Price is the Cost of a host's field. Its arguments are those of the Resolver.
	Price func(args map[string]any) Cost

	// Depends returns what the value of Resolve depends on in addition to the document
	// and its variables, or nil if there is nothing else. If Depends is nil, or the
	// field is the host's, it may depend on anything.
	Depends func(args Args) any

	declared *graphql.Field // by the host; else nil
}

// An Arg is one argument of a field.
type Arg struct {
	Name, Type, Desc string
	Default          string // in SDL
}

// A Value is one value of an enum. Resolvers receive its name.
type Value struct{ Name, Desc, Deprecated string }

// Args are a field's arguments in the order of its declaration. An absent or null
// argument is nil. Int is int, Float is float64, ID is string, an enum is its name, a
// list is []any, an input object is map[string]any. The values are shared between
// requests and must not be modified. A resolver must not retain the slice.
type Args []any

// A List is a list whose items are read one at a time.
type List interface {
	Len() int
	At(i int) any
}

// A Schema is the schema that documents are checked and compiled against. It is
// read-only.
type Schema struct {
	types    *ast.Schema
	order    []*ast.Definition // as declared, then the built-in ones
	ql       graphql.Schema
	fields   map[string]map[string]*Field // by type and field
	is       map[string]func(any) bool
	declared map[string]graphql.Type      // by a host
	opaque   map[string]bool              // input types whose values may contain a value of a host's scalar
	objects  map[string][]*ast.Definition // object types of a composite type, by its name
	defaults map[*ast.ArgumentDefinition]any
	document *ast.SchemaDocument
}

// NewSchema returns the schema that a table declares. Types named Query and
// Subscription are the roots.
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

// prelude returns the built-in types and directives of gqlparser without those of the
// specification's draft: @defer and directives on directives.
func prelude() *ast.SchemaDocument {
	const draft = "DIRECTIVE_DEFINITION"
	doc := validator.PreludeDocument()
	doc.Directives = slices.DeleteFunc(doc.Directives, func(d *ast.DirectiveDefinition) bool { return d.Name == "defer" })
	for _, d := range doc.Directives {
		d.Locations = slices.DeleteFunc(d.Locations, func(l ast.DirectiveLocation) bool { return l == draft })
	}
	locations := doc.Definitions.ForName("__DirectiveLocation")
	locations.EnumValues = slices.DeleteFunc(locations.EnumValues, func(v *ast.EnumValueDefinition) bool {
		return v.Name == draft
	})
	return doc
}

// GraphQL returns the schema as graphql-go's.
func (s *Schema) GraphQL() graphql.Schema { return s.ql }

// SDL returns the schema in SDL, without built-in types and directives.
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

// nowhere is the position of definitions that are not read from a text. gqlparser
// requires one.
var nowhere = &ast.Position{Src: &ast.Source{Name: "schema"}}

// typeRef parses a type in SDL.
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

// typeOf returns a copy of a document's type without positions and with the schema's
// strings, so that it does not keep the document in memory.
func (s *Schema) typeOf(t *ast.Type) *ast.Type {
	if t.Elem != nil {
		return &ast.Type{Elem: s.typeOf(t.Elem), NonNull: t.NonNull}
	}
	return &ast.Type{NamedType: s.types.Types[t.NamedType].Name, NonNull: t.NonNull}
}

// literal parses a constant in SDL. It returns nil for "".
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

// findOpaque finds the input types that contain a host's scalar at any depth.
func (s *Schema) findOpaque() {
	s.opaque = map[string]bool{}
	leads := func(f *ast.FieldDefinition) bool { return s.opaque[f.Type.Name()] }
	for found := true; found; { // until there are no new ones
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

// check checks the types of default values, which gqlparser does not.
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
