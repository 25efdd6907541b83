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

// checkMemory checks that the counted memory and the memory on the heap differ by a factor of at most 1.5. The
// counted sizes are those of 64-bit machines. On other machines, the counted memory may be larger.
func checkMemory(t *testing.T, what string, n, counted, held int) {
	t.Helper()
	ratio := float64(counted) / float64(held)
	t.Logf("%-34s %d documents of %d bytes each, counted as %d: %.2f", what, n, held/n, counted/n, ratio)
	if ratio < 1/1.5 || ratio > 1.5 && strconv.IntSize == 64 {
		t.Errorf("%s: counted %d bytes, but the heap grew by %d", what, counted, held)
	}
}

// A test measures maxCounted copies, or fewer if these already take manyBytes. The rest of the heap is then negligible.
const maxCounted, manyBytes = 200, 4 << 20

// heapIsMeasurable reports whether a test can measure the heap. Under the race detector, it would take ten times as
// long.
func heapIsMeasurable(t *testing.T) bool {
	if raceEnabled {
		t.Log("not measured: the race detector changes memory use")
	}
	return !raceEnabled
}

func TestCountedMemoryOfCacheMatchesHeap(t *testing.T) {
	if !heapIsMeasurable(t) {
		return
	}
	s := hostedSchema(t)
	for name, text := range features {
		ways := []bool{false}
		if name == "realistic" || name == "small" || name == "parameters" {
			ways = append(ways, true)
		}
		for _, remembered := range ways {
			g := rand.New(rand.NewPCG(7, 8))
			limits := defaultLimits
			limits.CacheBytes = 1 << 30
			c := NewCache(s, limits, masked, nil)
			before, n := heap(), 0
			for ; n < maxCounted && c.bytes < manyBytes; n++ {
				text := text(g, n)
				if _, errs := c.Prepare(text, "", nil); errs != nil && errs[0].Code != CodeInput {
					t.Fatal(errs, text)
				}
				if remembered {
					c.Remember(Hash(text), text, true)
				}
			}
			if remembered {
				name += ", by hash"
			}
			checkMemory(t, name, n, c.bytes, heap()-before)
			runtime.KeepAlive(c)
		}
	}
}

func TestCountedMemoryOfConditionalPlansMatchesHeap(t *testing.T) {
	if !heapIsMeasurable(t) {
		return
	}
	s := hostedSchema(t)
	const head = "query Q%d($a:Boolean!$b:Boolean!$c:Boolean!$d:Boolean!$e:[Int]=[%s])" +
		"{x%[1]d:echo(l:$e) @skip(if:$a) " +
		"b:int @skip(if:$b) c:int @skip(if:$c) d:int @skip(if:$d) ...F} fragment F on Query{%[3]s"
	long := "L" + strings.Repeat("x", 1000)
	for name, rest := range map[string]string{"short": "int}", "long": "int}#" + strings.Repeat("x", 5000),
		"with control characters": "int}#" + strings.Repeat("\x01", 5000),
		"of a host": "hosted{size}" + strings.Repeat(" ..."+long, 25) + "} fragment " + long +
			" on Query{int}"} {
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
		checkMemory(t, name, 50*each, c.bytes, heap()-before)
		runtime.KeepAlive(c)
	}
}

func TestRejectedDocumentsAreNotKeptInMemory(t *testing.T) {
	if !heapIsMeasurable(t) {
		return
	}
	c := testCache(t, defaultLimits)
	before := heap()
	for i := range 1000 {
		for _, text := range []string{"{a%d", "{a%d}", "{a%d:int b:nope #%s}", "{a%d:echo(s:\"%s\") echo echo(i:1)}"} {
			text := fmt.Sprintf(text+"#%[2]s", i, strings.Repeat("x", 3000))
			if _, errs := c.Prepare(text, "", nil); errs == nil {
				t.Fatalf("%s: accepted, want errors", text)
			}
		}
	}
	if grown := heap() - before; grown > 100_000 || c.bytes != 0 {
		t.Errorf("rejected documents keep %d bytes on the heap, and the cache counts %d, want less", grown, c.bytes)
	}
	runtime.KeepAlive(c)
}

// A Bound keeps its document in memory even after the cache has evicted the document.
func TestCountedMemoryOfBoundsMatchesHeap(t *testing.T) {
	if !heapIsMeasurable(t) {
		return
	}
	s := hostedSchema(t)
	for name, text := range features {
		g := rand.New(rand.NewPCG(7, 8))
		c := NewCache(s, defaultLimits, masked, nil)
		c.limits.CacheBytes = 0
		bounds := make([]*Bound, 0, maxCounted)
		given := map[string]any{"r": nil, "n": nil}
		before, counted, n := heap(), 0, 0
		for ; n < maxCounted && counted < manyBytes; n++ {
			text := strings.NewReplacer("$r: Int!", "$r: Int", "$n:Int!", "$n:Int=1").Replace(text(g, n))
			doc, errs := c.load(text)
			if errs != nil {
				t.Fatal(errs, text)
			}
			doc.operations[0].kind = "subscription" // only subscriptions are measured
			b := &Bound{cache: c}
			if errs := b.bind(doc, doc.operations[0].name, valuesOf(given)); errs != nil {
				t.Fatal(errs, text)
			}
			h := b.MemoryUse()
			counted += h.Shared + h.Text + h.Variables
			bounds = append(bounds, b)
		}
		checkMemory(t, name, n, counted, heap()-before)
		runtime.KeepAlive(bounds)
		runtime.KeepAlive(c)
	}
}

// Documents with the same fingerprint share a plan, but each Bound keeps its own text and placeholders.
func TestCountedMemoryOfBoundsWithPlaceholdersMatchesHeap(t *testing.T) {
	if !heapIsMeasurable(t) {
		return
	}
	for name, text := range map[string]string{
		"few":  `{echo(s:"number %d")}`,
		"many": `{echo(l:[` + strings.Repeat("1000 ", 50) + `] s:"%d")}`,
		"text": `{echo(s:"%d` + strings.Repeat("x", 3000) + `" id:"` + strings.Repeat("x", 3000) + `")}`,
	} {
		c := testCache(t, defaultLimits)
		first := prepare(t, c, fmt.Sprintf(text, 0), nil)
		bounds := make([]*Bound, 0, maxCounted)
		before, counted := heap(), 0
		for i := range maxCounted {
			b := prepare(t, c, fmt.Sprintf(text, i+1), nil)
			if b.plan != first.plan {
				t.Fatalf("%s: the documents do not share a plan", name)
			}
			b.measureVariables(nil) // only subscriptions are measured
			h := b.MemoryUse()
			counted += boundBytes + h.Text + h.Variables
			bounds = append(bounds, b)
		}
		checkMemory(t, name, maxCounted, counted, heap()-before)
		runtime.KeepAlive(bounds)
		runtime.KeepAlive(c)
	}
}

// boundBytes is the memory of the Bound itself, which the owner of the Bound counts.
const boundBytes = 256

// values has, by name, the type of a variable $v, a field that uses the variable, and its value as JSON.
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

// ninety returns a JSON list of item and 90 more copies of it.
func ninety(item string) string { return "[" + strings.Repeat(item+",", 90) + item + "]" }

func TestCountedMemoryOfVariablesMatchesHeap(t *testing.T) {
	if !heapIsMeasurable(t) {
		return
	}
	c := NewCache(hostedSchema(t), defaultLimits, masked, nil)
	for name, v := range values {
		doc, errs := c.load("query($v:" + v.typ + "){" + v.use + "}")
		if errs != nil {
			t.Fatal(errs)
		}
		doc.operations[0].kind = "subscription" // only subscriptions are measured
		bounds := make([]*Bound, 0, maxCounted)
		before, counted := heap(), 0
		for range maxCounted {
			var value any
			d := json.NewDecoder(strings.NewReader(v.json))
			d.UseNumber()
			must(t, d.Decode(&value))
			b := &Bound{cache: c}
			if errs := b.bind(doc, "", func(string) (any, bool) { return value, true }); errs != nil {
				t.Fatal(name, errs)
			}
			h := b.MemoryUse()
			counted += boundBytes + h.Text + h.Variables
			bounds = append(bounds, b)
		}
		checkMemory(t, name, maxCounted, counted, heap()-before)
		runtime.KeepAlive(bounds)
	}
	runtime.KeepAlive(c)
}
