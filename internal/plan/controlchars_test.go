package plan

import (
	"context"
	"testing"

	"github.com/vektah/gqlparser/v2/ast"
)

func TestControlCharactersAreAllowedInStringsAndComments(t *testing.T) {
	s, err := NewSchema([]Type{{Kind: ast.Object, Name: "Query", Fields: []Field{{
		Name: "echo", Type: "String", Args: []Arg{{Name: "s", Type: "String"}},
		Resolve: func(_ context.Context, _ any, args Args) (any, error) { return args[0], nil },
	}}}})
	must(t, err)
	c := NewCache(s, defaultLimits, masked, nil)
	for text, want := range map[string]string{
		"{echo(s:\"a\x07b\x00\")}":                  `{"data":{"echo":"a\u0007b\u0000"}}`,
		"{echo(s:\"\"\"\n a\x1f\n  \x01b\n\"\"\")}": `{"data":{"echo":"a\u001f\n \u0001b"}}`,
		"{echo # \x07\x00\n(s:\"x\")}":              `{"data":{"echo":"x"}}`,
		"query($s:String=\"\x02\"){echo(s:$s)}":     `{"data":{"echo":"\u0002"}}`,
		// These are the neighbors of the substitutes, and then the substitutes themselves.
		"{echo(s:\"\x07\uFDCF\uFDF0\")}": `{"data":{"echo":"\u0007` + "\uFDCF\uFDF0" + `"}}`,
		"{echo(s:\"\uFDD0\uFDEF\")}":     `{"data":{"echo":"` + "\uFDD0\uFDEF" + `"}}`,
		"{echo(s:\"\x07\") nope}": `{"errors":[{"message":"Cannot query field \"nope\" on type \"Query\".",` +
			`"locations":[{"line":1,"column":14}],"extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}]}`,
	} {
		if got := ask(c, text, nil); got != want {
			t.Errorf("%q:\n got %s\nwant %s", text, got, want)
		}
	}
	for _, text := range []string{"{echo\x07}", "\x00{echo}", "{echo(s:\x01\"a\")}"} {
		if _, errs := c.Prepare(text, "", nil); errs == nil || errs[0].Code != CodeParse {
			t.Errorf("%q: got errors %v, want a syntax error", text, errs)
		}
	}
}
