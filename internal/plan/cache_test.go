package plan

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
)

func prepare(t testing.TB, c *Cache, text string, variables map[string]any) *Bound {
	t.Helper()
	b, errs := c.Prepare(text, "", variables)
	if errs != nil {
		t.Fatalf("%v: %s", errs, text)
	}
	return b
}

func TestKnownTextsAreNotCompiledAgain(t *testing.T) {
	c := testCache(t, defaultLimits)
	const text = `query($on: Boolean!){int @skip(if: $on)}`
	on, off := map[string]any{"on": true}, map[string]any{"on": false}
	if prepare(t, c, "{int}", nil).plan != prepare(t, c, strings.Clone("{int}"), nil).plan {
		t.Error("compiled twice")
	}
	if first, second := prepare(t, c, text, on), prepare(t, c, text, on); first.plan != second.plan {
		t.Error("a variant was compiled twice")
	}
	if prepare(t, c, text, on).plan == prepare(t, c, text, off).plan {
		t.Error("two variants are one plan")
	}
	if a, b := ask(c, text, on), ask(c, text, off); a != `{"data":{}}` || b != `{"data":{"int":42}}` {
		t.Error(a, b)
	}
	if one, other := prepare(t, testCache(t, Limits{}), "{int}", nil), prepare(t, testCache(t, Limits{}), "{int}", nil); one.plan == other.plan {
		t.Error("two caches share a plan")
	}
}

func TestTheLeastRecentlyUsedGoes(t *testing.T) {
	limits := defaultLimits
	c := testCache(t, limits)
	prepare(t, c, "{a:int}", nil)
	each := c.bytes
	c.limits.CacheBytes = 3*each + each/2
	kept := prepare(t, c, "{a:int}", nil).plan
	b := prepare(t, c, "{b:int}", nil).plan
	prepare(t, c, "{c:int}", nil)
	prepare(t, c, "{a:int}", nil) // used again
	prepare(t, c, "{d:int}", nil) // for b
	if prepare(t, c, "{a:int}", nil).plan != kept {
		t.Error("what was used last is gone")
	}
	if prepare(t, c, "{b:int}", nil).plan == b {
		t.Error("what was used least is kept")
	}
	if len(c.entries) != 3 || c.bytes != 3*each {
		t.Errorf("%d entries of %d bytes, %d bytes", len(c.entries), each, c.bytes)
	}
}

func TestTheCacheStaysInItsBytes(t *testing.T) {
	limits := defaultLimits
	limits.CacheBytes = 200_000
	c := testCache(t, limits)
	check := func(what string) {
		t.Helper()
		sum, keys := 0, 0
		for el := c.recent.Front(); el != nil; el = el.Next() {
			e := el.Value.(*entry)
			sum += e.size
			for _, k := range append(e.aliases, e.key) {
				if keys++; c.entries[k] != el {
					t.Errorf("%s: an entry is not found by its key", what)
				}
			}
		}
		if sum != c.bytes || c.bytes > limits.CacheBytes || len(c.entries) != keys || c.bytes < limits.CacheBytes/2 {
			t.Errorf("%s: %d bytes in %d entries, counted as %d", what, sum, len(c.entries), c.bytes)
		}
	}
	for i := range 2000 {
		prepare(t, c, fmt.Sprintf("{a%d: int}", i), nil)
	}
	check("short documents")
	for i := range 4000 {
		prepare(t, c, fmt.Sprintf(`{a%d: echo(i: %d, s: "%x")}`, i/2, i, i), nil)
	}
	check("documents with literals")
	for i := range 100 {
		prepare(t, c, fmt.Sprintf("{a%d: int} #%s", i, strings.Repeat("x", 30_000)), nil)
	}
	check("long documents")
	var text strings.Builder
	text.WriteString("query(")
	for i := range 12 {
		fmt.Fprintf(&text, "$v%d: Boolean! ", i)
	}
	text.WriteString("){int ")
	for i := range 12 {
		fmt.Fprintf(&text, "f%d: int @include(if: $v%d) ", i, i)
	}
	text.WriteString("}")
	for i := range 3000 {
		variables := map[string]any{}
		for j := range 12 {
			variables[fmt.Sprintf("v%d", j)] = i>>j&1 == 1
		}
		prepare(t, c, text.String(), variables)
	}
	check("variants")

	huge := "{" + strings.Repeat("...{id:int string float} ", 200) + "} #" + strings.Repeat("y", 20_000)
	c.limits.CacheBytes = 20_000
	if first, second := ask(c, huge, nil), ask(c, huge, nil); first != second || c.find(key{text: huge}) != nil {
		t.Error("a document larger than the cache is kept, or not served")
	}
	c.limits.CacheBytes = 0
	prepare(t, c, "{new: int}", nil)
	if c.find(key{text: "{new: int}"}) != nil {
		t.Error("kept without a byte to keep it in")
	}
}

// realistic documents are of the kinds that clients send.
func realistic(g *rand.Rand, i int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "query Q%d($id: Int = %d, $o: Filter, $on: Int) {\n", i, i)
	for range 1 + g.IntN(3) {
		switch g.IntN(5) {
		case 0:
			fmt.Fprintf(&b, "  n%d: node(n: $id) { id name ... on Cat { lives kittens { id name mood(as: BLUE) } } peer { ...F } }\n", g.IntN(1000))
		case 1:
			fmt.Fprintf(&b, "  e%d: echo(o: {min: 1, any: [{color: RED, id: $id2}]}, l: [1, 2, $on], s: \"text\")\n", g.IntN(1000))
		case 2:
			fmt.Fprintf(&b, "  c%d: cat { id name lives weight peers(count: %d) { id name __typename } }\n", g.IntN(1000), i)
		case 3:
			fmt.Fprintf(&b, "  p%d: pets { __typename ... on Cat { lives } ... on Dog { bark(times: 3) owner { name } } }\n", g.IntN(1000))
		default:
			fmt.Fprintf(&b, "  s%d: self { int float string boolean color must identity plain old matrix echo(o: $o) }\n", g.IntN(1000))
		}
	}
	text := strings.ReplaceAll(b.String(), ", id: $id2", "") + "  node(n: $id) { ...F } echo(o: $o, i: $on)\n}\nfragment F on Node { id name }"
	return text
}

func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

func TestManyMayAskAtOnce(t *testing.T) {
	limits := defaultLimits
	limits.CacheBytes = 20_000
	c := testCache(t, limits)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range 300 {
				text := fmt.Sprintf("query($on: Boolean!){a%d: echo(i: %d) b: string @include(if: $on) node{id}}", i%40, w%2)
				b, errs := c.Prepare(text, "", map[string]any{"on": i%3 == 0})
				if errs != nil {
					t.Error(errs)
					return
				}
				want := fmt.Sprintf(`{"data":{"a%d":"[%d,null,null,null,null,null,null,null,null,null]"`, i%40, w%2)
				if got := string(b.Run(context.Background(), world{}, nil)); !strings.HasPrefix(got, want) || strings.Contains(got, "text") != (i%3 == 0) {
					t.Error(got)
				}
			}
		}()
	}
	wg.Wait()
}

// What a Bound found before it finds again, as long as the cache has it.
func TestWhatIsAskedForAgainIsUsedAndKeptInBounds(t *testing.T) {
	c := testCache(t, defaultLimits)
	prepare(t, c, "{a:int}", nil)
	each := c.bytes
	c.limits.CacheBytes = 3*each + each/2
	var b Bound
	find := func(text string) bool {
		if !c.Find(&b, []byte(text), "", nil) {
			return false
		}
		name := text[1:2]
		if got, want := string(b.Run(context.Background(), nil, nil)), `{"data":{"`+name+`":42}}`; got != want {
			t.Errorf("%s: %s", text, got)
		}
		return true
	}
	prepare(t, c, "{b:int}", nil)
	for _, other := range []string{"c", "d", "e", "f"} {
		for range 2 {
			if !find("{a:int}") {
				t.Fatal("what is asked for again and again went for what is not")
			}
		}
		prepare(t, c, "{"+other+":int}", nil)
		if !find("{" + other + ":int}") {
			t.Error("what is new is not found")
		}
	}
	find("{a:int}")
	for _, other := range []string{"g", "h", "i"} {
		prepare(t, c, "{"+other+":int}", nil)
	}
	if find("{a:int}") {
		t.Error("what is gone from the cache is found")
	}
	if prepare(t, c, "{a:int}", nil); !find("{a:int}") {
		t.Error("what came back is not found")
	}
}

// BenchmarkFind shows what it brings to remember what was found before.
func BenchmarkFind(b *testing.B) {
	c := testCache(b, defaultLimits)
	texts := make([][]byte, 2)
	for i := range texts {
		texts[i] = fmt.Appendf(nil, "query latest%d { int a:int b:int c:int d:int e:int f:int g:int h:int i:int }", i)
		prepare(b, c, string(texts[i]), nil)
	}
	for name, different := range map[string]int{"the same": 1, "in turn": 2} {
		b.Run(name, func(b *testing.B) {
			var bound Bound
			for i := 0; b.Loop(); i++ {
				c.Find(&bound, texts[i%different], "", nil)
			}
		})
	}
}
