package chaingql_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/graphql-go/graphql"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

type (
	colour string
	level  int
	point  struct {
		X     int
		Named string `json:"label,omitempty"`
		Other string `graphql:"other"`
	}
	selfResolver struct{}
	uuid         [2]byte
	queue        []int
)

func (l level) String() string                                    { return "level " + fmt.Sprint(int(l)) }
func (u uuid) String() string                                     { return fmt.Sprintf("%x", u[:]) }
func (selfResolver) Resolve(p graphql.ResolveParams) (any, error) { return p.Info.FieldName + "!", nil }

// A queue is a list. The Handler must not call its methods.
func (q *queue) Len() int     { return len(*q) }
func (q *queue) At(i int) any { panic("s3cret") }

// valueFields returns fields whose resolvers return all kinds of values, and types to which no field refers.
func valueFields() (graphql.Fields, []graphql.Type) {
	spot := newObject("Spot", graphql.Fields{
		"x": {Type: graphql.Int}, "label": {Type: graphql.String}, "other": {Type: graphql.String},
		"missing": {Type: graphql.Int},
	})
	shape := graphql.NewInterface(graphql.InterfaceConfig{
		Name: "Shape", Fields: graphql.Fields{"area": {Type: graphql.Int}},
	})
	isOf := func(name string, is func(v any) bool) *graphql.Object {
		return graphql.NewObject(graphql.ObjectConfig{
			Name: name, Interfaces: []*graphql.Interface{shape},
			Fields: graphql.Fields{"area": constField(graphql.Int, len(name))},
			IsTypeOf: func(p graphql.IsTypeOfParams) bool {
				return p.Context != nil && p.Info.FieldName != "" && is(p.Value)
			},
		})
	}
	square := isOf("Square", func(v any) bool { return v == "square" })
	round := isOf("Round", func(v any) bool { return v == "round" }) // reachable only as a possible type of Shape
	sides := graphql.NewEnum(graphql.EnumConfig{Name: "Sides", Values: graphql.EnumValueConfigMap{
		"ONE": {Value: point{X: 1}}, "TWO": {Value: of(2)}, "NAMED": {}, "LEVEL": {Value: level(3)},
	}})
	var tree *graphql.Object
	tree = graphql.NewObject(graphql.ObjectConfig{Name: "Tree", Fields: graphql.FieldsThunk(func() graphql.Fields {
		return graphql.Fields{
			"leaf":   constField(graphql.Int, 1),
			"up":     constField(tree, 1),
			"void":   constField(nonNull(graphql.Int), nil),
			"broken": constField(nonNull(graphql.Int), errors.New("s3cret")),
			"panics": constField(nonNull(graphql.Int), "panic"),
			"sure":   constField(nonNull(tree), 1),
			"all":    constField(listOf(nonNull(tree)), []int{1, 2}),
			"late":   constField(tree, thunk(1, nil)),
			"never":  constField(tree, thunk(nil, nil)),
		}
	})})
	figure := graphql.NewUnion(graphql.UnionConfig{Name: "Figure", Types: []*graphql.Object{square}})
	in := graphql.NewInputObject(graphql.InputObjectConfig{Name: "In", Fields: graphql.InputObjectConfigFieldMap{
		"v":    {Type: anyScalar},
		"many": {Type: listOf(sides)},
		"side": {Type: sides, DefaultValue: point{X: 1}},
	}})
	echo := &graphql.Field{
		Type: anyScalar,
		Args: graphql.FieldConfigArgument{
			"v":  {Type: anyScalar, DefaultValue: map[string]any{"a": []any{1, "x\u200b\"", true, 1e21}}},
			"in": {Type: in},
		},
		Resolve: func(p graphql.ResolveParams) (any, error) {
			return fmt.Sprintf("%v %v", p.Args, p.Info.VariableValues), nil
		},
	}
	fields := graphql.Fields{
		"tree":      constField(tree, 1),
		"trees":     constField(listOf(tree), []int{1, 2}),
		"square":    constField(square, "square"),
		"notSquare": constField(square, "round"),
		"shapes":    constField(listOf(shape), []any{"square", "round", nil}),
		"oddShape":  constField(shape, "odd"),
		"either":    constField(listOf(figure), []string{"square"}),
		"sides":     constField(listOf(sides), []any{point{X: 1}, "NAMED", level(3), nil}),
		"echo":      echo,
	}
	for name, v := range map[string]any{
		"struct":     point{1, "l", "o"},
		"pointer":    &point{2, "l", "o"},
		"nilPointer": (*point)(nil),
		"map":        map[string]any{"x": 3, "label": func() any { return "called" }, "other": thunk("o", nil)},
		"strings":    map[string]string{"label": "s"},
		"resolver":   map[string]any(nil),
		"itself":     &struct{ selfResolver }{},
	} {
		fields["spot_"+name] = constField(spot, v)
	}
	for name, v := range map[string]any{
		"string": "a\x00<\u2028", "pointer": of("p"), "named": colour("red"), "level": level(3),
		"duration": time.Second, "int": 7, "uint": uint8(7), "shard": uint64(1 << 63), "bool": true, "float": 1.5,
		"error": thunk(fmt.Errorf("e"), nil), "nil": (*string)(nil), "uuid": uuid{1, 0xab}, "uuidPointer": &uuid{1},
	} {
		fields["string_"+name], fields["id_"+name] = constField(graphql.String, v), constField(graphql.ID, v)
	}
	for name, v := range map[string]any{
		"int8": int8(-8), "uint16": uint16(16), "pointer": of(5), "int64": int64(9), "float": 4.0,
		"nil": (*int)(nil), "max": int64(1<<31 - 1),
	} {
		fields["int_"+name], fields["float_"+name] = constField(graphql.Int, v), constField(graphql.Float, v)
	}
	for name, v := range map[string]any{
		"float32": float32(0.25), "small": 1e-9, "big": 1e22, "shard": uint64(1 << 63),
	} {
		fields["float_"+name] = constField(graphql.Float, v)
	}
	for name, v := range map[string]any{
		"plain": []int{1, 2}, "pointers": []*int{of(1), nil}, "array": [2]int{3, 4}, "pointer": &[]int{5},
		"nil": []int(nil), "empty": []any{}, "thunks": []any{thunk(1, nil), 2, thunk(nil, nil)},
		"late": thunk([]int{7}, nil), "mixed": []any{1, nil, of(3)}, "queue": &queue{1, 2}, "nilQueue": (*queue)(nil),
	} {
		fields["list_"+name] = constField(listOf(graphql.Int), v)
	}
	fields["list_nested"] = constField(listOf(listOf(graphql.Int)), [][]int{{1}, nil, {}})
	fields["list_sure"] = constField(listOf(nonNull(graphql.Int)), []any{1, nil, 3})
	fields["list_notOne"] = constField(listOf(graphql.Int), 5)
	for name, v := range map[string]any{
		"nil": nil, "number": 1.5, "object": map[string]any{"b": []any{nil, true}},
		"bytes": json.RawMessage(`{"a": 1}`), "void": (*int)(nil), "late": thunk("x", nil),
	} {
		fields["any_"+name] = constField(anyScalar, v)
	}
	silent := graphql.NewScalar(graphql.ScalarConfig{Name: "Silent", Serialize: func(any) any { return nil }})
	fields["any_silent"], fields["any_sure"] = constField(silent, 1), constField(nonNull(silent), 1)
	named := graphql.NewInterface(graphql.InterfaceConfig{
		Name: "Placed", Fields: graphql.Fields{"place": {Type: graphql.String}},
		ResolveType: func(p graphql.ResolveTypeParams) *graphql.Object {
			return p.Info.Schema.Type("Place" + fmt.Sprint(len(p.Info.Path.AsArray()))).(*graphql.Object)
		},
	})
	types := []graphql.Type{round}
	// The number in a type's name is the length of the path: that of the field, not that of the list item.
	for _, name := range []string{"Place1", "Place2"} {
		types = append(types, graphql.NewObject(graphql.ObjectConfig{
			Name: name, Interfaces: []*graphql.Interface{named},
			Fields: graphql.Fields{"place": constField(graphql.String, name)},
		}))
	}
	fields["place_all"] = constField(listOf(named), []int{1, 2})
	return fields, types
}

// The data and the paths of errors must equal those of graphql-go.
func TestHostValuesMatchGraphqlGo(t *testing.T) {
	fields, types := valueFields()
	h, log := newHandler(t, memchain.New(), chaingql.Options{
		Schema: chaingql.SchemaExtension{Queries: fields, Types: types},
	})
	var documents []string
	for name, f := range fields {
		switch {
		case name == "tree" || name == "trees" || name == "echo":
		case name == "spot_itself":
			documents = append(documents, "{"+name+"{label other}}")
		case strings.HasPrefix(name, "spot_"):
			documents = append(documents, "{"+name+"{x label other missing}}")
		case f.Type.String() == "Square":
			documents = append(documents, "{"+name+"{__typename area ...on Shape{again:area}}}")
		case f.Type.String() == "Shape" || f.Type.String() == "[Shape]":
			documents = append(documents, "{"+name+"{__typename area ...on Round{again:area}}}")
		case name == "place_all":
			documents = append(documents, "{place_all{__typename place}}")
		case name == "either":
			documents = append(documents, "{either{... on Square{area} ...on Shape{__typename}}}")
		default:
			documents = append(documents, "{"+name+"}")
		}
	}
	documents = append(documents,
		`{tree{leaf up{leaf void leaf} up2:up{broken} p:up{panics}}}`,
		`{tree{sure{sure{leaf up{void}}}}}`,
		`{tree{sure{broken}} trees{leaf}}`,
		`{trees{all{leaf} b:all{void}}}`,
		`{tree{late{late{leaf never{leaf}}} never{void}}}`,
		`{trees{late{up{broken}}}}`,
		`{tree{sure{all{all{leaf}}}}}`,
		`{a:tree{leaf} b:trees{up{sure{sure{panics}}}}}`,
		`{echo}`, `{echo(v:"s")}`, `{echo(v:{a:[1,2.5,"x",true,E],b:{c:1}})}`,
		`{echo(in:{v:[1]})}`, `{echo(in:{side:TWO,many:[ONE,NAMED]})}`, `{echo(in:{many:LEVEL})}`)
	slices.Sort(documents)
	for _, document := range documents {
		compare(t, h, document, nil)
	}
	for _, row := range []struct{ document, variables string }{
		{`query($v:Whatever){echo(v:$v)}`, `{"v":{"a":[1,"x",null,true]}}`},
		{`query($v:Whatever){echo(v:$v)}`, `{}`},
		{`query($v:Whatever={d:1}){echo(v:$v)}`, `{}`},
		{`query($i:In){echo(in:$i)}`, `{"i":{"v":7,"many":["ONE","LEVEL"]}}`},
		{`query($i:In={side:NAMED}){echo(in:$i)}`, `{}`},
		{`query($s:[Sides],$w:Whatever){echo(in:{many:$s,v:$w})}`, `{"s":["NAMED"],"w":"v"}`},
	} {
		compare(t, h, row.document, variables(t, row.variables))
	}
	if !strings.Contains(log.String(), "s3cret") {
		t.Error("the log lacks the errors of the resolvers")
	}
}

func variables(t *testing.T, text string) (v map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// compare compares the data and the paths of errors with those of graphql-go. It ignores the order of fields, because
// graphql-go resolves them by name.
func compare(t *testing.T, h *chaingql.Handler, document string, variables map[string]any) {
	t.Helper()
	want := graphql.Do(graphql.Params{
		Schema: h.Schema(), RequestString: document, VariableValues: variables,
		Context: context.Background(),
	})
	text := query(h, document, variables)
	got := parse(t, text)
	var paths, wantPaths []string
	for _, e := range got.Errors {
		paths = append(paths, fmt.Sprint(e.Path))
	}
	for _, e := range want.Errors {
		wantPaths = append(wantPaths, fmt.Sprint(e.Path))
	}
	slices.Sort(paths)
	slices.Sort(wantPaths)
	if !sameJSON(t, string(got.Data), want.Data) || !slices.Equal(paths, wantPaths) ||
		strings.Contains(text, "s3cret") {
		w, _ := json.Marshal(want)
		t.Errorf("%s\n got %s\nwant %s", document, text, w)
	}
}

// Documents that differ only in literals share a compiled plan. A resolver must still receive the AST of its own
// document.
func TestResolverReceivesTheASTOfItsOwnDocument(t *testing.T) {
	own := &graphql.Field{Type: graphql.String, Args: graphql.FieldConfigArgument{"id": {Type: graphql.String}},
		Resolve: func(p graphql.ResolveParams) (any, error) {
			return p.Info.FieldASTs[0].Arguments[0].Value.GetValue(), nil
		}}
	h, _ := newQueryHandler(t, graphql.Fields{"own": own})
	for _, document := range []string{
		`{own(id:%q)}`,
		`{... on Query{own(id:%q)}}`,
		`{...{own(id:%q)}}`,
		`{...F} fragment F on Query{own(id:%q)}`,
		`{...{...F}} fragment F on Query{...{own(id:%q)}}`,
	} {
		for _, id := range []string{"a", "b", "a"} {
			asked := fmt.Sprintf(document, id)
			equal(t, asked, query(h, asked, nil), fmt.Sprintf(`{"data":{"own":%q}}`, id))
		}
	}
}

// An invalidUTF8 marshals to bytes that are not valid UTF-8.
type invalidUTF8 struct{}

func (invalidUTF8) MarshalJSON() ([]byte, error) { return []byte("{\"a\xff\": \"\xc3(\"}"), nil }

func TestHostJSONIsSentAsValidUTF8(t *testing.T) {
	h, _ := newQueryHandler(t, graphql.Fields{
		"message":    constField(anyScalar, json.RawMessage("[\"\xff\xfe\",\n\"\u00e9\"]")),
		"marshaler":  constField(anyScalar, invalidUTF8{}),
		"extensions": constField(graphql.Int, failure{"no", map[string]any{"x": invalidUTF8{}}}),
	})
	for document, want := range map[string]string{
		`{message}`:   `{"data":{"message":["\ufffd","é"]}}`,
		`{marshaler}`: `{"data":{"marshaler":{"a\ufffd":"\ufffd("}}}`,
		`{extensions}`: `{"data":{"extensions":null},"errors":[{"message":"no",` +
			`"locations":[{"line":1,"column":2}],"path":["extensions"],"extensions":{` +
			`"code":"INTERNAL_SERVER_ERROR","x":{"a\ufffd":"\ufffd("}}}]}`,
	} {
		equal(t, document, query(h, document, nil), want)
	}
}
