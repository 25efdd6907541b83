package plan

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/vektah/gqlparser/v2/ast"
)

// priced returns a schema with a field blocks that costs one call and n blocks.
func priced(t *testing.T) *Schema {
	t.Helper()
	s, err := NewSchema([]Type{{Kind: ast.Object, Name: "Query", Fields: []Field{{
		Name: "blocks", Type: "Int", Args: []Arg{{Name: "n", Type: "Int"}},
		Cost: func(args Args) Cost {
			if args == nil {
				return Cost{Calls: 1, Blocks: 50}
			}
			return Cost{Calls: 1, Blocks: argInt(args, 0, 0)}
		},
		Resolve: func(context.Context, any, Args) (any, error) { return 1, nil }}}}})
	must(t, err)
	return s
}

func TestCostsUpToTheirLimitsAreAccepted(t *testing.T) {
	s := priced(t)
	for _, test := range []struct {
		calls, blocks int // limits; 0 means no limit
		text, limit   string
	}{
		{2, 20, "{blocks(n:10) b:blocks(n:10)}", ""},
		{2, 20, "query($n:Int=10){blocks(n:$n) b:blocks(n:$n)}", ""},
		{2, 19, "{blocks(n:10) b:blocks(n:10)}", "QueryBlocks"},
		{2, 19, "query($n:Int=10){blocks(n:$n) b:blocks(n:$n)}", "QueryBlocks"},
		{1, 20, "{blocks(n:10) b:blocks(n:10)}", "BackendCalls"},
		{1, 19, "{blocks(n:10) b:blocks(n:10)}", "BackendCalls"},
		{1, 0, "{blocks(n:10) b:blocks(n:10)}", "BackendCalls"},
		{0, 19, "{blocks(n:10) b:blocks(n:10)}", "QueryBlocks"},
		{0, 20, "{blocks(n:10) b:blocks(n:10)}", ""},
		{2, 0, "{blocks(n:10) b:blocks(n:10)}", ""},
		{0, 0, "{blocks(n:1000) b:blocks(n:1000)}", ""},
	} {
		_, errs := NewCache(s, Limits{Calls: test.calls, Blocks: test.blocks}, masked, nil).Prepare(test.text, "", nil)
		got := ""
		if errs != nil {
			got = errs[0].Limit
		}
		if got != test.limit {
			t.Errorf("limits of %d calls and %d blocks: %s exceeds the limit %q, want %q",
				test.calls, test.blocks, test.text, got, test.limit)
		}
		cost := map[string]string{"BackendCalls": "2 calls", "QueryBlocks": "20 blocks"}[test.limit]
		if errs != nil && !strings.Contains(errs[0].Message, cost) {
			t.Errorf("%s: got errors %v, want one with a cost of %s", test.text, errs, cost)
		}
	}
}

func TestKeyIgnoresUnknownArgumentIndexes(t *testing.T) {
	c := testCache(t, defaultLimits)
	key := func(n int, places ...int) string {
		b, errs := c.Prepare("subscription($n:Int){ticks(n:$n)}", "", map[string]any{"n": json.Number(strconv.Itoa(n))})
		if errs != nil {
			t.Fatal(errs)
		}
		return b.Key(places...)
	}
	if key(1, 1) == key(2, 1) || key(1, 0) != key(2, 0) || key(1, 0, 1) != key(2, 0, 1) {
		t.Error("Key does not leave out exactly the arguments whose indexes it receives")
	}
}

func TestBlockStringLosesOnlyCommonIndentation(t *testing.T) {
	c := testCache(t, defaultLimits)
	for text, want := range map[string]string{
		"x\ny\n    z":         `x\ny\n    z`,
		"x\n    y\nz\n  w":    `x\n    y\nz\n  w`,
		"x\n    y\n  z":       `x\n  y\nz`,
		"  x\n  y\n\n  z\n  ": `  x\ny\n\nz`,
	} {
		got := ask(c, "{echo(s:\"\"\""+text+"\"\"\")}", nil)
		if !strings.Contains(got, strings.ReplaceAll(want, `\n`, `\\n`)) {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
	got := ask(c, `{echo(s:"\u0041"\ud83d)}`, nil) // the surrogate is outside the string
	if !strings.Contains(got, `Unexpected character: \"\\\"`) {
		t.Errorf("got %s, want a syntax error", got)
	}
}
