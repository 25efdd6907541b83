package plan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/graphql-go/graphql"
	"github.com/vektah/gqlparser/v2/ast"
)

// The tests' schema is small and has an example of each feature.

type (
	world  struct{} // the source of Query
	cat    struct{ n int }
	dog    struct{ n int }
	person struct{ n int }
)

// animal returns an animal or nil. It depends only on n, so that responses are deterministic.
func animal(n int) any {
	switch n % 4 {
	case 0:
		return &cat{n}
	case 1:
		return &dog{n}
	case 2:
		return &person{n}
	}
	return nil
}

func animals(n, count int) []any {
	list := []any{}
	for i := range min(count, 5) {
		list = append(list, animal(n+i))
	}
	return list
}

// numberOf returns the number of an animal.
func numberOf(src any) int {
	switch src := src.(type) {
	case *cat:
		return src.n
	case *dog:
		return src.n
	case *person:
		return src.n
	}
	return 0
}

func argInt(args Args, i, otherwise int) int {
	if n, ok := args[i].(int); ok {
		return n
	}
	return otherwise
}

// outcome returns value, returns an error, returns nil or panics, depending on mode.
func outcome(mode any, value any) (any, error) {
	switch mode {
	case 1:
		return nil, &Error{Message: "as told", Code: CodeInput}
	case 2:
		return nil, nil
	case 3:
		panic("secret panic")
	case 4:
		return nil, errors.New("secret fault")
	case 5:
		return int64(1) << 40, nil
	}
	return value, nil
}

func numbered(kind string) Field {
	return Field{Name: "id", Type: "ID!", Desc: "Its name for ever.", Append: func(dst []byte, src any) []byte {
		return AppendString(dst, kind+"/"+strconv.Itoa(numberOf(src)))
	}}
}

func nodeFields(kind string) []Field {
	return []Field{
		numbered(kind),
		{Name: "name", Type: "String", Append: func(dst []byte, src any) []byte {
			if numberOf(src)%5 == 4 {
				return append(dst, "null"...)
			}
			return AppendString(dst, fmt.Sprintf("%s \"%d\"\n\u2028é", kind, numberOf(src)))
		}},
		{Name: "peer", Type: "Node", Args: []Arg{{Name: "step", Type: "Int", Default: "1"}},
			Resolve: func(_ context.Context, src any, args Args) (any, error) {
				return animal(max(numberOf(src)+argInt(args, 0, 2), 0)), nil
			}},
		{Name: "peers", Type: "[Node!]", Args: []Arg{{Name: "count", Type: "Int"}},
			Resolve: func(_ context.Context, src any, args Args) (any, error) {
				return animals(numberOf(src), argInt(args, 0, 2)), nil
			}},
	}
}

func abstractFields() []Field {
	fields := nodeFields("")
	for i := range fields {
		fields[i].Append, fields[i].Resolve = nil, nil
	}
	return fields
}

func echo(_ context.Context, _ any, args Args) (any, error) {
	text, err := json.Marshal(args)
	return string(text), err
}

var echoArgs = []Arg{
	{Name: "i", Type: "Int"}, {Name: "f", Type: "Float"}, {Name: "b", Type: "Boolean"}, {Name: "s", Type: "String"},
	{Name: "id", Type: "ID"}, {Name: "c", Type: "Color"}, {Name: "l", Type: "[Int]"}, {Name: "ll", Type: "[[Int!]]"},
	{Name: "o", Type: "Filter"}, {Name: "os", Type: "[Filter!]"},
}

var defaultArgs = []Arg{
	{Name: "i", Type: "Int", Default: "7"}, {Name: "n", Type: "Int!", Default: "3", Desc: "Counts."},
	{Name: "c", Type: "Color", Default: "GREEN"}, {Name: "l", Type: "[Int!]", Default: "[1, 2]"},
	{Name: "s", Type: "String", Default: `"a \"b\""`},
	{Name: "o", Type: "Filter", Default: `{min: 4, any: [{color: BLUE}]}`},
}

func queryFields() []Field {
	mode := []Arg{{Name: "mode", Type: "Int", Default: "0"}}
	leaf := func(name, typ string, value any) Field {
		return Field{Name: name, Type: typ, Args: mode, Resolve: func(_ context.Context, _ any, args Args) (any,
			error) {
			return outcome(args[0], value)
		}}
	}
	return []Field{
		{Name: "node", Type: "Node", Args: []Arg{{Name: "n", Type: "Int!", Default: "0"}}, Desc: "One of them.",
			Resolve: func(_ context.Context, _ any, args Args) (any, error) {
				return animal(max(argInt(args, 0, 0), 0)), nil
			}},
		{Name: "nodes", Type: "[Node]", Args: []Arg{{Name: "n", Type: "Int"},
			{Name: "count", Type: "Int", Default: "3"}},
			Resolver: func(p graphql.ResolveParams) (any, error) {
				n, _ := p.Args["n"].(int)
				count, _ := p.Args["count"].(int)
				return animals(max(n, 0), count), nil
			}},
		{Name: "pets", Type: "[Pet]!", Get: func(any) any { return itemList{&cat{1}, &dog{2}, nil, &cat{4}} }},
		{Name: "cat", Type: "Cat", Get: func(any) any { return &cat{8} }},
		{Name: "named", Type: "Named", Resolver: func(graphql.ResolveParams) (any, error) { return &person{6}, nil }},
		{Name: "matrix", Type: "[[Int]]", Args: []Arg{{Name: "hole", Type: "Int"}}, Resolve: matrix},
		{Name: "strict", Type: "[[Int!]!]", Args: []Arg{{Name: "hole", Type: "Int"}}, Resolve: matrix},
		{Name: "stricter", Type: "[[Int!]!]!", Args: []Arg{{Name: "hole", Type: "Int"}}, Resolve: matrix},
		{Name: "echo", Type: "String", Args: echoArgs, Resolve: echo},
		{Name: "defaults", Type: "String!", Args: defaultArgs, Resolve: echo},
		{Name: "required", Type: "String", Args: []Arg{{Name: "i", Type: "Int!"}, {Name: "l", Type: "[Int!]!"}},
			Resolve: echo},
		leaf("int", "Int", 42), leaf("float", "Float", 2.5), leaf("boolean", "Boolean", true),
		leaf("string", "String", "text"), leaf("color", "Color", "BLUE"), leaf("must", "String!", "must"),
		leaf("identity", "ID", 17),
		{Name: "plain", Type: "Float!", Append: func(dst []byte, _ any) []byte { return append(dst, "0.5"...) }},
		{Name: "self", Type: "Query!", Get: func(src any) any { return src }},
		{Name: "maybe", Type: "Query", Args: mode, Resolve: func(_ context.Context, src any, args Args) (any, error) {
			return outcome(args[0], src)
		}},
		{Name: "old", Type: "Int", Deprecated: "Use \"int\".", Append: func(dst []byte, _ any) []byte {
			return append(dst, '1')
		}},
	}
}

func matrix(_ context.Context, _ any, args Args) (any, error) {
	hole := argInt(args, 0, -1)
	if hole == 9 {
		return []any{[]any{1}, nil}, nil
	}
	rows := make([]any, 3)
	for i := range rows {
		row := make([]any, 2)
		for j := range row {
			if n := i*2 + j; n != hole {
				row[j] = n
			}
		}
		rows[i] = row
	}
	return rows, nil
}

// table returns a new table for each call, so that a test may modify it.
func table() []Type {
	return []Type{
		{Kind: ast.Enum, Name: "Color", Desc: "What it looks like.",
			Values: []Value{{Name: "RED", Desc: "As fire."}, {Name: "GREEN"}, {Name: "BLUE"}}},
		{Kind: ast.Interface, Name: "Node", Desc: "Has an id.", Fields: abstractFields()},
		{Kind: ast.Interface, Name: "Named", Fields: []Field{{Name: "name", Type: "String"}}},
		{Kind: ast.Object, Name: "Query", Fields: queryFields()},
		{Kind: ast.Object, Name: "Cat", Interfaces: []string{"Node", "Named"}, Is: func(v any) bool {
			_, ok := v.(*cat)
			return ok
		},
			Fields: append(nodeFields("cat"),
				Field{Name: "lives", Type: "Int!", Append: func(dst []byte, src any) []byte {
					return strconv.AppendInt(dst, int64(numberOf(src)), 10)
				}},
				Field{Name: "mood", Type: "Color", Args: []Arg{{Name: "as", Type: "Color", Default: "RED"}},
					Resolve: func(_ context.Context, _ any, args Args) (any, error) { return args[0], nil }},
				Field{Name: "kittens", Type: "[Cat!]!", Get: func(src any) any {
					return itemList{&cat{numberOf(src) + 1}, &cat{numberOf(src) + 2}}
				}},
				Field{Name: "weight", Type: "Float", Append: func(dst []byte, _ any) []byte {
					return append(dst, "3.25"...)
				}},
			)},
		{Kind: ast.Object, Name: "Dog", Interfaces: []string{"Node", "Named"}, Is: func(v any) bool {
			_, ok := v.(*dog)
			return ok
		},
			Fields: append(nodeFields("dog"),
				Field{Name: "bark", Type: "String", Args: []Arg{{Name: "times", Type: "Int!", Default: "2"},
					{Name: "loud", Type: "Boolean"}}, Resolve: echo},
				Field{Name: "owner", Type: "Person", Get: func(src any) any { return &person{numberOf(src) + 1} }},
				Field{Name: "mood", Type: "Color!", Args: []Arg{{Name: "mode", Type: "Int"}},
					Resolve: func(_ context.Context, _ any, args Args) (any, error) {
						return outcome(args[0], "GREEN")
					}},
			)},
		{Kind: ast.Object, Name: "Person", Interfaces: []string{"Node", "Named"}, Is: func(v any) bool {
			_, ok := v.(*person)
			return ok
		},
			Fields: append(nodeFields("person"),
				Field{Name: "pets", Type: "[Pet!]", Get: func(src any) any {
					return itemList{&dog{numberOf(src)}, &cat{numberOf(src)}}
				}},
				Field{Name: "best", Type: "Pet", Resolver: func(p graphql.ResolveParams) (any, error) {
					return &cat{numberOf(p.Source)}, nil
				}},
				Field{Name: "friend", Type: "Person!", Args: []Arg{{Name: "mode", Type: "Int"}},
					Resolve: func(_ context.Context, src any, args Args) (any, error) {
						return outcome(args[0], &person{numberOf(src) + 4})
					}},
			)},
		{Kind: ast.Union, Name: "Pet", Desc: "Lives with people.", Members: []string{"Cat", "Dog"}},
		{Kind: ast.InputObject, Name: "Filter", Desc: "Chooses.", Fields: []Field{
			{Name: "id", Type: "ID"}, {Name: "color", Type: "Color", Default: "RED", Desc: "Of its fur."},
			{Name: "min", Type: "Int", Default: "1"},
			{Name: "max", Type: "Float"}, {Name: "flags", Type: "[Boolean!]"},
			{Name: "name", Type: "String!", Default: `"x"`},
			{Name: "not", Type: "Filter"}, {Name: "any", Type: "[Filter!]"},
			{Name: "must", Type: "Int", Deprecated: "Use min."},
		}},
		{Kind: ast.Object, Name: "Subscription", Fields: []Field{
			{Name: "ticks", Type: "Int", Args: []Arg{{Name: "n", Type: "Int", Default: "1"}},
				Append: func(dst []byte, src any) []byte {
					return strconv.AppendInt(dst, int64(src.(int)), 10)
				}},
			{Name: "tocks", Type: "Query", Get: func(any) any { return world{} }},
		}},
	}
}

// defaultLimits are the limits that the root package sets by default.
var defaultLimits = Limits{Document: 32 << 10, Tokens: 2000, Depth: 20, Fields: 1500, Aliases: 50, Directives: 32,
	FieldRepeats: 8, Operations: 8, Fragments: 32, Variables: 32, ListItems: 100, CacheBytes: 16 << 20}

func masked(context.Context, error, *Report) *Error {
	return &Error{Message: maskedMessage, Code: CodeInternal}
}

func testSchema(t testing.TB) *Schema {
	t.Helper()
	s, err := NewSchema(table())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func testCache(t testing.TB, limits Limits) *Cache {
	t.Helper()
	return NewCache(testSchema(t), limits, masked, nil)
}

// parsed returns the syntax tree of a text.
func parsed(t testing.TB, text string) (*ast.QueryDocument, parts) {
	t.Helper()
	tree, parts, err := parseDocument(text, Limits{}.withDefaults())
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return tree, parts
}

// ask runs a query and returns the response. If Prepare returns errors, ask returns these as JSON.
func ask(c *Cache, text string, variables map[string]any) string {
	b, errs := c.Prepare(text, "", variables)
	if errs != nil {
		return `{"errors":` + string(errs.AppendJSON(nil)) + `}`
	}
	return string(b.run(world{}))
}

// run executes the operation with root as its source and returns the response.
func (b *Bound) run(root any) []byte {
	response, _ := b.Run(context.Background(), root, nil)
	return response
}
