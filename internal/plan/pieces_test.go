package plan

import (
	"context"
	"strings"
	"testing"

	"github.com/vektah/gqlparser/v2/ast"
)

// partNames are the names of the fields of an item, which are also their values.
var partNames = []string{"a", "b", "c", "d"}

// A preparedItem has all its fields as parts.
type preparedItem struct{}

func (preparedItem) Parts() (text string, ends []uint16) {
	ends = []uint16{0}
	for _, name := range partNames {
		text += `,"` + name + `":"` + strings.ToUpper(name) + `"`
		ends = append(ends, uint16(len(text)))
	}
	return text, ends
}

// Parts have upper-case values here, so that the response shows from where a value came.
func TestFieldsOfPreparedItemsAreCopiedFromParts(t *testing.T) {
	var fields []Field
	for i, name := range partNames {
		fields = append(fields, Field{Name: name, Type: "String", Part: i + 1,
			Append: func(dst []byte, _ any) []byte { return AppendString(dst, name) }})
	}
	items := func(item any) func(any) any { return func(any) any { return []any{item, item} } }
	s, err := NewSchema([]Type{
		{Kind: ast.Object, Name: "Query", Fields: []Field{
			{Name: "prepared", Type: "[Edge!]", Get: items(preparedItem{})},
			{Name: "plain", Type: "[Edge!]", Get: items(1)},
		}},
		{Kind: ast.Object, Name: "Edge", Fields: []Field{
			{Name: "node", Type: "Item!", Same: true}, fields[3],
			{Name: "other", Type: "String", Append: func(dst []byte, _ any) []byte {
				return append(dst, `"other"`...)
			}},
		}},
		{Kind: ast.Object, Name: "Item", Fields: fields[:3]},
	})
	must(t, err)
	c := NewCache(s, Limits{}, masked, nil)
	for selection, want := range map[string]string{
		`node{a b c}d`:                  `{"node":{"a":"A","b":"B","c":"C"},"d":"D"}`,
		`d node{c b a}`:                 `{"d":"D","node":{"c":"C","b":"B","a":"A"}}`,
		`node{x:a b}y:node{a z:b c}`:    `{"node":{"x":"a","b":"B"},"y":{"a":"A","z":"b","c":"C"}}`,
		`other d node{__typename a}`:    `{"other":"other","d":"D","node":{"__typename":"Item","a":"A"}}`,
		`__typename node{b c}other`:     `{"__typename":"Edge","node":{"b":"B","c":"C"},"other":"other"}`,
		`...{d}node{a...on Item{b}b}`:   `{"d":"D","node":{"a":"A","b":"B"}}`,
		`a:d b:node{a b}`:               `{"a":"d","b":{"a":"A","b":"B"}}`,
		`node{a @skip(if:true) b c}`:    `{"node":{"b":"B","c":"C"}}`,
		`node{a @skip(if:true)} d`:      `{"node":{},"d":"D"}`,
		`node{a}node{c}d`:               `{"node":{"a":"A","c":"C"},"d":"D"}`,
		`node{c a}d`:                    `{"node":{"c":"C","a":"A"},"d":"D"}`,
		`x:other y:other node{x:a y:b}`: `{"x":"other","y":"other","node":{"x":"a","y":"b"}}`,
	} {
		b, errs := c.Prepare(`{prepared{`+selection+`}plain{`+selection+`}}`, "", nil)
		if errs != nil {
			t.Fatalf("%s: %v", selection, errs)
		}
		plain := strings.NewReplacer(`"A"`, `"a"`, `"B"`, `"b"`, `"C"`, `"c"`, `"D"`, `"d"`).Replace(want)
		want := `{"data":{"prepared":[` + want + `,` + want + `],"plain":[` + plain + `,` + plain + `]}}`
		if got, _ := b.Run(context.Background(), nil, nil); string(got) != want {
			t.Errorf("%s: got  %s\nwant %s", selection, got, want)
		}
	}
}
