package plan

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/graphql-go/graphql"
)

// The tests in this file check each bound twice: exactly at the bound and one beyond it.

func TestEveryPrefixOfDocumentIsSyntaxError(t *testing.T) {
	c := testCache(t, defaultLimits)
	for _, text := range []string{
		`query Q($a:Float=-19.05e+17 $b:String="x"){a:echo(f:$a s:$b) b:echo(i:109 s:"" l:[0 19]) @skip(if:true)}`,
		"#z\n{int}", `{a:echo(id:"\ud83d\ude00")}`,
		`{a:echo(s:"")}`, `{a:echo(s:"\ud83d")}`, `{a:echo(s:"""x""" f:1.5e9)}`, `{a:echo(i:1)}`,
	} {
		for i := range len(text) {
			if _, errs := c.Prepare(text[:i], "", nil); len(errs) != 1 || errs[0].Code != CodeParse {
				t.Errorf("%q: got errors %v, want one syntax error", text[:i], errs)
			}
			if c.Find(&Bound{}, []byte(text[:i]), "", nil) {
				t.Errorf("Find reports true for the prefix %q, want false", text[:i])
			}
		}
	}
}

// Documents with the same fingerprint share a plan. The two texts of each pair differ only in literals or in white
// space.
func TestOnlyDocumentsWithSameFingerprintShareAPlan(t *testing.T) {
	many := func(n int, item string) string { return `{echo(l:[` + strings.Repeat(item+" ", n) + `])}` }
	for name, test := range map[string]struct {
		one, other string
		shared     bool
	}{
		"letters and digits": {`{azAZ_09:echo(i:9)}`, `{azAZ_09:echo(i:10)}`, true},
		"numbers":            {`{echo(f:-19.05e+79)}`, `{echo(f:-90.5e+1)}`, true},
		"repeated fields":    {`{int int echo(i:1)}`, `{int int echo(i:2)}`, true},
		"repeated arguments": {`{echo(i:1) echo(i:1)}`, `{echo(i:2) echo(i:2)}`, false},
		"a default":          {`query($a:Int=7){echo(i:$a f:1)}`, `query($a:Int=7){echo(i:$a f:2)}`, true},
		"a default of text": {`query($a:String="x"){echo(s:$a f:1)}`, `query($a:String="x"){echo(s:$a f:2)}`,
			true},
		"another default":             {`query($a:Int=7){echo(i:$a f:1)}`, `query($a:Int=8){echo(i:$a f:1)}`, false},
		"as many literals as allowed": {many(maxPlaceholders, "1"), many(maxPlaceholders, "2"), true},
		"too many literals":           {many(maxPlaceholders+1, "1"), many(maxPlaceholders+1, "2"), false},
		"no literals":                 {`{int}`, `{int }`, false},
		"DEL in a comment":            {"{echo(i:1)}#\x7f", "{echo(i:2)}#\x7f", false},
		"DEL in a string":             {"{echo(s:\"\x7f\" i:1)}", "{echo(s:\"\x7f\" i:2)}", false},
	} {
		longest := max(len(test.one), len(test.other))
		for limit, limits := range map[string]Limits{"default": defaultLimits, "off": {CacheBytes: 1 << 20},
			"exact": {CacheBytes: 1 << 20, Document: longest}} {
			c := testCache(t, limits)
			if shared := prepare(t, c, test.one, nil).plan == prepare(t, c, test.other,
				nil).plan; shared != test.shared {
				t.Errorf("%s, document limit %s: got shared plan %v, want %v", name, limit, shared, test.shared)
			}
		}
	}
	var s parameterizer
	if s.parameterize([]byte("{int}")) {
		t.Error("parameterize reports true for a text without literals, want false")
	}
	c := testCache(t, defaultLimits)
	prepare(t, c, "{echo(f:1.5)}", nil)
	prepare(t, c, "{echo(i:1)}", nil)
	for _, text := range []string{"{echo(f:1.)}", "{echo(f:1e)}", "{echo(f:1e+)}", "{echo(i:-)}", "{echo(i:01)}"} {
		if _, errs := c.Prepare(text, "", nil); errs == nil || errs[0].Code != CodeParse {
			t.Errorf("%s: got errors %v, want a syntax error", text, errs)
		}
	}
}

func TestCacheFillsUpToItsLimit(t *testing.T) {
	c := testCache(t, defaultLimits)
	prepare(t, c, "{a:int}", nil)
	each := c.bytes
	for _, n := range []int{1, 3} {
		c := testCache(t, defaultLimits)
		c.limits.CacheBytes = n * each
		for i := range n {
			prepare(t, c, fmt.Sprintf("{%c:int}", 'a'+i), nil)
		}
		if len(c.entries) != n || c.bytes != n*each {
			t.Errorf("got %d cached documents of %d bytes each, want %d", len(c.entries), each, n)
		}
		if prepare(t, c, "{d:int}", nil); len(c.entries) != n || c.bytes != n*each {
			t.Errorf("after one more document: got %d cached documents, want %d", len(c.entries), n)
		}
	}
}

// If an interface holds an integer from 0 to 255, the Go runtime allocates no memory for it.
func TestCountedMemoryOfIntegersAndMapsMatchesHeap(t *testing.T) {
	if !heapIsMeasurable(t) {
		return
	}
	for n, want := range map[int]int{-1: 8, 0: 0, 1: 0, 255: 0, 256: 8} {
		if got := sizeOf(n, false); got != want {
			t.Errorf("sizeOf(%d) = %d, want %d", n, got, want)
		}
	}
	for n := range 60 {
		maps := make([]map[string]any, 300)
		before := heap()
		for i := range maps {
			maps[i] = make(map[string]any, n)
			for j := range n {
				maps[i]["abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghi"[:j+1]] = true
			}
		}
		checkMemory(t, fmt.Sprintf("map of %d", n), len(maps), len(maps)*mapBytes(n), heap()-before)
		runtime.KeepAlive(maps)
	}
}

func TestNumbersAreAcceptedExactlyWithinTheirRange(t *testing.T) {
	c := testCache(t, defaultLimits)
	for number, want := range map[string]string{
		"2147483647": "int", "-2147483648": "int", "2147483648": "", "-2147483649": "",
		"2147483647.0": "int", "-2147483648.0": "int", "2147483647.5": "", "-2147483648.5": "",
		"9007199254740991.0": "id", "-9007199254740991.0": "id", "9007199254740992.0": "", "-9007199254740992.0": "",
	} {
		_, errs := c.Prepare("query($v:Int){echo(i:$v)}", "", map[string]any{"v": json.Number(number)})
		if (errs == nil) != (want == "int") {
			t.Errorf("%s as an Int: got errors %v, want valid: %v", number, errs, want == "int")
		}
		if !strings.HasSuffix(number, ".0") {
			continue
		}
		got := ask(c, "query($v:ID){echo(id:$v)}", map[string]any{"v": json.Number(number)})
		if id := strings.TrimSuffix(number, ".0"); strings.Contains(got, `\"`+id+`\"`) != (want != "") {
			t.Errorf("%s as an ID: got %s, want valid: %v", number, got, want != "")
		}
	}
	for v, want := range map[any]string{-2147483648.0: "-2147483648", 2147483647.0: "2147483647",
		2147483648.0: "", -2147483649.0: ""} {
		if got, err := appendLeaf(nil, &outputType{leaf: "Int"}, v); string(got) != want ||
			(err == nil) != (want != "") {
			t.Errorf("%v as an Int: got %q and error %v, want %q", v, got, err, want)
		}
	}
	for f, want := range map[float64]string{1e-6: "0.000001", 9.9e-7: "9.9e-07",
		1e21: "1e+21", 9e20: "900000000000000000000"} {
		if got, _ := appendFloat(nil, f); string(got) != want {
			t.Errorf("appendFloat(%v) = %s, want %s", f, got, want)
		}
	}
	for v, want := range map[any]string{true: "Int cannot represent bool true", 1.5: "Int cannot represent float64 1.5",
		uint8(1): "Int cannot represent uint8 1", complex(1, 1): "Int cannot represent a complex128"} {
		if got := errCannotRepresent("Int", v).Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestLongErrorMessagesAreTruncated(t *testing.T) {
	for _, c := range []struct{ message, want string }{
		{strings.Repeat("x", maxMessage), strings.Repeat("x", maxMessage)},
		{strings.Repeat("x", maxMessage+1), strings.Repeat("x", maxMessage-3) + "..."},
		{strings.Repeat("é", maxMessage), strings.Repeat("é", (maxMessage-3)/2) + "..."},
		{strings.Repeat("\x80", maxMessage+1), "..."},
	} {
		if got := shorten(c.message); got != c.want {
			t.Errorf("a message of %d bytes: got %d bytes, want %d", len(c.message), len(got), len(c.want))
		}
	}
}

// A field error is dropped if the field errors, including it and the note about dropped errors, would exceed the
// limit.
func TestFieldErrorIsDroppedOnlyIfItExceedsLimit(t *testing.T) {
	b := &Bound{cache: testCache(t, defaultLimits), op: &operation{}}
	one := func(before int) *run {
		r := &run{Bound: b, ctx: context.Background(), errs: make([]byte, before)}
		r.fail(&field{}, &Error{Message: "x", Code: CodeInput})
		return r
	}
	entry := len(one(1).errs) - 1
	room := maxFieldErrors - len(tooManyErrors) - entry
	if r := one(room); r.errorsTruncated || len(r.errs) != room+entry {
		t.Errorf("an error that fits was dropped: got %d bytes of errors", len(r.errs))
	}
	if r := one(room + 1); !r.errorsTruncated || len(r.errs) != room+1+len(tooManyErrors) {
		t.Errorf("an error that does not fit was kept: got %d bytes of errors", len(r.errs))
	}
}

func TestFieldMergeCheckStopsExactlyAtItsBudget(t *testing.T) {
	s := testSchema(t)
	for text, want := range map[string]int{
		"{int a:self{float} ...{string}}":                     0,
		"{int a:float a:int}":                                 1, // different fields
		"{int echo(i:1) echo(i:2)}":                           1, // different arguments
		"{node{...on Cat{x:name} ...on Dog{x:name x:id}}}":    1,
		"{pets{...on Cat{x:lives} ...on Dog{x:name}}}":        1, // different response shapes
		"{" + many(11, "a%d:self{x:int x:float}") + "}":       maxErrors,
		"{" + many(9, "a%d:self{x:int x:float}") + "}":        9,
		"{self{self{x:int}} self{self{x:float}}}":             1,
		"{...{...{x:float}} ...F} fragment F on Query{x:int}": 1,
	} {
		tree, parts := parsed(t, text)
		c := NewCache(s, defaultLimits, masked, nil)
		if errs := c.validate(tree, parts); errs != nil {
			t.Fatal(text, errs)
		}
		merge := func(steps int) *merger {
			m := newMerger(s)
			m.budget = steps
			if m.sameFields(tree.Operations[0].SelectionSet); m.errs == nil {
				m.sameShapes(tree.Operations[0].SelectionSet)
			}
			return m
		}
		whole := merge(1000)
		if len(whole.errs) != want {
			t.Errorf("%s: got %d conflicts, want %d: %v", text, len(whole.errs), want, whole.errs)
		}
		if m := merge(1000 - whole.budget); len(m.errs) != want || m.budget != 0 {
			t.Errorf("%s, with the exact budget: got %d conflicts, want %d", text, len(m.errs), want)
		}
		if m := merge(1000 - whole.budget - 1); want == 0 && m.budget >= 0 {
			t.Errorf("%s: merging did not exhaust a budget that is one step too small", text)
		}
	}
}

// The field limit allows each text with n parts, but not with n+1 parts.
func TestFieldLimitIsExactForEachCheck(t *testing.T) {
	nested := func(n int, inner string) string { return strings.Repeat("...{", n) + inner + strings.Repeat("}", n) }
	for name, test := range map[string]struct {
		fields, n int
		text      func(n int) string
	}{
		"fields of an operation": {5, 5, func(n int) string { return "{" + many(n, "a%d:int") + "}" }},
		"fields of a fragment": {5, 5, func(n int) string {
			return "{...F} fragment F on Query{" + many(n, "a%d:int") + "}"
		}},
		// Merging takes 40 steps: it visits each of 19 selections twice and compares 2 groups of one field.
		"steps of merging": {2, 17, func(n int) string { return "{" + nested(n, "int float") + "}" }},
		// Compiling takes 100 steps: it visits the node once and each of 33 selections for each of 3 types.
		"steps of compiling": {5, 32, func(n int) string { return "{node{" + nested(n, "id") + "}}" }},
	} {
		c := testCache(t, Limits{Fields: test.fields})
		if _, errs := c.Prepare(test.text(test.n), "", nil); errs != nil {
			t.Errorf("%s: got %v, want no error", name, errs)
		}
		if _, errs := c.Prepare(test.text(test.n+1), "", nil); errs == nil || errs[0].Limit != "Fields" {
			t.Errorf("%s, one part more: got %v, want the limit Fields", name, errs)
		}
	}
}

func TestFragmentChainsAreLimitedLikeParserNesting(t *testing.T) {
	chain := func(n int) string {
		text := "{...F1}"
		for i := 1; i < n; i++ {
			text += fmt.Sprintf("fragment F%d on Query{...F%d}", i, i+1)
		}
		return text + fmt.Sprintf("fragment F%d on Query{int}", n)
	}
	c := testCache(t, Limits{})
	if _, errs := c.Prepare(chain(maxNesting-1), "", nil); errs != nil {
		t.Errorf("got %v, want no error", errs)
	}
	if _, errs := c.Prepare(chain(maxNesting), "", nil); errs == nil || errs[0].Limit != "Depth" {
		t.Errorf("one fragment more: got %v, want the limit Depth", errs)
	}
}

func TestHostFieldsMayFillResponseUpToItsLimit(t *testing.T) {
	table, err := Extend(table(), Extension{Query: graphql.Fields{"words": {Type: graphql.NewList(graphql.String),
		Resolve: func(graphql.ResolveParams) (any, error) { return []string{"one", "two", "three"}, nil }}}})
	must(t, err)
	s, err := NewSchema(table)
	must(t, err)
	exceeded := 0
	for limit := 1; limit < 400; limit++ {
		got := ask(NewCache(s, Limits{Answer: limit}, masked, nil), "{words a:words}", nil)
		switch {
		case got == `{"data":{"words":["one","two","three"],"a":["one","two","three"]}}`:
		case strings.Contains(got, fmt.Sprintf(`"message":"The response exceeds the limit of %d bytes."`, limit)):
			exceeded = limit
		default:
			t.Errorf("limit of %d bytes: got %s, want data or the limit error", limit, got)
		}
	}
	if exceeded < 50 || exceeded > 350 {
		t.Errorf("the response exceeds limits of up to %d bytes, want 50 to 350", exceeded)
	}
}

// A roomFor is a Reservation that grants at most this number of bytes.
type roomFor int

func (most roomFor) Resize(n int) *Error {
	if n > int(most) {
		return &Error{Message: "no room", Code: CodeLimit}
	}
	return nil
}

func TestResponseWithReservationMayGrowUpToItsLimit(t *testing.T) {
	text := `{echo(s:"` + strings.Repeat("x", 3*unreservedBytes) + `")}`
	data := len(ask(testCache(t, Limits{}), text, nil)) - len(`{"data":}`)
	for limit, want := range map[int]string{data: `{"data":{"echo":`, data - 1: "The response exceeds the limit"} {
		b := prepare(t, testCache(t, Limits{Answer: limit}), text, nil)
		b.Reservation = roomFor(limit + limit/4) // append may take a quarter more
		if got := string(b.run(world{})); !strings.Contains(got, want) {
			t.Errorf("%d bytes of data with a limit of %d: got %.100s, want %s", data, limit, got, want)
		}
	}
}

func TestTextsAreCountedAsTheAllocatorRoundsThem(t *testing.T) {
	counted, held := 0, 0
	for n := 1; n < 64<<10; n += 1 + n/64 {
		counted += textBytes(n)
		held += cap(append([]byte(nil), make([]byte, n)...)) // append rounds up as the allocator does
	}
	if counted < held || counted > held*11/10 {
		t.Errorf("counted %d bytes for texts that take %d, want at most a tenth more", counted, held)
	}
}
