package plan

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/graphql-go/graphql"
	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/validator"
)

// golden compares got with a file in testdata. If the environment variable UPDATE is set, golden writes the file
// first.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := "testdata/" + name
	if os.Getenv("UPDATE") != "" {
		must(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	must(t, err)
	if got != string(want) {
		t.Errorf("the result differs from testdata/%s, got:\n%s", name, got)
	}
}

func TestSDLDeclaresTypesInTableOrder(t *testing.T) {
	sdl := testSchema(t).SDL()
	golden(t, "schema.graphql", sdl)
	if strings.Contains(sdl, "__") || strings.Contains(sdl, "defer") {
		t.Error("the SDL contains built-in types or directives")
	}
	loaded, err := gqlparser.LoadSchema(&ast.Source{Input: sdl})
	must(t, err)
	if len(loaded.Types["Query"].Fields) != len(testSchema(t).types.Query.Fields) {
		t.Error("the SDL lacks fields of Query")
	}
}

func TestIntrospectionReturnsWholeSchema(t *testing.T) {
	text, err := os.ReadFile("testdata/introspection.graphql")
	must(t, err)
	answer := ask(testCache(t, defaultLimits), string(text), nil)
	var indented strings.Builder
	var tree any
	must(t, json.Unmarshal([]byte(answer), &tree))
	e := json.NewEncoder(&indented)
	e.SetIndent("", " ")
	must(t, e.Encode(json.RawMessage(answer)))
	golden(t, "introspection.json", indented.String())
	if strings.Contains(answer, "defer") || strings.Contains(answer, "DIRECTIVE_DEFINITION") ||
		strings.Contains(answer, `"errors"`) {
		t.Error("the response contains @defer, directives on directives, or an error")
	}
}

func TestIntrospectionDescribesTypesFieldsAndDirectives(t *testing.T) {
	c := testCache(t, defaultLimits)
	for _, test := range []struct{ text, want string }{
		{`{__type(name:"Nope"){name}}`, `{"__type":null}`},
		{`{__type(name:"Query"){fields{name}}}`, `!"old"`},
		{`{__type(name:"Query"){fields(includeDeprecated:true){name isDeprecated deprecationReason}}}`,
			`{"name":"old","isDeprecated":true,"deprecationReason":"Use \"int\"."}`},
		{`{__type(name:"Query"){fields(includeDeprecated:null){name}}}`,
			`Expected value of non-null type \"Boolean!\" not to be null.`},
		{`query($d:Boolean){__type(name:"Query"){fields(includeDeprecated:$d){name}}}`, `!"old"`},
		{`{__type(name:"Query"){fields{name}}}`,
			`{"__type":{"fields":[{"name":"node"},{"name":"nodes"},{"name":"pets"}`},
		{`{__type(name:"Query"){fields{name}}}`, `!__schema`},
		{`{__type(name:"Filter"){inputFields{name}}}`, `!"must"`},
		{`{__type(name:"Filter"){inputFields(includeDeprecated:true){name isDeprecated deprecationReason}}}`,
			`{"name":"must","isDeprecated":true,"deprecationReason":"Use min."}`},
		{`{__type(name:"Filter"){kind isOneOf inputFields{name defaultValue}}}`,
			`{"__type":{"kind":"INPUT_OBJECT","isOneOf":false,` +
				`"inputFields":[{"name":"id","defaultValue":null},{"name":"color","defaultValue":"RED"},` +
				`{"name":"min","defaultValue":"1"},`},
		{`{__type(name:"Query"){fields{name args{name defaultValue}}}}`,
			`{"name":"defaults","args":[` +
				`{"name":"i","defaultValue":"7"},{"name":"n","defaultValue":"3"},{"name":"c","defaultValue":"GREEN"},` +
				`{"name":"l","defaultValue":"[1,2]"},{"name":"s","defaultValue":"\"a \\\"b\\\"\""},` +
				`{"name":"o","defaultValue":"{min:4,any:[{color:BLUE}]}"}]}`},
		{`{__type(name:"Color"){kind name description enumValues{name description isDeprecated} fields{name} ` +
			`inputFields{name} possibleTypes{name} interfaces{name} ofType{name} isOneOf specifiedByURL}}`,
			`{"__type":{"kind":"ENUM","name":"Color","description":"What it looks like.",` +
				`"enumValues":[{"name":"RED","description":"As fire.","isDeprecated":false},` +
				`{"name":"GREEN","description":null,"isDeprecated":false},` +
				`{"name":"BLUE","description":null,"isDeprecated":false}],` +
				`"fields":null,"inputFields":null,"possibleTypes":null,"interfaces":null,"ofType":null,` +
				`"isOneOf":null,"specifiedByURL":null}}`},
		{`{__type(name:"Node"){kind possibleTypes{name} interfaces{name} fields{name} enumValues{name}}}`,
			`{"__type":{"kind":"INTERFACE","possibleTypes":[{"name":"Cat"},{"name":"Dog"},{"name":"Person"}],` +
				`"interfaces":[],` +
				`"fields":[{"name":"id"},{"name":"name"},{"name":"peer"},{"name":"peers"}],"enumValues":null}}`},
		{`{__type(name:"Pet"){kind possibleTypes{name} fields{name} interfaces{name}}}`,
			`{"__type":{"kind":"UNION",` +
				`"possibleTypes":[{"name":"Cat"},{"name":"Dog"}],"fields":null,"interfaces":null}}`},
		{`{__type(name:"Cat"){kind interfaces{name} possibleTypes{name}}}`,
			`{"__type":{"kind":"OBJECT","interfaces":[{"name":"Node"},{"name":"Named"}],"possibleTypes":null}}`},
		{`{__type(name:"Int"){kind specifiedByURL isOneOf}}`,
			`{"__type":{"kind":"SCALAR","specifiedByURL":null,"isOneOf":null}}`},
		{`{__type(name:"Query"){fields{name type{kind name description ofType{kind name ofType{kind name ` +
			`ofType{kind name ofType{kind name ofType{name}}}}}}}}}`,
			`{"name":"stricter","type":{"kind":"NON_NULL","name":null,"description":null,` +
				`"ofType":{"kind":"LIST","name":null,"ofType":{"kind":"NON_NULL","name":null,` +
				`"ofType":{"kind":"LIST","name":null,"ofType":{"kind":"NON_NULL","name":null,` +
				`"ofType":{"name":"Int"}}}}}}}`},
		{`{__type(name:"Query"){fields{type{fields{name} enumValues{name} inputFields{name} interfaces{name} ` +
			`possibleTypes{name} isOneOf specifiedByURL}}}}`,
			`{"type":{"fields":null,"enumValues":null,"inputFields":null,"interfaces":null,"possibleTypes":null,` +
				`"isOneOf":null,"specifiedByURL":null}}`},
		{`{__schema{description queryType{name} mutationType{name} subscriptionType{name}}}`,
			`{"__schema":{"description":null,"queryType":{"name":"Query"},` +
				`"mutationType":null,"subscriptionType":{"name":"Subscription"}}}`},
		{`{__schema{directives{name isRepeatable locations args{name type{kind ofType{name}} defaultValue}}}}`,
			`{"__schema":{"directives":[{"name":"deprecated","isRepeatable":false,` +
				`"locations":["FIELD_DEFINITION","ARGUMENT_DEFINITION","INPUT_FIELD_DEFINITION","ENUM_VALUE"],` +
				`"args":[{"name":"reason","type":{"kind":"NON_NULL","ofType":{"name":"String"}},` +
				`"defaultValue":"\"No longer supported\""}]},{"name":"include",`},
		{`{__schema{types{name}}}`,
			`{"__schema":{"types":[{"name":"Color"},{"name":"Node"},{"name":"Named"},{"name":"Query"},` +
				`{"name":"Cat"},{"name":"Dog"},{"name":"Person"},{"name":"Pet"},` +
				`{"name":"Filter"},{"name":"Subscription"},{"name":"Int"},`},
		{`{__typename __schema{__typename types{__typename fields{__typename args{__typename} type{__typename}}}}}`,
			`{"__typename":"Query",` +
				`"__schema":{"__typename":"__Schema","types":[{"__typename":"__Type","fields":null},`},
	} {
		got := ask(c, test.text, nil)
		if not, ok := strings.CutPrefix(test.want, "!"); ok && strings.Contains(got, not) || !ok &&
			!strings.Contains(got, test.want) {
			t.Errorf("%s\ngot  %s\nwant %s", test.text, got, test.want)
		}
	}
}

// A new version of gqlparser may declare introspection fields for which this package has no resolver.
func TestEveryIntrospectionFieldHasResolver(t *testing.T) {
	s := testSchema(t)
	for _, def := range validator.PreludeDocument().Definitions {
		for _, f := range def.Fields {
			row := s.fields[def.Name][f.Name]
			if row == nil || row.Append == nil && row.Get == nil && !row.Same && row.Resolve == nil {
				t.Errorf("%s.%s has no resolver", def.Name, f.Name)
			}
		}
	}
}

func TestIntrospectionCanBeTurnedOff(t *testing.T) {
	limits := defaultLimits
	limits.NoIntrospect = true
	c := testCache(t, limits)
	for text, want := range map[string]string{
		`{__schema{types{name}}}`:                             "Introspection is turned off.",
		`{self{__type(name:"Cat"){name}}}`:                    "Introspection is turned off.",
		`{...A} fragment A on Query{x:__schema{types{name}}}`: "Introspection is turned off.",
		`{__typename cat{__typename}}`: `{"data":{"__typename":"Query",` +
			`"cat":{"__typename":"Cat"}}}`,
	} {
		if got := ask(c, text, nil); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

func TestNewSchemaRejectsInvalidTables(t *testing.T) {
	object := func(name string, fields ...Field) Type { return Type{Kind: ast.Object, Name: name, Fields: fields} }
	a := Field{Name: "a", Type: "Int"}
	with := func(arg Arg) []Type { return []Type{object("Query", Field{Name: "a", Type: "Int", Args: []Arg{arg}})} }
	in := func(f ...Field) Type { return Type{Kind: ast.InputObject, Name: "In", Fields: f} }
	for name, table := range map[string][]Type{
		"no query":                              {object("Other", a)},
		"an unknown type":                       {object("Query", Field{Name: "a", Type: "Nope"})},
		"a type twice":                          {object("Query", a), object("Query", a)},
		"a default that does not parse":         with(Arg{Name: "x", Type: "Int", Default: "]"}),
		"a default of another type":             with(Arg{Name: "x", Type: "Int", Default: `"1"`}),
		"a default past 32 bits":                with(Arg{Name: "x", Type: "[Int]", Default: `[2147483648]`}),
		"a field's default that does not parse": {object("Query", a), in(Field{Name: "x", Type: "Int", Default: "]"})},
		"a field's default of another type": {object("Query", a),
			in(Field{Name: "x", Type: "Int", Default: "RED"})},
		"a field's default for another default": {object("Query",
			Field{Name: "a", Type: "Int", Args: []Arg{{Name: "x", Type: "In", Default: "{}"}}}),
			in(Field{Name: "x", Type: "Int", Default: "RED"})},
		"a scalar":                 {object("Query", a), {Kind: ast.Scalar, Name: "Date"}},
		"an empty object":          {object("Query")},
		"a field of an input type": {object("Query", Field{Name: "a", Type: "In"}), in(a)},
		"a reserved name":          {object("Query", a), object("__Type", a)},
	} {
		if _, err := NewSchema(table); err == nil || !strings.HasPrefix(err.Error(), "plan: ") {
			t.Errorf("%s: got error %v, want one that starts with \"plan: \"", name, err)
		}
	}
}

func TestGraphqlGoSchemaHasDeclaredTypesAndDescriptions(t *testing.T) {
	s := testSchema(t)
	ql := s.GraphQL()
	types := ql.TypeMap()
	for _, def := range s.document.Definitions {
		if types[def.Name] == nil || types[def.Name].Description() != def.Description {
			t.Errorf("type %s is missing or has a different description", def.Name)
		}
	}
	if f := ql.QueryType().Fields()["old"]; f.DeprecationReason != "Use \"int\"." {
		t.Errorf("got deprecation reason %q for Query.old", f.DeprecationReason)
	}
	args := ql.QueryType().Fields()["defaults"].Args
	if !slices.ContainsFunc(args, func(a *graphql.Argument) bool { return a.PrivateName == "o" }) {
		t.Error("Query.defaults lacks the argument o")
	}
}
