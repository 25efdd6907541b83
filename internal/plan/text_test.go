package plan

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// A string variable may be a part of the request's buffer. Only a field with ReadsText sees it; for all others, and in
// messages and keys, it is like any other string.
func TestTextVariableIsAStringUnlessTheFieldReadsText(t *testing.T) {
	var kept []any
	keep := func(_ context.Context, _ any, args Args) (any, error) {
		kept = append(kept, args[0])
		return fmt.Sprintf("%T", args[0]), nil
	}
	c := resolverCache(t, nil,
		Field{Name: "reads", Type: "String", Resolve: keep, ReadsText: true, Args: []Arg{{Name: "s", Type: "String"}}},
		Field{Name: "string", Type: "String", Resolve: keep, Args: []Arg{{Name: "s", Type: "String"}}},
		Field{Name: "id", Type: "String", Resolve: keep, Args: []Arg{{Name: "s", Type: "ID"}}},
		Field{Name: "color", Type: "String", Resolve: keep, Args: []Arg{{Name: "s", Type: "Color"}}},
		Field{Name: "list", Type: "String", Resolve: keep, Args: []Arg{{Name: "s", Type: "[String]"}}})
	c = NewCache(c.schema, defaultLimits, masked, nil) // the other one keeps no document
	const text = `query($s: String, $i: ID, $c: Color, $l: [String]) {
		reads(s: $s) string(s: $s) id(s: $i) color(s: $c) list(s: $l) nested: list(s: [$s])
	}`
	if _, errs := c.Prepare(text, "", nil); errs != nil {
		t.Fatal(errs)
	}
	equal := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s:\n got %s\nwant %s", what, got, want)
		}
	}
	var b Bound
	buffer := Text("RED")
	find := func() bool {
		var variables []Variable
		for _, name := range []string{"s", "i", "c", "l"} {
			variables = append(variables, Variable{[]byte(name), &buffer})
		}
		return c.Find(&b, []byte(text), "", variables)
	}
	if !find() {
		t.Fatal("the document was not found")
	}
	key, identity := b.Key(), string(b.Identity(nil))
	response, _ := b.Run(t.Context(), nil, nil)
	equal("response", string(response), `{"data":{"reads":"*plan.Text","string":"string","id":"string",`+
		`"color":"string","list":"[]interface {}","nested":"[]interface {}"}}`)
	given := map[string]any{"s": "RED", "i": "RED", "c": "RED", "l": "RED"}
	other, errs := c.Prepare(text, "", given)
	if errs != nil {
		t.Fatal(errs)
	}
	equal("key", key, other.Key())
	equal("identity", identity, string(other.Identity(nil)))
	copy(buffer, "BAD") // the buffer is used for the next request
	equal("kept arguments", fmt.Sprint(kept[1:]), "[RED RED RED [RED] [RED]]")
	if find() {
		t.Error("a value that the enum does not have was accepted")
	}
}

// A request is identified outside of the limits on large requests that are prepared at the same time, so this must be
// cheap. Escapes of HTML would make the text six times as long.
func TestIdentityOfALongTextIsNotMuchLonger(t *testing.T) {
	c := resolverCache(t, nil,
		Field{Name: "string", Type: "String", Args: []Arg{{Name: "s", Type: "String"}}},
		Field{Name: "list", Type: "String", Args: []Arg{{Name: "s", Type: "[String]"}}})
	long := strings.Repeat("<", 100_000)
	text := Text(long)
	for name, v := range map[string]any{"string": long, "text": &text, "list": []any{long}} {
		document := `query($v: String){string(s: $v)}`
		if name == "list" {
			document = `query($v: [String]){list(s: $v)}`
		}
		b, errs := c.Prepare(document, "", map[string]any{"v": v})
		if errs != nil {
			t.Fatal(errs)
		}
		if n := len(b.Identity(nil)); n < len(long) || n > len(long)+100 {
			t.Errorf("%s: a text of %d bytes has an identity of %d bytes", name, len(long), n)
		}
	}
}
