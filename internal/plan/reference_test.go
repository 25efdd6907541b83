package plan

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/graphql-go/graphql"
	"github.com/vektah/gqlparser/v2/ast"
)

// A reference executes documents on gqlparser's syntax tree with the algorithms of the specification, without
// optimizations. It shares only the resolvers of the table with the plans.
type reference struct {
	s      *Schema
	tree   *ast.QueryDocument
	op     *ast.OperationDefinition
	vars   map[string]any
	errs   [][]any // paths of the errors
	raised bool    // an error made a parent null
}

var errInvalid = errors.New("invalid operation, variable or argument")

// run returns the data of the response as JSON. It returns an error if the operation or its variables are invalid.
func (r *reference) run(text, operation string, given map[string]any) (data string, err error) {
	tree, _, invalid := parseDocument(text, Limits{})
	if invalid != nil {
		return "", invalid
	}
	r.tree = tree
	if r.op = r.tree.Operations.ForName(operation); r.op == nil {
		return "", errInvalid
	}
	r.vars = map[string]any{}
	for _, v := range r.op.VariableDefinitions {
		value, present := given[v.Variable]
		switch {
		case !present && v.DefaultValue != nil:
			r.vars[v.Variable], err = r.literal(v.Type, v.DefaultValue)
		case !present && v.Type.NonNull, present && value == nil && v.Type.NonNull:
			err = errInvalid
		case present:
			r.vars[v.Variable], err = r.json(v.Type, value)
		}
		if err != nil {
			return "", err
		}
	}
	root := r.s.types.Query
	var src any = world{}
	if r.op.Operation == ast.Subscription {
		root, src = r.s.types.Subscription, 1
	}
	data, ok := r.object(root, []ast.SelectionSet{r.op.SelectionSet}, src, nil)
	if !ok {
		return "null", nil
	}
	return data, nil
}

// A nullCondition is the panic of wanted if a condition is null. object recovers it.
type nullCondition struct{}

func (r *reference) wanted(ds ast.DirectiveList) bool {
	on := func(d *ast.Directive) bool {
		v, err := r.literal(&ast.Type{NamedType: "Boolean"}, d.Arguments.ForName("if").Value)
		if v == nil {
			panic(nullCondition{})
		}
		return err == nil && v == true
	}
	if d := ds.ForName("skip"); d != nil && on(d) {
		return false
	}
	d := ds.ForName("include")
	return d == nil || on(d)
}

func (r *reference) applies(condition string, object *ast.Definition) bool {
	def := r.s.types.Types[condition]
	return condition == "" || condition == object.Name || slices.Contains(object.Interfaces, condition) ||
		slices.Contains(def.Types, object.Name)
}

type group struct {
	name  string
	nodes []*ast.Field
}

func (r *reference) collect(object *ast.Definition, set ast.SelectionSet, groups *[]*group, visited map[string]bool) {
	for _, sel := range set {
		switch sel := sel.(type) {
		case *ast.Field:
			if !r.wanted(sel.Directives) {
				continue
			}
			i := slices.IndexFunc(*groups, func(g *group) bool { return g.name == sel.Alias })
			if i < 0 {
				i = len(*groups)
				*groups = append(*groups, &group{name: sel.Alias})
			}
			(*groups)[i].nodes = append((*groups)[i].nodes, sel)
		case *ast.InlineFragment:
			if r.wanted(sel.Directives) && r.applies(sel.TypeCondition, object) {
				r.collect(object, sel.SelectionSet, groups, visited)
			}
		case *ast.FragmentSpread:
			if !r.wanted(sel.Directives) || visited[sel.Name] {
				continue
			}
			visited[sel.Name] = true
			if f := r.tree.Fragments.ForName(sel.Name); r.applies(f.TypeCondition, object) {
				r.collect(object, f.SelectionSet, groups, visited)
			}
		}
	}
}

// groups returns the fields of an object. It reports false if a condition is null.
func (r *reference) groups(object *ast.Definition, sets []ast.SelectionSet) (groups []*group, ok bool) {
	defer func() {
		switch p := recover().(type) {
		case nil, nullCondition:
		default:
			panic(p)
		}
	}()
	visited := map[string]bool{}
	for _, set := range sets {
		r.collect(object, set, &groups, visited)
	}
	return groups, true
}

func (r *reference) object(object *ast.Definition, sets []ast.SelectionSet, src any, path []any) (string, bool) {
	groups, ok := r.groups(object, sets)
	if !ok {
		r.raised = true
		r.errs = append(r.errs, slices.Clone(path))
		return "", false
	}
	var parts []string
	for _, g := range groups {
		text, ok := r.field(object, g, src, append(slices.Clip(path), g.name))
		if !ok {
			return "", false
		}
		parts = append(parts, quoted(g.name)+":"+text)
	}
	return "{" + strings.Join(parts, ",") + "}", true
}

func (r *reference) field(object *ast.Definition, g *group, src any, path []any) (string, bool) {
	node := g.nodes[0]
	if node.Name == "__typename" {
		return quoted(object.Name), true
	}
	def := object.Fields.ForName(node.Name)
	row := r.s.fields[object.Name][node.Name]
	if row.Append != nil {
		return string(row.Append(nil, src)), true
	}
	var sets []ast.SelectionSet
	for _, n := range g.nodes {
		sets = append(sets, n.SelectionSet)
	}
	value, err := r.resolve(row, def, node, src)
	if err != nil {
		return r.fail(def.Type, path)
	}
	return r.complete(def.Type, sets, value, path)
}

func (r *reference) resolve(row *Field, def *ast.FieldDefinition, node *ast.Field, src any) (value any, err error) {
	args := make(Args, len(def.Arguments))
	named := map[string]any{}
	for i, a := range def.Arguments {
		v := a.DefaultValue
		if arg := node.Arguments.ForName(a.Name); arg != nil {
			if _, present := r.vars[arg.Value.Raw]; arg.Value.Kind != ast.Variable || present {
				v = arg.Value
			}
		}
		if v == nil {
			continue
		}
		if args[i], err = r.literal(a.Type, v); err != nil {
			return nil, err
		}
		if args[i] != nil {
			named[a.Name] = args[i]
		}
	}
	defer func() {
		if p := recover(); p != nil {
			err = errInvalid
		}
	}()
	switch {
	case row.Get != nil:
		return row.Get(src), nil
	case row.Resolve != nil:
		return row.Resolve(context.Background(), src, args)
	}
	return row.Resolver(graphql.ResolveParams{Source: src, Args: named})
}

// fail records an error at path. It returns null as JSON and reports whether the type t allows null.
func (r *reference) fail(t *ast.Type, path []any) (string, bool) {
	r.errs = append(r.errs, slices.Clone(path))
	r.raised = r.raised || t.NonNull
	return "null", !t.NonNull
}

func (r *reference) complete(t *ast.Type, sets []ast.SelectionSet, v any, path []any) (text string, ok bool) {
	if isNil(v) {
		if t.NonNull {
			return r.fail(t, path)
		}
		return "null", true
	}
	defer func() {
		if !ok && !t.NonNull {
			text, ok = "null", true
		}
	}()
	if t.Elem != nil {
		list, _ := listed(v).([]any)
		parts := []string{}
		for i, item := range list {
			text, ok := r.complete(t.Elem, sets, item, append(slices.Clip(path), i))
			if !ok {
				return "", false
			}
			parts = append(parts, text)
		}
		return "[" + strings.Join(parts, ",") + "]", true
	}
	def := r.s.types.Types[t.NamedType]
	switch def.Kind {
	case ast.Scalar, ast.Enum:
		if text, ok := leaf(def, v); ok {
			return text, true
		}
		return r.fail(t, path)
	case ast.Interface, ast.Union:
		for _, object := range r.s.types.GetPossibleTypes(def) {
			if object.Kind == ast.Object && r.s.is[object.Name](v) {
				return r.object(object, sets, v, path)
			}
		}
		return r.fail(t, path)
	}
	return r.object(def, sets, v, path)
}

func leaf(def *ast.Definition, v any) (string, bool) {
	switch v := v.(type) {
	case int:
		if def.Name == "ID" || def.Name == "String" {
			return fmt.Sprintf("%q", strconv.Itoa(v)), true
		}
		return strconv.Itoa(v), def.Name == "Int" || def.Name == "Float"
	case int64: // always beyond 32 bits in the tests' schema
		if def.Name == "ID" || def.Name == "String" {
			return fmt.Sprintf("%q", strconv.FormatInt(v, 10)), true
		}
		return strconv.FormatInt(v, 10), def.Name == "Float"
	case float64:
		return fmt.Sprint(v), def.Name == "Float"
	case bool:
		return fmt.Sprint(v), def.Name == "Boolean"
	case string:
		return quoted(v), def.Name == "String" || def.Name == "ID" || def.EnumValues.ForName(v) != nil
	}
	return "", false
}

func quoted(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s)
	return strings.TrimSuffix(b.String(), "\n")
}
