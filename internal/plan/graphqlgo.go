package plan

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/graphql-go/graphql"
	"github.com/vektah/gqlparser/v2/ast"
)

// graphqlSchema returns the schema that table declares in the form of graphql-go. Hosts receive it in ResolveInfo.
// Its resolvers return the same values as the plans, so that tests can compare responses with those of graphql.Do.
func graphqlSchema(s *Schema, table []Type) (graphql.Schema, error) {
	types := map[string]graphql.Type{
		"Int": graphql.Int, "Float": graphql.Float, "String": graphql.String, "Boolean": graphql.Boolean,
		"ID": graphql.ID,
	}
	var ref func(t *ast.Type) graphql.Type
	ref = func(t *ast.Type) graphql.Type {
		var named graphql.Type
		if t.Elem != nil {
			named = graphql.NewList(ref(t.Elem))
		} else {
			named = types[t.NamedType]
		}
		if t.NonNull {
			return graphql.NewNonNull(named)
		}
		return named
	}
	fields := func(t *Type) graphql.Fields {
		fields := graphql.Fields{}
		for i := range t.Fields {
			f := &t.Fields[i]
			if f.declared != nil {
				fields[f.Name] = f.declared
				continue
			}
			def := s.types.Types[t.Name].Fields.ForName(f.Name)
			args := graphql.FieldConfigArgument{}
			for _, a := range def.Arguments {
				args[a.Name] = &graphql.ArgumentConfig{
					Type: ref(a.Type), Description: a.Description, DefaultValue: s.constant(a.Type, a.DefaultValue)}
			}
			fields[f.Name] = &graphql.Field{Type: ref(def.Type), Description: f.Desc, Args: args,
				DeprecationReason: f.Deprecated, Resolve: f.graphqlResolver()}
		}
		return fields
	}
	for i := range table {
		t := &table[i]
		def := s.types.Types[t.Name]
		if t.declared != nil {
			types[t.Name] = t.declared
			continue
		}
		switch t.Kind {
		case ast.Enum:
			values := graphql.EnumValueConfigMap{}
			for _, v := range t.Values {
				values[v.Name] = &graphql.EnumValueConfig{Value: v.Name, Description: v.Desc}
			}
			types[t.Name] = graphql.NewEnum(graphql.EnumConfig{Name: t.Name, Description: t.Desc, Values: values})
		case ast.InputObject:
			types[t.Name] = graphql.NewInputObject(graphql.InputObjectConfig{Name: t.Name, Description: t.Desc,
				Fields: graphql.InputObjectConfigFieldMapThunk(func() graphql.InputObjectConfigFieldMap {
					fields := graphql.InputObjectConfigFieldMap{}
					for _, f := range def.Fields {
						fields[f.Name] = &graphql.InputObjectFieldConfig{
							Type: ref(f.Type), Description: f.Description,
							DefaultValue: s.constant(f.Type, f.DefaultValue)}
					}
					return fields
				})})
		case ast.Interface:
			types[t.Name] = graphql.NewInterface(graphql.InterfaceConfig{Name: t.Name, Description: t.Desc,
				Fields: graphql.FieldsThunk(func() graphql.Fields { return fields(t) })})
		case ast.Object:
			cfg := graphql.ObjectConfig{Name: t.Name, Description: t.Desc,
				Fields: graphql.FieldsThunk(func() graphql.Fields { return fields(t) }),
				Interfaces: graphql.InterfacesThunk(func() []*graphql.Interface {
					var interfaces []*graphql.Interface
					for _, name := range t.Interfaces {
						interfaces = append(interfaces, types[name].(*graphql.Interface))
					}
					return interfaces
				})}
			if t.Is != nil {
				cfg.IsTypeOf = func(p graphql.IsTypeOfParams) bool { return t.Is(p.Value) }
			}
			types[t.Name] = graphql.NewObject(cfg)
		}
	}
	all := make([]graphql.Type, 0, len(table))
	for i := range table {
		t := &table[i]
		if t.Kind == ast.Union && t.declared == nil {
			var members []*graphql.Object
			for _, name := range t.Members {
				members = append(members, types[name].(*graphql.Object))
			}
			types[t.Name] = graphql.NewUnion(graphql.UnionConfig{Name: t.Name, Description: t.Desc, Types: members})
		}
		if types[t.Name] == nil {
			return graphql.Schema{}, fmt.Errorf("type %s: the kind %s is not supported", t.Name, t.Kind)
		}
		all = append(all, types[t.Name])
	}
	query, _ := types["Query"].(*graphql.Object)
	subscription, _ := types["Subscription"].(*graphql.Object)
	return graphql.NewSchema(graphql.SchemaConfig{Query: query, Subscription: subscription, Types: all})
}

// graphqlResolver returns a resolver for graphql-go's executor. The resolver calls the functions of f. If a
// function writes a leaf as JSON, the resolver decodes it.
func (f *Field) graphqlResolver() graphql.FieldResolveFn {
	switch {
	case f.Append != nil:
		return func(p graphql.ResolveParams) (any, error) {
			var v any
			err := json.Unmarshal(f.Append(nil, p.Source), &v)
			return v, err
		}
	case f.Same:
		return func(p graphql.ResolveParams) (any, error) { return p.Source, nil }
	case f.Get != nil:
		return func(p graphql.ResolveParams) (any, error) { return listed(f.Get(p.Source)), nil }
	case f.Resolve != nil:
		return func(p graphql.ResolveParams) (any, error) {
			args := make(Args, len(f.Args))
			for i, a := range f.Args {
				args[i] = p.Args[a.Name]
			}
			v, err := f.Resolve(p.Context, p.Source, args)
			if err != nil && !errors.As(err, new(*Error)) {
				err = errMasked
			}
			if leaf, ok := v.(Leaf); ok && err == nil {
				var read any
				err := json.Unmarshal(leaf.AppendLeaf(nil), &read)
				return read, err
			}
			return listed(v), err
		}
	}
	return f.Resolver
}

var errMasked = errors.New(maskedMessage)

// listed returns the items of a List as a slice, for graphql-go's executor. It returns all other values unchanged.
func listed(v any) any {
	l, ok := v.(List)
	if !ok {
		return v
	}
	items := make([]any, l.Len())
	for i := range items {
		items[i] = l.At(i)
	}
	return items
}
