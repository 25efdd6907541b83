package chaingql_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/graphql-go/graphql"
	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

const odd = "  \"quoted\" \"\"\"thrice\"\"\" \\back\\\n\tand é\u200b\U0001F600\nmore "

// oddTypes returns options with host fields and types whose descriptions and defaults need escaping.
func oddTypes() chaingql.Options {
	enum := graphql.NewEnum(graphql.EnumConfig{Name: "Odd", Description: odd, Values: graphql.EnumValueConfigMap{
		"OLD": {Value: 1, DeprecationReason: "Say \"NEW\".\nNow.", Description: "Was."}, "NEW": {Value: 2}}})
	var in *graphql.InputObject
	in = graphql.NewInputObject(graphql.InputObjectConfig{
		Name: "OddIn",
		Fields: graphql.InputObjectConfigFieldMapThunk(func() graphql.InputObjectConfigFieldMap {
			return graphql.InputObjectConfigFieldMap{
				"again": {Type: in},
				"many":  {Type: listOf(nonNull(in))},
				"text":  {Type: graphql.String, DefaultValue: "\"\x02\U000e0001\n", Description: odd},
				"odd":   {Type: enum, DefaultValue: 2},
			}
		}),
	})
	node := graphql.NewInterface(graphql.InterfaceConfig{
		Name:        "OddNode",
		Fields:      graphql.Fields{"id": {Type: nonNull(graphql.ID), DeprecationReason: "Old."}},
		ResolveType: func(graphql.ResolveTypeParams) *graphql.Object { return nil },
	})
	object := graphql.NewObject(graphql.ObjectConfig{
		Name:       "OddObject",
		Interfaces: []*graphql.Interface{node},
		Fields: graphql.Fields{
			"id":    {Type: nonNull(graphql.ID)},
			"gone":  {Type: graphql.Int, DeprecationReason: odd},
			"name":  {Type: graphql.String},
			"type":  {Type: graphql.String},
			"input": {Type: graphql.String},
			"on":    {Type: graphql.String},
			"null":  {Type: graphql.String},
		},
	})
	arg := func(t graphql.Input, v any) *graphql.ArgumentConfig {
		return &graphql.ArgumentConfig{Type: t, DefaultValue: v, Description: "By default."}
	}
	args := graphql.FieldConfigArgument{
		"string": arg(graphql.String, odd+"\r\x01"),
		"int":    arg(graphql.Int, -7),
		"float":  arg(graphql.Float, 1e21),
		"whole":  arg(graphql.Float, 2.0),
		"yes":    arg(graphql.Boolean, true),
		"no":     arg(nonNull(graphql.Boolean), false),
		"id":     arg(graphql.ID, "x"),
		"ints":   arg(listOf(nonNull(graphql.Int)), []int{1, 2}),
		"one":    arg(listOf(graphql.Int), 1),
		"none":   arg(listOf(graphql.Int), []int{}),
		"holed":  arg(listOf(graphql.Int), []any{1, nil}),
		"void":   arg(in, map[string]any{"text": nil}),
		"odd":    arg(enum, 2),
		"odds":   arg(listOf(enum), []any{1, 2}),
		"in": arg(in, map[string]any{
			"text": "t", "again": map[string]any{"odd": 1}, "many": []any{map[string]any{}},
		}),
		"any":  arg(anyScalar, map[string]any{"a": []any{nil, 1, "<&>\x03"}}),
		"true": arg(graphql.Int, nil),
	}
	field := &graphql.Field{
		Type: listOf(nonNull(node)), Description: odd, DeprecationReason: "No more.", Args: args,
	}
	return chaingql.Options{Schema: chaingql.SchemaExtension{
		Types: []graphql.Type{object}, Queries: graphql.Fields{"odd": field},
	}}
}

func TestSDLDescribesHostTypes(t *testing.T) {
	h, _ := newHandler(t, memchain.New(), oddTypes())
	if file := os.Getenv("SDL_TO"); file != "" { // for validators in other languages
		if err := os.WriteFile(file, []byte(h.SDL()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	s, err := gqlparser.LoadSchema(&ast.Source{Input: h.SDL()})
	if err != nil {
		t.Fatalf("the SDL is invalid: %v\n%s", err, h.SDL())
	}
	f := s.Query.Fields.ForName("odd")
	for name, want := range map[string]string{
		"string": odd + "\r\x01", "int": "-7", "float": "1000000000000000000000", "whole": "2",
		"yes": "true", "no": "false", "id": "x", "ints": "[1,2]", "one": "1", "none": "[]", "holed": "[1,null]",
		"void": "{text:null}", "odd": "NEW", "odds": "[OLD,NEW]",
		"in": `{again:{odd:OLD},many:[{}],text:"t"}`, "any": "{a:[null,1,\"<&>\x03\"]}", "true": "<nil>",
	} {
		a := f.Arguments.ForName(name)
		if a == nil || a.Description != "By default." {
			t.Errorf("argument %s is %+v, want the description of the host", name, a)
			continue
		}
		got := fmt.Sprint(a.DefaultValue)
		if a.DefaultValue != nil && (a.DefaultValue.Kind == ast.StringValue || a.DefaultValue.Kind == ast.FloatValue) {
			got = strings.Replace(a.DefaultValue.Raw, "1e+21", "1000000000000000000000", 1)
		}
		if text, err := a.DefaultValue.Value(nil); name == "any" && err == nil {
			b, _ := json.Marshal(text)
			got, want = string(b), `{"a":[null,1,"\u003c\u0026\u003e\u0003"]}`
		}
		equal(t, name, got, want)
	}
	reason := func(ds ast.DirectiveList) string {
		if d := ds.ForName("deprecated"); d != nil {
			return d.Arguments.ForName("reason").Value.Raw
		}
		return ""
	}
	equal(t, "the field's", reason(f.Directives), "No more.")
	equal(t, "gone", reason(s.Types["OddObject"].Fields.ForName("gone").Directives), odd)
	equal(t, "OLD", reason(s.Types["Odd"].EnumValues.ForName("OLD").Directives), "Say \"NEW\".\nNow.")
	equal(t, "text", s.Types["OddIn"].Fields.ForName("text").DefaultValue.Raw, "\"\x02\U000e0001\n")
	if got := s.Types["Odd"].Description; !strings.Contains(got, `"quoted" """thrice""" \back\`) {
		t.Errorf("the enum has the description %q", got)
	}
}

const introspect = `{__schema{types{
	name kind description
	fields(includeDeprecated:true){
		name description isDeprecated deprecationReason type{...T} args{name description type{...T}}
	}
	inputFields{name description type{...T}}
	interfaces{name}
	enumValues(includeDeprecated:true){name description isDeprecated deprecationReason}
	possibleTypes{name}
}}}
fragment T on __Type{kind name ofType{kind name ofType{kind name ofType{name kind}}}}`

// introspectedTypes returns the host's types in an introspection result as text. All lists are sorted. Default values
// are omitted, because graphql-go shows the internal values of enums there.
func introspectedTypes(t *testing.T, response any) []string {
	t.Helper()
	text, err := json.Marshal(response)
	if err != nil {
		t.Fatal(err)
	}
	var s struct {
		Schema struct{ Types []map[string]any } `json:"__schema"`
	}
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	var order func(v any) any
	order = func(v any) any {
		switch v := v.(type) {
		case []any:
			for i := range v {
				v[i] = order(v[i])
			}
			slices.SortFunc(v, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
			if len(v) == 0 {
				return nil
			}
			return v
		case map[string]any:
			for k := range v {
				v[k] = order(v[k])
				if v[k] == "" {
					v[k] = nil
				}
			}
		}
		return v
	}
	var types []string
	for _, typ := range s.Schema.Types {
		if name := typ["name"].(string); strings.HasPrefix(name, "Odd") {
			types = append(types, fmt.Sprint(order(typ)))
		}
	}
	slices.Sort(types)
	return types
}

func TestIntrospectionOfHostTypesMatchesGraphqlGo(t *testing.T) {
	h, _ := newHandler(t, memchain.New(), oddTypes())
	want := graphql.Do(graphql.Params{Schema: h.Schema(), RequestString: introspect})
	if want.HasErrors() {
		t.Fatalf("graphql-go failed: %v", want.Errors)
	}
	got, wanted := introspectedTypes(t, parse(t, query(h, introspect, nil)).Data), introspectedTypes(t, want.Data)
	if len(wanted) != 4 || !slices.Equal(got, wanted) {
		t.Errorf("the Handler's types are\n%s\nthose of graphql-go are\n%s",
			strings.Join(got, "\n"), strings.Join(wanted, "\n"))
	}
	const current = `{
	__type(name:"OddObject"){fields{name}}
	e:__type(name:"Odd"){enumValues{name}}
	i:__type(name:"OddIn"){inputFields{defaultValue}}
}`
	equal(t, "without deprecated fields", query(h, current, nil), `{"data":{`+
		`"__type":{"fields":[{"name":"id"},{"name":"input"},`+
		`{"name":"name"},{"name":"null"},{"name":"on"},{"name":"type"}]},`+
		`"e":{"enumValues":[{"name":"NEW"}]},`+
		`"i":{"inputFields":[{"defaultValue":null},{"defaultValue":null},{"defaultValue":"NEW"},`+
		`{"defaultValue":"\"\\\"\\u0002`+"\U000e0001"+`\\n\""}]}}}`)
}
