package plan

import (
	"context"
	"strings"

	"github.com/graphql-go/graphql"
	gql "github.com/graphql-go/graphql/language/ast"
	"github.com/vektah/gqlparser/v2/ast"
)

// A mirror shows a checked document as graphql-go's own parser would have made
// it.
type mirror struct {
	fields    map[*ast.Field]*gql.Field
	operation *gql.OperationDefinition
	fragments map[string]gql.Definition
	size      int // in bytes
}

func newMirror(tree *ast.QueryDocument, def *ast.OperationDefinition) *mirror {
	m := &mirror{fields: map[*ast.Field]*gql.Field{}, fragments: map[string]gql.Definition{}}
	m.operation = gql.NewOperationDefinition(&gql.OperationDefinition{Operation: string(def.Operation), Loc: loc(def.Position),
		Directives: m.directives(def.Directives), SelectionSet: m.selections(def.SelectionSet)})
	if def.Name != "" {
		m.operation.Name = m.name(def.Name)
	}
	for _, v := range def.VariableDefinitions {
		m.size += mirrorBytes + weighType(v.Type)
		m.operation.VariableDefinitions = append(m.operation.VariableDefinitions, gql.NewVariableDefinition(&gql.VariableDefinition{
			Loc: loc(v.Position), Variable: gql.NewVariable(&gql.Variable{Name: m.name(v.Variable)}),
			Type: mirrorType(v.Type), DefaultValue: m.value(v.DefaultValue)}))
	}
	for _, f := range tree.Fragments {
		m.size += mirrorBytes
		name := m.name(f.Name)
		m.fragments[name.Value] = gql.NewFragmentDefinition(&gql.FragmentDefinition{Loc: loc(f.Position), Name: name,
			TypeCondition: gql.NewNamed(&gql.Named{Name: m.name(f.TypeCondition)}),
			Directives:    m.directives(f.Directives), SelectionSet: m.selections(f.SelectionSet)})
	}
	return m
}

func (m *mirror) selections(set ast.SelectionSet) *gql.SelectionSet {
	if len(set) == 0 {
		return nil
	}
	out := gql.NewSelectionSet(&gql.SelectionSet{})
	for _, sel := range set {
		m.size += mirrorBytes
		switch sel := sel.(type) {
		case *ast.Field:
			f := gql.NewField(&gql.Field{Loc: loc(sel.Position), Name: m.name(sel.Name), Arguments: m.arguments(sel.Arguments),
				Directives: m.directives(sel.Directives), SelectionSet: m.selections(sel.SelectionSet)})
			if sel.Alias != sel.Name {
				f.Alias = m.name(sel.Alias)
			}
			m.fields[sel] = f
			out.Selections = append(out.Selections, f)
		case *ast.InlineFragment:
			f := gql.NewInlineFragment(&gql.InlineFragment{Loc: loc(sel.Position), Directives: m.directives(sel.Directives), SelectionSet: m.selections(sel.SelectionSet)})
			if sel.TypeCondition != "" {
				f.TypeCondition = gql.NewNamed(&gql.Named{Name: m.name(sel.TypeCondition)})
			}
			out.Selections = append(out.Selections, f)
		case *ast.FragmentSpread:
			out.Selections = append(out.Selections, gql.NewFragmentSpread(&gql.FragmentSpread{Loc: loc(sel.Position), Name: m.name(sel.Name), Directives: m.directives(sel.Directives)}))
		}
	}
	return out
}

func (m *mirror) arguments(args ast.ArgumentList) []*gql.Argument {
	out := []*gql.Argument{}
	for _, a := range args {
		m.size += mirrorPartBytes
		arg := gql.Argument{Loc: loc(a.Position), Name: m.name(a.Name), Value: m.value(a.Value)}
		out = append(out, gql.NewArgument(&arg))
	}
	return out
}

func (m *mirror) directives(ds ast.DirectiveList) []*gql.Directive {
	out := []*gql.Directive{}
	for _, d := range ds {
		m.size += mirrorPartBytes
		out = append(out, gql.NewDirective(&gql.Directive{Loc: loc(d.Position), Name: m.name(d.Name), Arguments: m.arguments(d.Arguments)}))
	}
	return out
}

// value shows a literal without keeping its document in memory.
func (m *mirror) value(v *ast.Value) gql.Value {
	if v == nil {
		return nil
	}
	v = detached(v)
	m.size += weighLiteral(v, mirrorValueBytes)
	return mirrorValue(v)
}

// name counts a name, which may be as long as its document.
func (m *mirror) name(name string) *gql.Name {
	m.size += textBytes(len(name))
	return mirrorName(name)
}

func mirrorName(name string) *gql.Name { return gql.NewName(&gql.Name{Value: strings.Clone(name)}) }

func mirrorType(t *ast.Type) gql.Type {
	var out gql.Type
	if t.Elem != nil {
		out = gql.NewList(&gql.List{Type: mirrorType(t.Elem)})
	} else {
		out = gql.NewNamed(&gql.Named{Name: mirrorName(t.NamedType)})
	}
	if t.NonNull {
		return gql.NewNonNull(&gql.NonNull{Type: out})
	}
	return out
}

// mirrorValue shows a literal. graphql-go has no null, which is an enum's value
// to it.
func mirrorValue(v *ast.Value) gql.Value {
	if v == nil {
		return nil
	}
	switch v.Kind {
	case ast.Variable:
		return gql.NewVariable(&gql.Variable{Name: mirrorName(v.Raw)})
	case ast.IntValue:
		return gql.NewIntValue(&gql.IntValue{Value: v.Raw})
	case ast.FloatValue:
		return gql.NewFloatValue(&gql.FloatValue{Value: v.Raw})
	case ast.StringValue, ast.BlockValue:
		return gql.NewStringValue(&gql.StringValue{Value: v.Raw})
	case ast.BooleanValue:
		return gql.NewBooleanValue(&gql.BooleanValue{Value: v.Raw == "true"})
	case ast.ListValue:
		list := gql.NewListValue(&gql.ListValue{})
		for _, c := range v.Children {
			list.Values = append(list.Values, mirrorValue(c.Value))
		}
		return list
	case ast.ObjectValue:
		object := gql.NewObjectValue(&gql.ObjectValue{})
		for _, c := range v.Children {
			object.Fields = append(object.Fields, gql.NewObjectField(&gql.ObjectField{Name: mirrorName(c.Name), Value: mirrorValue(c.Value)}))
		}
		return object
	}
	return gql.NewEnumValue(&gql.EnumValue{Value: v.Raw})
}

// loc is a place in a document, without the text.
func loc(pos *ast.Position) *gql.Location {
	if pos == nil {
		return nil
	}
	return &gql.Location{Start: pos.Start, End: pos.End}
}

// A hostInfo is what a host's resolver is told of its field whatever the
// variables.
type hostInfo struct {
	*graphql.ResolveInfo
	arguments ast.ArgumentDefinitionList
}

// What the parts of a mirror without their names and what a hostInfo take, in bytes.
const (
	mirrorBytes      = 208 // a selection or a definition
	mirrorPartBytes  = 136 // an argument or a directive
	mirrorValueBytes = 80
	hostInfoBytes    = 320
)

func (k *compiler) hostInfo(object *ast.Definition, def *ast.FieldDefinition, nodes []*ast.Field) *hostInfo {
	if k.mirror == nil {
		k.mirror = newMirror(k.tree, k.def)
		k.plan.size += k.mirror.size
	}
	parent, _ := k.c.schema.ql.Type(object.Name).(*graphql.Object)
	info := &hostInfo{arguments: def.Arguments, ResolveInfo: &graphql.ResolveInfo{
		FieldName: def.Name, ParentType: parent, ReturnType: parent.Fields()[def.Name].Type, Schema: k.c.schema.ql,
		Operation: k.mirror.operation, Fragments: k.mirror.fragments, RootValue: map[string]any(nil),
	}}
	k.plan.size += hostInfoBytes + 8*len(nodes)
	for _, node := range nodes {
		info.FieldASTs = append(info.FieldASTs, k.mirror.fields[node])
	}
	return info
}

// RootParams is what a host's subscribe function gets, of the operation's first
// field.
func (b *Bound) RootParams(ctx context.Context) (graphql.ResolveParams, *Error) {
	f := b.plan.root.fields[0]
	args, err := f.arguments(b, nil)
	if err != nil {
		return graphql.ResolveParams{}, &Error{Message: err.Error(), Code: CodeInput, Locations: b.locations(f), Path: []any{f.name}}
	}
	var root *graphql.ResponsePath
	p := graphql.ResolveParams{Source: map[string]any(nil), Context: ctx, Args: b.cache.schema.hostArgs(f, args), Info: *f.info.ResolveInfo}
	p.Info.Path, p.Info.VariableValues = root.WithKey(f.name), b.given()
	return p, nil
}

// hostArgs are a field's arguments as graphql-go has them.
func (s *Schema) hostArgs(f *field, args Args) map[string]any {
	named := make(map[string]any, len(args))
	for i, v := range args {
		if v != nil { // one that is absent or null is not there
			named[f.info.arguments[i].Name] = s.forHost(f.info.arguments[i].Type, v)
		}
	}
	return named
}

// given are the operation's variables as graphql-go has them: one that is absent
// is nil.
func (b *Bound) given() map[string]any {
	given := make(map[string]any, b.op.declared)
	for i := range b.op.declared {
		v := &b.op.variables[i]
		if given[v.name] = nil; b.variables[i] != (absent{}) {
			given[v.name] = b.cache.schema.forHost(v.typ, b.variables[i])
		}
	}
	return given
}
