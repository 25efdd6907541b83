package plan

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/vektah/gqlparser/v2/ast"
)

// shop returns a cache for a schema in which the field price is read in batches.
func shop(t *testing.T) *Cache {
	t.Helper()
	s, err := NewSchema([]Type{
		{Kind: ast.Object, Name: "Query", Fields: []Field{
			{Name: "shop", Type: "Query", Get: func(src any) any { return src }},
			{Name: "ware", Type: "[Thing!]", Batch: "price", Args: []Arg{{Name: "name", Type: "String!"},
				{Name: "sizes", Type: "[Int!]"}},
				Resolve: func(context.Context, any, Args) (any, error) { return []any{8}, nil }},
		}},
		{Kind: ast.Interface, Name: "Thing", Fields: []Field{{Name: "price", Type: "Int"},
			{Name: "weight", Type: "Int"}}},
		{Kind: ast.Object, Name: "Ware", Interfaces: []string{"Thing"}, Is: func(any) bool { return true },
			Fields: []Field{{Name: "price", Type: "Int"}, {Name: "weight", Type: "Int"}}},
	})
	must(t, err)
	return NewCache(s, Limits{}, masked, nil)
}

func TestBatchYieldsArgumentsOfFieldsThatSelectTheBatchedField(t *testing.T) {
	for text, want := range map[string]string{
		`{ware(name:"a"){price}}`:                                                                           "a",
		`{ware(name:"a"){weight}}`:                                                                          "",
		`{ware(name:"a"){weight cost:price}}`:                                                               "a",
		`{ware(name:"a"){...on Ware{price}}}`:                                                               "a",
		`{shop{ware(name:"a"){price}b:ware(name:"b"){price}} ware(name:"c"){price}}`:                        "a b c",
		`{ware(name:"a"){...F}}fragment F on Thing{...G}fragment G on Ware{price}`:                          "a",
		`query($n:String!){ware(name:$n){price}}`:                                                           "given",
		`query($no:Boolean!){ware(name:"a") @skip(if:$no){price} b:ware(name:"b"){price @include(if:$no)}}`: "b",
		`query($no:Boolean!){ware(name:"a"){price @skip(if:$no)}}`:                                          "",
		`query($s:[Int!]){ware(name:"a",sizes:$s){price}b:ware(name:"b"){price}}`:                           "a b",
		// The arguments of the first ware are invalid. Batch skips it, because Run reports the error.
		`query($null:Int=1){ware(name:"a",sizes:[$null]){price}b:ware(name:"b"){price}}`: "b",
	} {
		b, errs := shop(t).Prepare(text, "", map[string]any{"n": "given", "no": true, "s": nil, "null": nil})
		if errs != nil {
			t.Fatalf("%s: %v", text, errs)
		}
		var names []string
		for args := range b.Batch() {
			names = append(names, fmt.Sprint(args[0]))
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s\n got %q\nwant %q", text, got, want)
		}
		if fields := len(b.plan.batch); b.Batches() != (fields > 1) {
			t.Errorf("%s: Batches() = %v for %d fields, want %v", text, b.Batches(), fields, fields > 1)
		}
	}
}

func TestBatchYieldsAllFieldsAfterEarlierLoopStopped(t *testing.T) {
	b, errs := shop(t).Prepare(`{ware(name:"a"){price}b:ware(name:"b"){price}}`, "", nil)
	if errs != nil {
		t.Fatal(errs)
	}
	for range b.Batch() {
		break
	}
	if n := len(slices.Collect(b.Batch())); n != 2 {
		t.Errorf("Batch yielded the arguments of %d fields after an earlier loop had stopped, want 2", n)
	}
}

func TestLimitHitIsCalledIfResponseIsTooLarge(t *testing.T) {
	s := testSchema(t)
	var got []string
	c := NewCache(s, Limits{Answer: 8}, masked, func(_ context.Context, limit string) { got = append(got, limit) })
	b, errs := c.Prepare(`{__schema{types{name}}}`, "", nil)
	if errs != nil {
		t.Fatal(errs)
	}
	b.run(nil)
	if !slices.Equal(got, []string{"ResponseBytes"}) {
		t.Errorf("limitHit received the limits %q, want only ResponseBytes", got)
	}
}
