package plan

import (
	"context"
	"maps"
	"strings"

	"github.com/graphql-go/graphql"
	gql "github.com/graphql-go/graphql/language/ast"
	"github.com/vektah/gqlparser/v2/ast"
)

// A hostAST is the syntax tree of a valid document in the form in which graphql-go's parser would return it. The
// host's resolvers receive it in ResolveInfo.
type hostAST struct {
	fields    map[*ast.Field]*gql.Field
	operation *gql.OperationDefinition
	fragments map[string]gql.Definition
	size      int // memory in bytes
}

func newHostAST(tree *ast.QueryDocument, def *ast.OperationDefinition) *hostAST {
	m := &hostAST{fields: map[*ast.Field]*gql.Field{}, fragments: map[string]gql.Definition{}}
	m.operation = gql.NewOperationDefinition(&gql.OperationDefinition{
		Operation: string(def.Operation), Loc: loc(def.Position),
		Directives: m.directives(def.Directives), SelectionSet: m.selections(def.SelectionSet)})
	if def.Name != "" {
		m.operation.Name = m.name(def.Name)
	}
	for _, v := range def.VariableDefinitions {
		m.size += astNodeBytes + typeSize(v.Type)
		variable := gql.NewVariableDefinition(&gql.VariableDefinition{
			Loc: loc(v.Position), Variable: gql.NewVariable(&gql.Variable{Name: m.name(v.Variable)}),
			Type: astType(v.Type), DefaultValue: m.value(v.DefaultValue)})
		m.operation.VariableDefinitions = append(m.operation.VariableDefinitions, variable)
	}
	for _, f := range tree.Fragments {
		m.size += astNodeBytes
		name := m.name(f.Name)
		m.fragments[name.Value] = gql.NewFragmentDefinition(&gql.FragmentDefinition{Loc: loc(f.Position), Name: name,
			TypeCondition: gql.NewNamed(&gql.Named{Name: m.name(f.TypeCondition)}),
			Directives:    m.directives(f.Directives), SelectionSet: m.selections(f.SelectionSet)})
	}
	return m
}

func (m *hostAST) selections(set ast.SelectionSet) *gql.SelectionSet {
	if len(set) == 0 {
		return nil
	}
	out := gql.NewSelectionSet(&gql.SelectionSet{})
	for _, sel := range set {
		m.size += astNodeBytes
		switch sel := sel.(type) {
		case *ast.Field:
			f := gql.NewField(&gql.Field{Loc: loc(sel.Position), Name: m.name(sel.Name),
				Arguments: m.arguments(sel.Arguments), Directives: m.directives(sel.Directives),
				SelectionSet: m.selections(sel.SelectionSet)})
			if sel.Alias != sel.Name {
				f.Alias = m.name(sel.Alias)
			}
			m.fields[sel] = f
			out.Selections = append(out.Selections, f)
		case *ast.InlineFragment:
			f := gql.NewInlineFragment(&gql.InlineFragment{Loc: loc(sel.Position),
				Directives: m.directives(sel.Directives), SelectionSet: m.selections(sel.SelectionSet)})
			if sel.TypeCondition != "" {
				f.TypeCondition = gql.NewNamed(&gql.Named{Name: m.name(sel.TypeCondition)})
			}
			out.Selections = append(out.Selections, f)
		case *ast.FragmentSpread:
			out.Selections = append(out.Selections, gql.NewFragmentSpread(&gql.FragmentSpread{
				Loc: loc(sel.Position), Name: m.name(sel.Name), Directives: m.directives(sel.Directives)}))
		}
	}
	return out
}

func (m *hostAST) arguments(args ast.ArgumentList) []*gql.Argument {
	out := []*gql.Argument{}
	for _, a := range args {
		m.size += astArgumentBytes
		arg := gql.Argument{Loc: loc(a.Position), Name: m.name(a.Name), Value: m.value(a.Value)}
		out = append(out, gql.NewArgument(&arg))
	}
	return out
}

func (m *hostAST) directives(ds ast.DirectiveList) []*gql.Directive {
	out := []*gql.Directive{}
	for _, d := range ds {
		m.size += astArgumentBytes
		out = append(out, gql.NewDirective(&gql.Directive{
			Loc: loc(d.Position), Name: m.name(d.Name), Arguments: m.arguments(d.Arguments)}))
	}
	return out
}

// value converts a copy of the literal v, so that the result does not keep the document in memory.
func (m *hostAST) value(v *ast.Value) gql.Value {
	if v == nil {
		return nil
	}
	v = cloneLiteral(v)
	m.size += literalSize(v, astValueBytes)
	return astValue(v)
}

// name converts a name and counts its memory, because a name may be as long as the document.
func (m *hostAST) name(name string) *gql.Name {
	m.size += textBytes(len(name))
	return astName(name)
}

func astName(name string) *gql.Name { return gql.NewName(&gql.Name{Value: strings.Clone(name)}) }

func astType(t *ast.Type) gql.Type {
	var out gql.Type
	if t.Elem != nil {
		out = gql.NewList(&gql.List{Type: astType(t.Elem)})
	} else {
		out = gql.NewNamed(&gql.Named{Name: astName(t.NamedType)})
	}
	if t.NonNull {
		return gql.NewNonNull(&gql.NonNull{Type: out})
	}
	return out
}

// astValue converts a literal. Null becomes an enum value, because graphql-go has no null.
func astValue(v *ast.Value) gql.Value {
	if v == nil {
		return nil
	}
	switch v.Kind {
	case ast.Variable:
		return gql.NewVariable(&gql.Variable{Name: astName(v.Raw)})
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
			list.Values = append(list.Values, astValue(c.Value))
		}
		return list
	case ast.ObjectValue:
		object := gql.NewObjectValue(&gql.ObjectValue{})
		for _, c := range v.Children {
			field := gql.NewObjectField(&gql.ObjectField{Name: astName(c.Name), Value: astValue(c.Value)})
			object.Fields = append(object.Fields, field)
		}
		return object
	}
	return gql.NewEnumValue(&gql.EnumValue{Value: v.Raw})
}

// loc converts a position. The result does not refer to the text of the document.
func loc(pos *ast.Position) *gql.Location {
	if pos == nil {
		return nil
	}
	return &gql.Location{Start: pos.Start, End: pos.End}
}

// A hostInfo is the part of a ResolveInfo that does not depend on variables.
type hostInfo struct {
	*graphql.ResolveInfo
	arguments    ast.ArgumentDefinitionList
	pricedParent *field // the nearest host field above with a price, whose number of items multiplies the cost
	priceIndex   int    // index in Plan.priced, if the field has a price
}

// These constants are the sizes in bytes of a hostInfo and of the parts of a hostAST. Names are counted separately.
const (
	astNodeBytes     = 208 // a selection or a definition
	astArgumentBytes = 136 // an argument or a directive
	astValueBytes    = 80
	hostInfoBytes    = 336
)

func (k *compiler) hostInfo(object *ast.Definition, def *ast.FieldDefinition, nodes []*ast.Field) *hostInfo {
	if k.hostAST == nil {
		k.hostAST = newHostAST(k.tree, k.def)
		k.plan.size += k.hostAST.size
	}
	parent, _ := k.c.schema.ql.Type(object.Name).(*graphql.Object)
	info := &hostInfo{arguments: def.Arguments, ResolveInfo: &graphql.ResolveInfo{
		FieldName: def.Name, ParentType: parent, ReturnType: parent.Fields()[def.Name].Type, Schema: k.c.schema.ql,
		Operation: k.hostAST.operation, Fragments: k.hostAST.fragments, RootValue: map[string]any(nil),
	}}
	k.plan.size += hostInfoBytes + 8*len(nodes)
	for _, node := range nodes {
		info.FieldASTs = append(info.FieldASTs, k.hostAST.fields[node])
	}
	return info
}

// RootParams returns the parameters for the host's Subscribe function of the operation's first field, which must be
// a field of the host.
func (b *Bound) RootParams(ctx context.Context) (graphql.ResolveParams, *Error) {
	f, own := b.plan.root.fields[0], b.withVariables(cloneValue)
	args, err := own.rootArguments(f)
	if err != nil {
		return graphql.ResolveParams{}, err
	}
	if f.dynamic == nil {
		args = cloneArgs(args)
	}
	var root *graphql.ResponsePath
	p := graphql.ResolveParams{Source: map[string]any(nil), Context: ctx,
		Args: f.hostArgs(args), Info: *f.info.ResolveInfo}
	p.Info.Path, p.Info.VariableValues = root.WithKey(f.name()), own.variableValues()
	return p, nil
}

// RootArgsBytes returns the memory of the arguments in RootParams without that of variables. However often a literal
// uses a variable, RootParams copies it once.
func (b *Bound) RootArgsBytes() (bytes int) {
	own := b.withVariables(func(v any) any {
		switch v.(type) {
		case []any, map[string]any:
			return true
		}
		return v
	})
	args, _ := own.rootArguments(b.plan.root.fields[0]) // after an error, RootParams returns no arguments
	for _, arg := range args {
		bytes += cloneSize(arg)
	}
	return bytes
}

// withVariables returns a copy of b in which each variable is replaced with what replace returns.
func (b *Bound) withVariables(replace func(any) any) *Bound {
	own := *b
	own.variables = make([]any, len(b.variables))
	for i, v := range b.variables {
		own.variables[i] = replace(v)
	}
	return &own
}

// hostArgs returns args in the form in which graphql-go passes arguments to resolvers. The result shares lists and
// objects with args.
func (f *field) hostArgs(args Args) map[string]any {
	named := make(map[string]any, len(args))
	for i, v := range args {
		if v != nil { // graphql-go omits absent and null arguments
			named[f.info.arguments[i].Name] = v
		}
	}
	return named
}

// hostArguments are the arguments for a resolver of the host, or the error that replaces its result.
type hostArguments struct {
	named map[string]any
	err   *Error
}

// hostArgs returns the arguments for a resolver of the host. The resolver may change them, because no other run
// shares their lists and objects. Within a run, hostArgs builds them only once for all fields that share their
// literals, such as the same field of each item in a list, even if they are invalid.
func (r *run) hostArgs(f *field) (map[string]any, error) {
	if len(f.info.arguments) == 0 {
		return map[string]any{}, nil
	}
	known, ok := r.hostArguments[f.callArguments]
	if !ok {
		var args Args
		if args, known.err = f.arguments(r.Bound, nil); known.err == nil {
			if f.dynamic == nil {
				args = cloneArgs(args)
			}
			known.named = f.hostArgs(args)
		}
		if r.hostArguments == nil {
			r.hostArguments = map[*callArguments]hostArguments{}
		}
		r.hostArguments[f.callArguments] = known
	}
	if known.err != nil {
		return nil, known.err
	}
	return maps.Clone(known.named), nil
}

func cloneArgs(args Args) Args { return cloneValue([]any(args)).([]any) }

// variableValues returns the variables in the form in which graphql-go passes them to resolvers. An absent variable
// is nil.
func (b *Bound) variableValues() map[string]any {
	variables := make(map[string]any, b.op.declared)
	for i := range b.op.declared {
		v := &b.op.variables[i]
		if variables[v.name] = nil; b.variables[i] != (absent{}) {
			variables[v.name] = owned(b.variables[i])
		}
	}
	return variables
}
