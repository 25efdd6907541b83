package plan

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// checkCounted wants no more than a factor of 1.5 between what is counted and what
// is held. The sizes are those of 64-bit machines: others hold less.
func checkCounted(t *testing.T, what string, n, counted, held int) {
	t.Helper()
	ratio := float64(counted) / float64(held)
	t.Logf("%-34s %d documents: %d bytes, counted %d: %.2f", what, n, held/n, counted/n, ratio)
	if ratio < 1/1.5 || ratio > 1.5 && strconv.IntSize == 64 {
		t.Errorf("%s: %d bytes are held, and %d are counted", what, held, counted)
	}
}

// mostCounted copies, or as many as take manyBytes, make what else the heap holds
// negligible.
const mostCounted, manyBytes = 200, 4 << 20

// withoutRace skips a test that measures the heap, on one goroutine: the detector makes it take ten times as long.
func withoutRace(t *testing.T) {
	if raceEnabled {
		t.Skip("measures memory, which the race detector needs for itself")
	}
}

func TestBytesOfTheCacheAreCounted(t *testing.T) {
	withoutRace(t)
	s := hostedSchema(t)
	for name, text := range features {
		ways := []bool{false}
		if name == "realistic" || name == "small" || name == "lifted" {
			ways = append(ways, true)
		}
		for _, remembered := range ways {
			g := rand.New(rand.NewPCG(7, 8))
			limits := defaultLimits
			limits.CacheBytes = 1 << 30
			c := NewCache(s, limits, masked, nil)
			before, n := heap(), 0
			for ; n < mostCounted && c.bytes < manyBytes; n++ {
				text := text(g, n)
				if _, errs := c.Prepare(text, "", nil); errs != nil && errs[0].Code != CodeInput {
					t.Fatal(errs, text)
				}
				if remembered {
					c.Remember(Hash(text), text)
				}
			}
			if remembered {
				name += ", by hash"
			}
			checkCounted(t, name, n, c.bytes, heap()-before)
			runtime.KeepAlive(c)
		}
	}
}

func TestBytesOfVariantsAreCounted(t *testing.T) {
	withoutRace(t)
	s := hostedSchema(t)
	const head = "query Q%d($a:Boolean!$b:Boolean!$c:Boolean!$d:Boolean!$e:[Int]=[%s]){x%[1]d:echo(l:$e) @skip(if:$a) " +
		"b:int @skip(if:$b) c:int @skip(if:$c) d:int @skip(if:$d) ...F} fragment F on Query{%[3]s"
	long := "L" + strings.Repeat("x", 1000)
	for name, rest := range map[string]string{"short": "int}", "long": "int}#" + strings.Repeat("x", 5000),
		"of controls": "int}#" + strings.Repeat("\x01", 5000),
		"of a host":   "hosted{size}" + strings.Repeat(" ..."+long, 25) + "} fragment " + long + " on Query{int}"} {
		limits := defaultLimits
		limits.CacheBytes = 1 << 30
		c := NewCache(s, limits, masked, nil)
		before := heap()
		const each = 16
		for i := range 50 {
			text := fmt.Sprintf(head, i, strings.Repeat("1 ", 90), rest)
			for j := range each {
				prepare(t, c, text, map[string]any{"a": j&1 > 0, "b": j&2 > 0, "c": j&4 > 0, "d": j&8 > 0})
			}
		}
		checkCounted(t, name, 50*each, c.bytes, heap()-before)
		runtime.KeepAlive(c)
	}
}

func TestRefusedDocumentsAreNotKept(t *testing.T) {
	c := testCache(t, defaultLimits)
	before := heap()
	for i := range 1000 {
		for _, text := range []string{"{a%d", "{a%d}", "{a%d:int b:nope #%s}", "{a%d:echo(s:\"%s\") echo echo(i:1)}"} {
			text := fmt.Sprintf(text+"#%[2]s", i, strings.Repeat("x", 3000))
			if _, errs := c.Prepare(text, "", nil); errs == nil {
				t.Fatal("accepted", text)
			}
		}
	}
	if grown := heap() - before; grown > 100_000 || c.bytes != 0 {
		t.Errorf("%d bytes are held, and %d are counted, for documents that were refused", grown, c.bytes)
	}
	runtime.KeepAlive(c)
}

// Holdings are what remains of a document when the cache has dropped it.
func TestBytesOfHoldingsAreCounted(t *testing.T) {
	withoutRace(t)
	s := hostedSchema(t)
	for name, text := range features {
		g := rand.New(rand.NewPCG(7, 8))
		c := NewCache(s, defaultLimits, masked, nil)
		c.limits.CacheBytes = 0
		bounds := make([]*Bound, 0, mostCounted)
		given := map[string]any{"r": nil, "n": nil}
		before, counted, n := heap(), 0, 0
		for ; n < mostCounted && counted < manyBytes; n++ {
			text := strings.NewReplacer("$r: Int!", "$r: Int", "$n:Int!", "$n:Int=1").Replace(text(g, n))
			doc, errs := c.document(text)
			if errs != nil {
				t.Fatal(errs, text)
			}
			doc.operations[0].kind = "subscription" // whose Bounds are kept
			b := &Bound{cache: c}
			if errs := b.bind(doc, doc.operations[0].name, func(name string) (any, bool) { v, ok := given[name]; return v, ok }); errs != nil {
				t.Fatal(errs, text)
			}
			h := b.Holding()
			counted += h.Shared + h.Text + h.Variables
			bounds = append(bounds, b)
		}
		checkCounted(t, name, n, counted, heap()-before)
		runtime.KeepAlive(bounds)
		runtime.KeepAlive(c)
	}
}

// Documents of one shape share a plan. Each keeps its text, for its literals.
func TestBytesOfDocumentsOfAShapeAreCounted(t *testing.T) {
	for name, text := range map[string]string{
		"few":  `{echo(s:"number %d")}`,
		"many": `{echo(l:[` + strings.Repeat("1000 ", 50) + `] s:"%d")}`,
		"text": `{echo(s:"%d` + strings.Repeat("x", 3000) + `" id:"` + strings.Repeat("x", 3000) + `")}`,
	} {
		c := testCache(t, defaultLimits)
		first := prepare(t, c, fmt.Sprintf(text, 0), nil)
		bounds := make([]*Bound, 0, mostCounted)
		before, counted := heap(), 0
		for i := range mostCounted {
			b := prepare(t, c, fmt.Sprintf(text, i+1), nil)
			if b.plan != first.plan {
				t.Fatal(name, "has a plan of its own")
			}
			b.weighVariables(nil) // as if it were a subscription
			h := b.Holding()
			counted += boundBytes + h.Text + h.Variables
			bounds = append(bounds, b)
		}
		checkCounted(t, name, mostCounted, counted, heap()-before)
		runtime.KeepAlive(bounds)
		runtime.KeepAlive(c)
	}
}

// boundBytes is the memory of a Bound alone, which its owner counts.
const boundBytes = 256

// values are values of variables, as JSON.
var values = map[string]struct{ typ, use, json string }{
	"integers":       {"[Int]", "echo(l:$v)", ninety("1000")},
	"small integers": {"[Int]", "echo(l:$v)", ninety("1")},
	"lists":          {"[[Int!]]", "echo(ll:$v)", ninety("[]")},
	"single items":   {"[[Int!]]", "echo(ll:$v)", ninety("1000")},
	"text":           {"String", "echo(s:$v)", `"` + strings.Repeat("x", 3000) + `"`},
	"objects":        {"[Filter!]", "echo(os:$v)", ninety("{}")},
	"nested objects": {"Filter", "echo(o:$v)", strings.Repeat(`{"min":1,"not":`, 15) + "{}" + strings.Repeat("}", 15)},
	"enums":          {"[Filter!]", "echo(os:$v)", ninety(`{"color":"RED","flags":[true]}`)},
	"host's text":    {"Anything", "hosted(a:$v){size}", `"` + strings.Repeat("x", 3000) + `"`},
	"host's numbers": {"Anything", "hosted(a:$v){size}", ninety("1.5")},
	"host's nulls":   {"Anything", "hosted(a:$v){size}", ninety("null")},
	"host's lists":   {"Anything", "hosted(a:$v){size}", ninety("[null]")},
	"host's objects": {"Anything", "hosted(a:$v){size}", ninety("{}")},
	"host's names":   {"Anything", "hosted(a:$v){size}", "{" + many(90, `"a_name_as_long_as_%d":true,`) + `"x":{}}`},
	"host's input":   {"Options", "hosted(o:$v){size}", `{"size":1000,"more":` + ninety(`{"a":"text"}`) + "}"},
	"host's texts":   {"Anything", "hosted(a:$v){size}", ninety(`"a short text"`)},
}

func ninety(item string) string { return "[" + strings.Repeat(item+",", 90) + item + "]" }

func TestBytesOfVariablesAreCounted(t *testing.T) {
	c := NewCache(hostedSchema(t), defaultLimits, masked, nil)
	for name, v := range values {
		doc, errs := c.document("query($v:" + v.typ + "){" + v.use + "}")
		if errs != nil {
			t.Fatal(errs)
		}
		doc.operations[0].kind = "subscription" // whose Bounds are kept
		bounds := make([]*Bound, 0, mostCounted)
		before, counted := heap(), 0
		for range mostCounted {
			var value any
			d := json.NewDecoder(strings.NewReader(v.json))
			d.UseNumber()
			must(t, d.Decode(&value))
			b := &Bound{cache: c}
			if errs := b.bind(doc, "", func(string) (any, bool) { return value, true }); errs != nil {
				t.Fatal(name, errs)
			}
			h := b.Holding()
			counted += boundBytes + h.Text + h.Variables
			bounds = append(bounds, b)
		}
		checkCounted(t, name, mostCounted, counted, heap()-before)
		runtime.KeepAlive(bounds)
	}
	runtime.KeepAlive(c)
}
