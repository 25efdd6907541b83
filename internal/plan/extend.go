package plan

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/graphql-go/graphql"
	"github.com/vektah/gqlparser/v2/ast"
)

// An Extension has the fields and types that a host adds to the table that declares the schema. See [Type].
type Extension struct {
	// Query and Subscription are the fields to add to the root types. A field of Subscription
	// runs once for each event, with the event as its source.
	Query, Subscription graphql.Fields
	// Types are types to which no field refers, for example objects that implement an
	// interface.
	Types []graphql.Type
	// Costs maps the name of a field, such as "Type.field", to its price function.
	Costs map[string]func(args map[string]any) Cost
	// Enter is the [Field].Enter of all fields in Query and Subscription.
	Enter func(ctx context.Context, src any) (within context.Context, leave func(), err error)
}

// Extend returns a copy of table to which the types and fields of x are appended. Added fields are sorted by name.
func Extend(table []Type, x Extension) ([]Type, error) {
	// A type named Mutation would become a root type in the SDL.
	builtin := map[string]bool{"Mutation": true}
	e := extender{types: map[string]graphql.Type{}, builtin: builtin, costs: maps.Clone(x.Costs)}
	for _, t := range slices.Concat(table, introspection) {
		e.builtin[t.Name] = true
	}
	for _, t := range []graphql.Type{graphql.Int, graphql.Float, graphql.String, graphql.Boolean, graphql.ID} {
		e.types[t.Name()] = t
	}
	table = slices.Clone(table)
	for i := range table {
		t := &table[i]
		added := map[string]graphql.Fields{"Query": x.Query, "Subscription": x.Subscription}[t.Name]
		t.Fields = slices.Clone(t.Fields)
		for _, name := range slices.Sorted(maps.Keys(added)) {
			if slices.ContainsFunc(t.Fields, func(f Field) bool { return f.Name == name }) {
				return nil, fmt.Errorf("%s.%s is built in: give the field another name", t.Name, name)
			}
			f, err := e.root(t.Name, name, added[name])
			if err != nil {
				return nil, err
			}
			f.Enter = x.Enter
			t.Fields = append(t.Fields, f)
		}
	}
	for _, t := range x.Types {
		if _, err := e.ref(t); err != nil {
			return nil, fmt.Errorf("Types: %w", err)
		}
	}
	for name := range e.costs {
		return nil, fmt.Errorf("%s has a cost but is not an added field", name)
	}
	return append(table, e.table...), nil
}

// An extender converts the types and fields of an extension to rows of the table. It also converts all types to
// which they refer.
type extender struct {
	builtin map[string]bool                      // names of built-in types
	types   map[string]graphql.Type              // converted types and built-in scalars, by name
	costs   map[string]func(map[string]any) Cost // of fields that have not been converted yet
	table   []Type
}

func (e *extender) root(parent, name string, f *graphql.Field) (Field, error) {
	if f == nil || f.Type == nil {
		return Field{}, fmt.Errorf("%s.%s has no type", parent, name)
	}
	def := &graphql.FieldDefinition{Name: name, Type: f.Type, Description: f.Description,
		DeprecationReason: f.DeprecationReason, Resolve: f.Resolve}
	for _, arg := range slices.Sorted(maps.Keys(f.Args)) {
		a := f.Args[arg]
		if a == nil || a.Type == nil {
			return Field{}, fmt.Errorf("%s.%s(%s:) has no type", parent, name, arg)
		}
		def.Args = append(def.Args, &graphql.Argument{
			PrivateName: arg, Type: a.Type, DefaultValue: a.DefaultValue, PrivateDescription: a.Description})
	}
	row, err := e.field(parent, def)
	row.declared = f
	if resolve := f.Resolve; parent != "Subscription" {
		row.Resolver = func(p graphql.ResolveParams) (any, error) {
			if p.Source = map[string]any(nil); resolve == nil {
				return nil, nil
			}
			return resolve(p)
		}
		if row.Price == nil {
			row.Price = func(map[string]any) Cost { return Cost{Calls: 1} }
		}
	}
	return row, err
}

func (e *extender) field(parent string, def *graphql.FieldDefinition) (Field, error) {
	where := parent + "." + def.Name
	f := Field{Name: def.Name, Desc: def.Description, Deprecated: def.DeprecationReason, Resolver: def.Resolve}
	var err error
	if f.Type, err = e.ref(def.Type); err != nil {
		return f, fmt.Errorf("%s: %w", where, err)
	}
	if !graphql.IsOutputType(def.Type) {
		return f, fmt.Errorf("%s: a field cannot have the input type %s", where, f.Type)
	}
	args := slices.SortedFunc(slices.Values(def.Args), func(a, b *graphql.Argument) int {
		return strings.Compare(a.Name(), b.Name())
	})
	for _, a := range args {
		arg := Arg{Name: a.Name(), Desc: a.Description()}
		if arg.Type, err = e.ref(a.Type); err != nil {
			return f, fmt.Errorf("%s(%s:): %w", where, a.Name(), err)
		}
		if !graphql.IsInputType(a.Type) {
			return f, fmt.Errorf("%s(%s:): an argument cannot have the output type %s", where, a.Name(), arg.Type)
		}
		if arg.Default, err = literalOf(a.Type, a.DefaultValue); err != nil {
			return f, fmt.Errorf("%s(%s:): %w", where, a.Name(), err)
		}
		f.Args = append(f.Args, arg)
	}
	if price, ok := e.costs[where]; ok {
		if delete(e.costs, where); price == nil {
			return f, fmt.Errorf("the cost of %s is nil", where)
		}
		f.Price = price
	}
	return f, nil
}

// ref returns the notation of a type in SDL, such as "[Int!]". It adds the type to the table, with all types to
// which it refers.
func (e *extender) ref(t graphql.Type) (string, error) {
	if isNil(t) {
		return "", errors.New("a type is nil")
	}
	switch t := t.(type) {
	case *graphql.NonNull:
		inner, err := e.ref(t.OfType)
		return inner + "!", err
	case *graphql.List:
		inner, err := e.ref(t.OfType)
		return "[" + inner + "]", err
	}
	name := t.Name()
	switch known, met := e.types[name]; {
	case met && known == t:
		return name, nil
	case met:
		return "", fmt.Errorf("there are two types named %s", name)
	case e.builtin[name]:
		return "", fmt.Errorf("type %s is built in: give yours another name", name)
	}
	if err := t.Error(); err != nil {
		return "", fmt.Errorf("type %s: %w", name, err)
	}
	e.types[name] = t
	at := len(e.table)
	e.table = append(e.table, Type{})
	row, err := e.row(t)
	e.table[at] = row
	return name, err
}

func (e *extender) row(t graphql.Type) (Type, error) {
	row := Type{Name: t.Name(), Desc: t.Description(), declared: t}
	var err error
	switch t := t.(type) {
	case *graphql.Scalar:
		row.Kind = ast.Scalar
	case *graphql.Enum:
		row.Kind = ast.Enum
		for _, v := range t.Values() {
			row.Values = append(row.Values, Value{Name: v.Name, Desc: v.Description, Deprecated: v.DeprecationReason})
		}
		slices.SortFunc(row.Values, func(a, b Value) int { return strings.Compare(a.Name, b.Name) })
		// The first call of each of these methods builds a table without a lock.
		t.Serialize(nil)
		t.ParseValue("")
	case *graphql.InputObject:
		row.Kind = ast.InputObject
		fields := t.Fields()
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			f := Field{Name: name, Desc: fields[name].Description()}
			if f.Type, err = e.ref(fields[name].Type); err == nil {
				f.Default, err = literalOf(fields[name].Type, fields[name].DefaultValue)
			}
			if err != nil {
				return row, fmt.Errorf("%s.%s: %w", row.Name, name, err)
			}
			row.Fields = append(row.Fields, f)
		}
	case *graphql.Interface:
		row.Kind = ast.Interface
		row.Fields, err = e.fields(row.Name, t.Fields())
		for _, f := range row.Fields {
			if f.Price != nil { // the price function would never be called
				return row, fmt.Errorf("%s.%s has a cost but belongs to an interface: set costs for its object types",
					row.Name, f.Name)
			}
		}
	case *graphql.Union:
		row.Kind = ast.Union
		for _, member := range t.Types() {
			name, err := e.ref(member)
			if err != nil {
				return row, err
			}
			row.Members = append(row.Members, name)
		}
	case *graphql.Object:
		row.Kind = ast.Object
		for _, i := range t.Interfaces() {
			name, err := e.ref(i)
			if err != nil {
				return row, err
			}
			row.Interfaces = append(row.Interfaces, name)
		}
		row.Fields, err = e.fields(row.Name, t.Fields())
	default:
		return row, fmt.Errorf("type %s is a %T, which is not supported", t.Name(), t)
	}
	if err == nil && t.Error() != nil { // graphql-go checks fields when they are first used
		err = fmt.Errorf("type %s: %w", row.Name, t.Error())
	}
	return row, err
}

func (e *extender) fields(parent string, defs graphql.FieldDefinitionMap) ([]Field, error) {
	var fields []Field
	for _, name := range slices.Sorted(maps.Keys(defs)) {
		f, err := e.field(parent, defs[name])
		if err != nil {
			return nil, err
		}
		fields = append(fields, f)
	}
	return fields, nil
}
