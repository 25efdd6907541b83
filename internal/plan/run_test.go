package plan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/graphql-go/graphql"
	"github.com/vektah/gqlparser/v2/ast"

	"github.com/chaingql/chaingql/internal/guard"
)

// resolverCache returns a cache for a schema with the given fields of Query.
func resolverCache(t testing.TB, mask Mask, fields ...Field) *Cache {
	t.Helper()
	s, err := NewSchema([]Type{
		{Kind: ast.Object, Name: "Query", Fields: append(fields,
			Field{Name: "ok", Type: "Int", Append: func(dst []byte, _ any) []byte {
				return append(dst, '1')
			}},
			Field{Name: "thing", Type: "Thing", Get: func(any) any { return 7 }})},
		{Kind: ast.Interface, Name: "Thing", Fields: []Field{{Name: "ok", Type: "Int"}}},
		{Kind: ast.Object, Name: "Other", Interfaces: []string{"Thing"}, Fields: []Field{{Name: "ok", Type: "Int"}},
			Is: func(v any) bool {
				return v == 8
			}},
		{Kind: ast.Enum, Name: "Color", Values: []Value{{Name: "RED"}}},
	})
	must(t, err)
	if mask == nil {
		mask = masked
	}
	return NewCache(s, Limits{}, mask, nil)
}

func resolverField(name, typ string, value any, err error) Field {
	return Field{Name: name, Type: typ, Resolve: func(context.Context, any, Args) (any, error) { return value, err }}
}

const (
	internal = `"extensions":{"code":"INTERNAL_SERVER_ERROR"}`
	secret   = "secret of the backend"
)

func TestPanicsBecomeMaskedFieldErrors(t *testing.T) {
	var received []string
	mask := func(_ context.Context, err error, _ *Report) *Error {
		received = append(received, err.Error()+guard.Stack(err).Value.String())
		return masked(context.Background(), err, nil)
	}
	c := resolverCache(t, mask,
		Field{Name: "resolve", Type: "Int", Resolve: func(context.Context, any, Args) (any, error) { panic(secret) }},
		Field{Name: "resolver", Type: "Int", Resolver: func(graphql.ResolveParams) (any, error) { panic(secret) }},
		Field{Name: "append", Type: "Int", Append: func(dst []byte, _ any) []byte {
			_ = append(dst, "12"...)
			panic(secret)
		}},
		Field{Name: "get", Type: "[Int]", Get: func(any) any { panic(secret) }},
		Field{Name: "list", Type: "[Int]", Get: func(any) any { return panicking{} }},
		Field{Name: "nothing", Type: "Int", Resolver: func(graphql.ResolveParams) (any, error) { panic(nil) }},
	)
	for name, want := range map[string]string{
		"resolve": `{"data":{"ok":1,"x":null},"errors":[{"message":"Internal server error",` +
			`"locations":[{"line":1,"column":5}],"path":["x"],`,
		"resolver": `{"data":{"ok":1,"x":null},`, "nothing": `{"data":{"ok":1,"x":null},`,
		// For speed, Append and Get are called without a recover of their own.
		"append": `{"data":null,"errors":[{"message":"Internal server error",`, "get": `{"data":null,"errors":`,
		"list": `{"data":null,"errors":`,
	} {
		received = nil
		got := ask(c, "{ok x:"+name+"}", nil)
		if !strings.HasPrefix(got, want) || strings.Contains(got, "secret") || strings.Count(got, internal) != 1 {
			t.Errorf("%s: got %s, want %s and one masked error", name, got, want)
		}
		if len(received) != 1 || name != "nothing" && !strings.Contains(received[0], secret) ||
			!strings.Contains(received[0], "run_test.go") {
			t.Errorf("%s: mask received %q, want the panic once with its stack", name, received)
		}
	}
}

func TestPanicInValidationRuleBecomesMaskedError(t *testing.T) {
	var received error
	c := resolverCache(t, func(_ context.Context, err error, _ *Report) *Error {
		received = err
		return masked(context.Background(), err, nil)
	})
	c.rules = append(c.rules, rule{"Panics", func(*validation) { panic(secret) }})
	if got := ask(c, "{ok}", nil); got != `{"errors":[{"message":"Internal server error",`+internal+`}]}` ||
		!strings.Contains(fmt.Sprint(received), secret) {
		t.Errorf("got %s, and mask received %v", got, received)
	}
	c = testCache(t, defaultLimits)
	const text = `query($v: Boolean!){int @skip(if: $v)}`
	prepare(t, c, text, map[string]any{"v": true})
	c.rules = append(c.rules, rule{"Panics", func(*validation) { panic(secret) }})
	// The document is cached, but the plan for these variables is not.
	if got := ask(c, text, map[string]any{"v": false}); !strings.Contains(got, internal) {
		t.Errorf("new plan of a cached document: got %s, want a masked error", got)
	}
}

type panicking struct{}

func (panicking) Len() int   { return 3 }
func (panicking) At(int) any { panic(secret) }

func TestInternalErrorsAreMasked(t *testing.T) {
	shared := &Error{Message: "for you", Code: "RATE_LIMITED", Details: map[string]string{"b": "2", "a": "\"1\""}}
	c := resolverCache(t, nil,
		resolverField("secret", "Int", nil, errors.New(secret)),
		resolverField("wrapped", "Int", nil, fmt.Errorf("%s: %w", secret, shared)),
		resolverField("plain", "Int", nil, shared),
		resolverField("nobody", "Int", nil, (*Error)(nil)),
		resolverField("both", "Int", 5, shared),
	)
	const shown = `{"message":"for you","locations":[{"line":1,"column":2}],"path":["%s"],` +
		`"extensions":{"code":"RATE_LIMITED","a":"\"1\"","b":"2"}}`
	for name, want := range map[string]string{
		"secret": `"Internal server error"`, "wrapped": fmt.Sprintf(shown, "wrapped"),
		"plain":  fmt.Sprintf(shown, "plain"),
		"nobody": `{"data":{"nobody":null},"errors":[{"message":"Internal server error",`,
		"both":   `{"data":{"both":null},"errors":[` + fmt.Sprintf(shown, "both"),
	} {
		if got := ask(c, "{"+name+"}", nil); !strings.Contains(got, want) || strings.Contains(got, secret) {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
	if shared.Path != nil || shared.Locations != nil {
		t.Error("the error that the resolver returned was modified")
	}
	shared = &Error{Message: "masked", Code: CodeInternal}
	c = resolverCache(t, func(context.Context, error, *Report) *Error {
		return shared
	}, resolverField("secret", "Int", nil, errors.New(secret)))
	if got := ask(c, "{secret}", nil); !strings.Contains(got, `"path":["secret"]`) || shared.Path != nil {
		t.Errorf("the error that mask returned was modified, or the path is missing: %s", got)
	}
}

func TestNoResolverIsCalledAfterContextIsCanceled(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	calls := 0
	var received error
	c := resolverCache(t, func(_ context.Context, err error, _ *Report) *Error {
		received = err
		return masked(ctx, err, nil)
	},
		Field{Name: "slow", Type: "Int", Resolve: func(context.Context, any, Args) (any, error) {
			calls++
			cancel(nil)
			return 1, nil
		}})
	b := prepare(t, c, "{a:slow b:slow c:slow ok}", nil)
	response, _ := b.Run(ctx, nil, nil)
	got := string(response)
	if calls != 1 || !strings.HasPrefix(got, `{"data":{"a":1,"b":null,"c":null,"ok":1},"errors":[`) ||
		!errors.Is(received, context.Canceled) {
		t.Errorf("got %d calls, error %v and %s, want 1 call and context.Canceled", calls, received, got)
	}
}

func TestValueThatTypeCannotRepresentIsFieldError(t *testing.T) {
	type text string
	word, number := "w", 3
	for _, test := range []struct {
		typ   string
		value any
		want  string // "" means an error
	}{
		{"Int", 1, "1"}, {"Int", int64(math.MaxInt32), "2147483647"}, {"Int", int64(math.MinInt32), "-2147483648"},
		{"Int", int64(math.MaxInt32) + 1, ""}, {"Int", int64(math.MinInt32) - 1, ""},
		{"Int", uint8(5), "5"}, {"Int", uint64(math.MaxUint64), ""}, {"Int", 5.0, "5"}, {"Int", 5.5, ""},
		{"Int", 2147483648.0, ""}, {"Int", math.NaN(), ""}, {"Int", "5", ""}, {"Int", true, ""},
		{"Int", &number, "3"},
		{"Float", 1, "1"}, {"Float", 0.1, "0.1"}, {"Float", 1e21, "1e+21"},
		{"Float", 1e20, "100000000000000000000"}, {"Float", 1e-7, "1e-07"}, {"Float", math.Inf(1), ""},
		{"Float", math.NaN(), ""}, {"Float", float32(0.5), "0.5"}, {"Float", int64(1) << 40, "1099511627776"},
		{"Float", "1", ""},
		{"String", "é\u2028\"\\\x01\t\r\n<", `"é\u2028\"\\\u0001\t\r\n<"`}, {"String", "\xff", `"\ufffd"`},
		{"String", text("named"), `"named"`}, {"String", &word, `"w"`}, {"String", 12, `"12"`},
		{"String", true, ""}, {"String", []byte("x"), ""}, {"String", (*string)(nil), "null"},
		{"ID", uint16(7), `"7"`}, {"ID", "i", `"i"`}, {"ID", 1.5, ""}, {"Boolean", true, "true"},
		{"Boolean", 1, ""}, {"Boolean", "true", ""},
		{"Color", "RED", `"RED"`}, {"Color", text("RED"), `"RED"`}, {"Color", "PINK", ""}, {"Color", 1, ""},
		{"[Int]", []int{1, 2}, "[1,2]"}, {"[Int]", [2]int8{1, 2}, "[1,2]"}, {"[Int]", []any{}, "[]"},
		{"[Int]", []int(nil), "null"}, {"[Int]", 1, ""}, {"[Int!]", []any{1, nil}, ""},
		{"[Int]", []any{1, nil, "x"}, "[1,null,null]"},
		{"Int", map[string]any(nil), "null"}, {"Thing", 9, ""}, {"Thing", 8, `{"__typename":"Other"}`},
	} {
		c := resolverCache(t, nil, resolverField("v", test.typ, test.value, nil))
		text := "{v}"
		if test.typ == "Thing" {
			text = "{v{__typename}}"
		}
		got := ask(c, text, nil)
		want := `{"data":{"v":` + test.want + "}"
		if test.want == "" {
			want = `{"data":{"v":null},"errors":[`
		}
		if !strings.HasPrefix(got, want) || !json.Valid([]byte(got)) || strings.Contains(got, "represent") {
			t.Errorf("value %v (%T) for type %s: got %s, want %s", test.value, test.value, test.typ, got, want)
		}
	}
}

// A fragment counts only once in a selection set, even if it is spread there several times.
func TestFieldErrorHasEachLocationOnce(t *testing.T) {
	got := ask(testCache(t, defaultLimits), "{...A ...A int(mode: 4)} fragment A on Query{int(mode: 4)}", nil)
	want := `"locations":[{"line":1,"column":46},{"line":1,"column":12}],"path":["int"]`
	if !strings.Contains(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
}

// As in graphql-js, the location of an invalid argument is that of its variable.
func TestInvalidArgumentIsLocatedAtVariable(t *testing.T) {
	c := testCache(t, defaultLimits)
	for text, column := range map[string]string{
		"query($v:Int){defaults(n:$v)}":                                  "26",
		"query($v:Int){maybe{defaults(i:1 n: $v)}}":                      "37",
		`query($v:Int){a:echo(s:"longer than before") b:defaults(n:$v)}`: "59",
		`query($v:Int){a:echo(s:"short") b:defaults(n:$v)}`:              "46",
		"query($v:String){defaults(o:{name:$v})}":                        "35",
	} {
		want := `"locations":[{"line":1,"column":` + column + `}],"path":[`
		if got := ask(c, text, map[string]any{"v": nil}); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

func TestFieldErrorsAreLimited(t *testing.T) {
	calls := 0
	bad := make([]any, 5000)
	for i := range bad {
		bad[i] = "x"
	}
	c := resolverCache(t, func(context.Context, error, *Report) *Error {
		calls++
		return masked(context.Background(), nil, nil)
	}, resolverField("many", "[Int]", bad, nil),
		resolverField("long", "Int", nil, &Error{Message: strings.Repeat("é", 1000), Code: "X"}))
	got := ask(c, "{many}", nil)
	_, errs, _ := strings.Cut(got, `,"errors":`)
	if len(errs) > 64<<10 || len(errs) < 60<<10 || !strings.HasSuffix(got,
		`{"message":"Further field errors are omitted.","extensions":{"code":"LIMIT_EXCEEDED"}}]}`) ||
		!json.Valid([]byte(got)) || calls > 1000 {
		t.Errorf("got %d bytes of errors after %d calls of mask: ...%s", len(errs), calls, got[len(got)-200:])
	}
	if got := ask(c, "{"+strings.Repeat("y", 70_000)+":many}", nil); !json.Valid([]byte(got)) ||
		strings.Count(got, "message") != 1 {
		t.Errorf("long response name: got %d bytes, want valid JSON with one error", len(got))
	}
	if got := ask(c, "{long}", nil); !strings.Contains(got, `{"message":"`+strings.Repeat("é", 148)+`...",`) {
		t.Errorf("long message: got %s, want it shortened", got)
	}
}

func TestVariableErrorsAreLimited(t *testing.T) {
	c := testCache(t, defaultLimits)
	given := map[string]any{}
	for i := range 30 {
		given[fmt.Sprintf("v%d", i)] = strings.Repeat("\"", 1000)
	}
	_, errs := c.Prepare("query("+many(30, "$v%d:Int")+"){echo(l:["+many(30, "$v%d")+"])}", "", given)
	if len(errs) != 10 || len(errs.AppendJSON(nil)) > 8<<10 {
		t.Errorf("got %d errors with %d bytes, want 10 errors with at most 8 KiB", len(errs), len(errs.AppendJSON(nil)))
	}
	for _, e := range errs {
		if len(e.Locations) != 1 || e.Code != CodeInput {
			t.Errorf("got %+v, want one location and code %s", e, CodeInput)
		}
	}
}

func TestOperationIsSelectedByName(t *testing.T) {
	c := testCache(t, defaultLimits)
	const two = "query A{int} query B{string} subscription C{ticks(n: 4)}"
	for _, test := range []struct{ text, operation, want string }{
		{two, "A", `query A int []`}, {two, "C", "subscription C ticks [4]"}, {two, "", "multiple operations"},
		{two, "D", `Unknown operation named "D"`}, {"{int}", "A", `Unknown operation named "A"`},
		{"{x: int(mode: 2)}", "", "query  int [2]"}, {"fragment A on Query{int}", "", "never used"},
		{"query A{int @skip(if: true)}", "A", "query A  []"},
	} {
		got := ""
		if b, errs := c.Prepare(test.text, test.operation, nil); errs != nil {
			got = errs.Error()
		} else {
			name, args, _ := b.Root()
			got = fmt.Sprint(b.Kind(), b.Name(), " ", name, " ", args)
			got = strings.Replace(got, string(b.Kind())+b.Name(), string(b.Kind())+" "+b.Name(), 1)
		}
		if !strings.Contains(strings.Join(strings.Fields(got), " "),
			strings.Join(strings.Fields(strings.ReplaceAll(test.want, "int []", "int [0]")), " ")) {
			t.Errorf("%s, operation %q: got %s, want %s", test.text, test.operation, got, test.want)
		}
	}
	b := prepare(t, c, `query($n: Int){node(n: $n){id}}`, map[string]any{"n": nil})
	if _, _, err := b.Root(); err == nil || err.Code != CodeInput || fmt.Sprint(err.Path) != "[node]" {
		t.Errorf("got %+v, want an input error at node", err)
	}
}

func TestEqualOperationsHaveEqualKeys(t *testing.T) {
	c := testCache(t, defaultLimits)
	const text = `query($a: String, $b: Filter){echo(s: $a, o: $b)}`
	keys := map[string]string{}
	for _, variables := range []string{`{}`, `{"a":null}`, `{"a":"-"}`, `{"a":"null"}`, `{"a":""}`, `{"b":null}`,
		`{"a":"x","b":{}}`, `{"a":"x","b":{"min":2}}`, `{"a":"x","b":{"min":2,"max":1}}`, `{"a":"x\" 1"}`} {
		for range 2 {
			var given map[string]any
			d := json.NewDecoder(strings.NewReader(variables))
			d.UseNumber()
			must(t, d.Decode(&given))
			k := prepare(t, c, text, given).Key()
			if other, ok := keys[k]; ok && other != variables {
				t.Errorf("the variables %s and %s have the same key %q", other, variables, k)
			}
			keys[k] = variables
		}
	}
	if len(keys) != 10 {
		t.Errorf("got %d keys, want 10", len(keys))
	}
	for text, same := range map[string]bool{
		`query($a:String){echo(s:$a)}`:                     true,
		`query($a:String){x:echo(s:$a) int}`:               true,
		`query($a:String){x:echo(s:$a) y:echo(s:$a)}`:      false, // another field uses the variable
		`query($a:String){int echo(s:$a)}`:                 false, // the field is not the first one
		`query($a:String){echo(ll:[],s:"x") y:echo(s:$a)}`: false,
	} {
		one, other := prepare(t, c, text, map[string]any{"a": "1"}), prepare(t, c, text, map[string]any{"a": "2"})
		place := slices.IndexFunc(c.schema.fields["Query"]["echo"].Args, func(a Arg) bool { return a.Name == "s" })
		if one.Key() == other.Key() || (one.Key(place) == other.Key(place)) != same {
			t.Errorf("%s: got keys %q and %q, want equal keys: %v", text, one.Key(place), other.Key(place), same)
		}
	}
	if prepare(t, c, "{int}", nil).Key() == prepare(t, c, "{ int}", nil).Key() {
		t.Error("two different texts have the same key")
	}
}
