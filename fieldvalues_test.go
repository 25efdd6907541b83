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
	"github.com/graphql-go/graphql/language/ast"

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
	answering struct{}
	uuid      [2]byte
	queue     []int
)

func (l level) String() string                                 { return "level " + fmt.Sprint(int(l)) }
func (u uuid) String() string                                  { return fmt.Sprintf("%x", u[:]) }
func (answering) Resolve(p graphql.ResolveParams) (any, error) { return p.Info.FieldName + "!", nil }

// A queue has methods of its own, which are nobody else's.
func (q *queue) Len() int     { return len(*q) }
func (q *queue) At(i int) any { panic("s3cret") }

func of[T any](v T) *T { return &v }

// later is a thunk.
func later(v any, err error) func() (any, error) { return func() (any, error) { return v, err } }

// gives is a field whose resolver gives a value, or fails.
func gives(t graphql.Output, v any) *graphql.Field {
	return &graphql.Field{Type: t, Resolve: func(graphql.ResolveParams) (any, error) {
		if err, failed := v.(error); failed {
			return nil, err
		}
		if v == "panic" {
			panic("s3cret")
		}
		return v, nil
	}}
}

func must(t graphql.Type) *graphql.NonNull { return graphql.NewNonNull(t) }
func many(t graphql.Type) *graphql.List    { return graphql.NewList(t) }

// whatever is a scalar that reads and writes all that JSON can.
var whatever = graphql.NewScalar(graphql.ScalarConfig{Name: "Whatever",
	Serialize:    func(v any) any { return v },
	ParseValue:   func(v any) any { return v },
	ParseLiteral: literally,
})

func literally(v ast.Value) any {
	switch v := v.(type) {
	case *ast.ListValue:
		items := []any{}
		for _, item := range v.Values {
			items = append(items, literally(item))
		}
		return items
	case *ast.ObjectValue:
		object := map[string]any{}
		for _, f := range v.Fields {
			object[f.Name.Value] = literally(f.Value)
		}
		return object
	}
	return v.GetValue()
}

// valued has fields with all kinds of values.
func valued() (graphql.Fields, []graphql.Type) {
	spot := graphql.NewObject(graphql.ObjectConfig{Name: "Spot", Fields: graphql.Fields{
		"x": {Type: graphql.Int}, "label": {Type: graphql.String}, "other": {Type: graphql.String}, "missing": {Type: graphql.Int}}})
	shape := graphql.NewInterface(graphql.InterfaceConfig{Name: "Shape", Fields: graphql.Fields{"area": {Type: graphql.Int}}})
	isOf := func(name string, is func(v any) bool) *graphql.Object {
		return graphql.NewObject(graphql.ObjectConfig{Name: name, Interfaces: []*graphql.Interface{shape}, Fields: graphql.Fields{"area": gives(graphql.Int, len(name))},
			IsTypeOf: func(p graphql.IsTypeOfParams) bool {
				return p.Context != nil && p.Info.FieldName != "" && is(p.Value)
			}})
	}
	square := isOf("Square", func(v any) bool { return v == "square" })
	round := isOf("Round", func(v any) bool { return v == "round" }) // which nothing leads to
	sides := graphql.NewEnum(graphql.EnumConfig{Name: "Sides", Values: graphql.EnumValueConfigMap{
		"ONE": {Value: point{X: 1}}, "TWO": {Value: of(2)}, "NAMED": {}, "LEVEL": {Value: level(3)}}})
	var tree *graphql.Object
	tree = graphql.NewObject(graphql.ObjectConfig{Name: "Tree", Fields: graphql.FieldsThunk(func() graphql.Fields {
		up := func(v any) *graphql.Field { return gives(tree, v) }
		return graphql.Fields{"leaf": gives(graphql.Int, 1), "up": up(1), "void": gives(must(graphql.Int), nil), "broken": gives(must(graphql.Int), errors.New("s3cret")),
			"panics": gives(must(graphql.Int), "panic"), "sure": gives(must(tree), 1), "all": gives(many(must(tree)), []int{1, 2}), "late": up(later(1, nil)), "never": gives(tree, later(nil, nil))}
	})})
	fields := graphql.Fields{
		"tree": gives(tree, 1), "trees": gives(many(tree), []int{1, 2}),
		"square": gives(square, "square"), "notSquare": gives(square, "round"), "shapes": gives(many(shape), []any{"square", "round", nil}), "oddShape": gives(shape, "odd"),
		"either": gives(many(graphql.NewUnion(graphql.UnionConfig{Name: "Figure", Types: []*graphql.Object{square}})), []string{"square"}),
		"sides":  gives(many(sides), []any{point{X: 1}, "NAMED", level(3), nil}),
		"echo": {Type: whatever, Args: graphql.FieldConfigArgument{"v": {Type: whatever, DefaultValue: map[string]any{"a": []any{1, "x\u200b\"", true, 1e21}}}, "in": {Type: graphql.NewInputObject(graphql.InputObjectConfig{Name: "In",
			Fields: graphql.InputObjectConfigFieldMap{"v": {Type: whatever}, "many": {Type: many(sides)}, "side": {Type: sides, DefaultValue: point{X: 1}}}})}},
			Resolve: func(p graphql.ResolveParams) (any, error) {
				return fmt.Sprintf("%v %v", p.Args, p.Info.VariableValues), nil
			}},
	}
	for name, v := range map[string]any{"struct": point{1, "l", "o"}, "pointer": &point{2, "l", "o"}, "nilPointer": (*point)(nil), "map": map[string]any{"x": 3, "label": func() any { return "called" }, "other": later("o", nil)},
		"strings": map[string]string{"label": "s"}, "resolver": map[string]any(nil), "itself": &struct{ answering }{}} {
		fields["spot_"+name] = gives(spot, v)
	}
	for name, v := range map[string]any{"string": "a\x00<\u2028", "pointer": of("p"), "named": colour("red"), "level": level(3), "duration": time.Second, "int": 7, "uint": uint8(7), "shard": uint64(1 << 63), "bool": true, "float": 1.5, "error": later(fmt.Errorf("e"), nil), "nil": (*string)(nil), "uuid": uuid{1, 0xab}, "uuidPointer": &uuid{1}} {
		fields["string_"+name], fields["id_"+name] = gives(graphql.String, v), gives(graphql.ID, v)
	}
	for name, v := range map[string]any{"int8": int8(-8), "uint16": uint16(16), "pointer": of(5), "int64": int64(9), "float": 4.0, "nil": (*int)(nil), "max": int64(1<<31 - 1)} {
		fields["int_"+name], fields["float_"+name] = gives(graphql.Int, v), gives(graphql.Float, v)
	}
	for name, v := range map[string]any{"float32": float32(0.25), "small": 1e-9, "big": 1e22, "shard": uint64(1 << 63)} {
		fields["float_"+name] = gives(graphql.Float, v)
	}
	for name, v := range map[string]any{"plain": []int{1, 2}, "pointers": []*int{of(1), nil}, "array": [2]int{3, 4}, "pointer": &[]int{5}, "nil": []int(nil), "empty": []any{}, "thunks": []any{later(1, nil), 2, later(nil, nil)}, "late": later([]int{7}, nil), "mixed": []any{1, nil, of(3)}, "queue": &queue{1, 2}, "nilQueue": (*queue)(nil)} {
		fields["list_"+name] = gives(many(graphql.Int), v)
	}
	fields["list_nested"] = gives(many(many(graphql.Int)), [][]int{{1}, nil, {}})
	fields["list_sure"] = gives(many(must(graphql.Int)), []any{1, nil, 3})
	fields["list_notOne"] = gives(many(graphql.Int), 5)
	for name, v := range map[string]any{"nil": nil, "number": 1.5, "object": map[string]any{"b": []any{nil, true}}, "bytes": json.RawMessage(`{"a": 1}`), "void": (*int)(nil), "late": later("x", nil)} {
		fields["any_"+name] = gives(whatever, v)
	}
	silent := graphql.NewScalar(graphql.ScalarConfig{Name: "Silent", Serialize: func(any) any { return nil }})
	fields["any_silent"], fields["any_sure"] = gives(silent, 1), gives(must(silent), 1)
	named := graphql.NewInterface(graphql.InterfaceConfig{Name: "Placed", Fields: graphql.Fields{"place": {Type: graphql.String}},
		ResolveType: func(p graphql.ResolveTypeParams) *graphql.Object {
			return p.Info.Schema.Type("Place" + fmt.Sprint(len(p.Info.Path.AsArray()))).(*graphql.Object)
		}})
	types := []graphql.Type{round}
	for _, name := range []string{"Place1", "Place2"} { // as deep as the field is, not the item
		types = append(types, graphql.NewObject(graphql.ObjectConfig{Name: name, Interfaces: []*graphql.Interface{named}, Fields: graphql.Fields{"place": gives(graphql.String, name)}}))
	}
	fields["place_all"] = gives(many(named), []int{1, 2})
	return fields, types
}

// The oracle is graphql-go itself: its data, and the places of its errors.
func TestValuesOfAHostComeOutAsInGraphqlGo(t *testing.T) {
	fields, types := valued()
	h, log := newHandler(t, memchain.New(), chaingql.Options{QueryFields: fields, Types: types})
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
		`{tree{leaf up{leaf void leaf} up2:up{broken} p:up{panics}}}`, `{tree{sure{sure{leaf up{void}}}}}`, `{tree{sure{broken}} trees{leaf}}`, `{trees{all{leaf} b:all{void}}}`,
		`{tree{late{late{leaf never{leaf}}} never{void}}}`, `{trees{late{up{broken}}}}`, `{tree{sure{all{all{leaf}}}}}`, `{a:tree{leaf} b:trees{up{sure{sure{panics}}}}}`,
		`{echo}`, `{echo(v:"s")}`, `{echo(v:{a:[1,2.5,"x",true,E],b:{c:1}})}`, `{echo(in:{v:[1]})}`, `{echo(in:{side:TWO,many:[ONE,NAMED]})}`, `{echo(in:{many:LEVEL})}`)
	slices.Sort(documents)
	for _, document := range documents {
		compare(t, h, document, nil)
	}
	for _, row := range []struct{ document, variables string }{
		{`query($v:Whatever){echo(v:$v)}`, `{"v":{"a":[1,"x",null,true]}}`}, {`query($v:Whatever){echo(v:$v)}`, `{}`}, {`query($v:Whatever={d:1}){echo(v:$v)}`, `{}`},
		{`query($i:In){echo(in:$i)}`, `{"i":{"v":7,"many":["ONE","LEVEL"]}}`}, {`query($i:In={side:NAMED}){echo(in:$i)}`, `{}`}, {`query($s:[Sides],$w:Whatever){echo(in:{many:$s,v:$w})}`, `{"s":["NAMED"],"w":"v"}`},
	} {
		compare(t, h, row.document, variables(t, row.variables))
	}
	if !strings.Contains(log.String(), "s3cret") {
		t.Error("the log knows of no failure")
	}
}

func variables(t *testing.T, text string) (v map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// compare compares the data and the places of errors. Those of graphql-go stand
// in their answer's order of fields, which is by name.
func compare(t *testing.T, h *chaingql.Handler, document string, variables map[string]any) {
	t.Helper()
	want := graphql.Do(graphql.Params{Schema: h.Schema(), RequestString: document, VariableValues: variables, Context: context.Background()})
	text := query(h, document, variables)
	got := parse(t, text)
	var places, wantPlaces []string
	for _, e := range got.Errors {
		places = append(places, fmt.Sprint(e.Path))
	}
	for _, e := range want.Errors {
		wantPlaces = append(wantPlaces, fmt.Sprint(e.Path))
	}
	slices.Sort(places)
	slices.Sort(wantPlaces)
	if !sameJSON(t, string(got.Data), want.Data) || !slices.Equal(places, wantPlaces) || strings.Contains(text, "s3cret") {
		w, _ := json.Marshal(want)
		t.Errorf("%s\n got %s\nwant %s", document, text, w)
	}
}

// Documents that differ in literals alone share what was compiled, but not where
// a resolver may look at the document.
func TestResolverSeesTheLiteralsOfItsOwnDocument(t *testing.T) {
	own := &graphql.Field{Type: graphql.String, Args: graphql.FieldConfigArgument{"id": {Type: graphql.String}},
		Resolve: func(p graphql.ResolveParams) (any, error) {
			return p.Info.FieldASTs[0].Arguments[0].Value.GetValue(), nil
		}}
	h, _ := newHandler(t, memchain.New(), chaingql.Options{QueryFields: graphql.Fields{"own": own}})
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

// unread writes itself as bytes that are not all UTF-8.
type unread struct{}

func (unread) MarshalJSON() ([]byte, error) { return []byte("{\"a\xff\": \"\xc3(\"}"), nil }

func TestWhatAHostWritesItselfGoesOutAsUTF8(t *testing.T) {
	h, _ := newHandler(t, memchain.New(), chaingql.Options{QueryFields: graphql.Fields{
		"message": gives(whatever, json.RawMessage("[\"\xff\xfe\",\n\"\u00e9\"]")), "marshaler": gives(whatever, unread{}),
		"extensions": gives(graphql.Int, failure{"no", map[string]any{"x": unread{}}}),
	}})
	for document, want := range map[string]string{
		`{message}`:    `{"data":{"message":["\ufffd","é"]}}`,
		`{marshaler}`:  `{"data":{"marshaler":{"a\ufffd":"\ufffd("}}}`,
		`{extensions}`: `{"data":{"extensions":null},"errors":[{"message":"no","locations":[{"line":1,"column":2}],"path":["extensions"],"extensions":{"code":"INTERNAL_SERVER_ERROR","x":{"a\ufffd":"\ufffd("}}}]}`,
	} {
		equal(t, document, query(h, document, nil), want)
	}
}
