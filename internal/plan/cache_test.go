package plan

import (
	"encoding/json"
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

func TestCachedDocumentsAreNotCompiledAgain(t *testing.T) {
	c := testCache(t, defaultLimits)
	const text = `query($on: Boolean!){int @skip(if: $on)}`
	on, off := map[string]any{"on": true}, map[string]any{"on": false}
	if prepare(t, c, "{int}", nil).plan != prepare(t, c, strings.Clone("{int}"), nil).plan {
		t.Error("a cached document was compiled again")
	}
	if first, second := prepare(t, c, text, on), prepare(t, c, text, on); first.plan != second.plan {
		t.Error("a cached plan for the same variables was compiled again")
	}
	if prepare(t, c, text, on).plan == prepare(t, c, text, off).plan {
		t.Error("different values of a variable in @skip share a plan")
	}
	if a, b := ask(c, text, on), ask(c, text, off); a != `{"data":{}}` || b != `{"data":{"int":42}}` {
		t.Errorf("got %s with @skip(if: true) and %s with @skip(if: false)", a, b)
	}
	if one, other := prepare(t, testCache(t, Limits{}), "{int}", nil), prepare(t, testCache(t, Limits{}), "{int}",
		nil); one.plan == other.plan {
		t.Error("two caches share a plan")
	}
}

// A document may have eight operations of 1,500 fields, but a request runs only one of them.
func TestOnlyOperationsThatRunAreCompiled(t *testing.T) {
	c := testCache(t, defaultLimits)
	const text = "query A{int} query B{b:int} query C{c:int}"
	run := func(operation string) (*Plan, int) {
		t.Helper()
		b, errs := c.Prepare(text, operation, nil)
		if errs != nil {
			t.Fatal(errs)
		}
		return b.plan, c.count()
	}
	a, cached := run("A")
	if cached != 2 {
		t.Errorf("after one operation, %d entries are cached, want the document and a plan", cached)
	}
	if again, cached := run("A"); again != a || cached != 2 {
		t.Errorf("the operation was compiled again; %d entries are cached", cached)
	}
	if b, cached := run("B"); b == a || cached != 3 {
		t.Errorf("after two operations, %d entries are cached, want the document and two plans", cached)
	}
}

func TestLeastRecentlyUsedDocumentIsEvicted(t *testing.T) {
	limits := defaultLimits
	c := testCache(t, limits)
	prepare(t, c, "{a:int}", nil)
	each := c.bytes
	c.limits.CacheBytes = 3*each + each/2
	kept := prepare(t, c, "{a:int}", nil).plan
	b := prepare(t, c, "{b:int}", nil).plan
	prepare(t, c, "{c:int}", nil)
	prepare(t, c, "{a:int}", nil) // now b is the least recently used
	prepare(t, c, "{d:int}", nil) // evicts b
	if prepare(t, c, "{a:int}", nil).plan != kept {
		t.Error("a recently used document was evicted")
	}
	if prepare(t, c, "{b:int}", nil).plan == b {
		t.Error("the least recently used document is still cached")
	}
	if len(c.entries) != 3 || c.bytes != 3*each {
		t.Errorf("got %d entries and %d bytes, want 3 and %d", len(c.entries), c.bytes, 3*each)
	}
}

func TestCacheStaysWithinCacheBytes(t *testing.T) {
	limits := defaultLimits
	limits.CacheBytes = 200_000
	c := testCache(t, limits)
	check := func(what string) {
		t.Helper()
		sum, keys, documents := 0, 0, map[*document]bool{}
		found, foundDocuments := 0, map[*document]bool{}
		for el := range c.lists() {
			e := el.Value.(*entry)
			sum += e.size
			if e.doc != nil && !documents[e.doc] {
				documents[e.doc] = true
				sum += e.doc.bytes
			}
			if e.found && e.doc != nil {
				if found += e.size; !foundDocuments[e.doc] {
					foundDocuments[e.doc] = true
					found += e.doc.bytes
				}
			}
			for _, k := range append(e.aliases, e.key) {
				if keys++; c.entries[k] != e {
					t.Errorf("%s: an entry is not in the map under one of its keys", what)
				}
			}
		}
		if most := limits.CacheBytes * 9 / 16; found != c.documents.foundBytes || found > most {
			t.Errorf("%s: the entries that were found have %d bytes, but the cache counts %d, at most %d",
				what, found, c.documents.foundBytes, most)
		}
		if sum != c.bytes || c.bytes > limits.CacheBytes || len(c.entries) != keys || c.bytes < limits.CacheBytes/2 {
			t.Errorf("%s: the entries under %d keys have %d bytes, but the cache counts %d",
				what, len(c.entries), sum, c.bytes)
		}
	}
	for i := range 2000 {
		prepare(t, c, fmt.Sprintf("{a%d: int}", i), nil)
	}
	check("short documents")
	for i := range 2000 {
		prepare(t, c, fmt.Sprintf("{b%d: int}", i), nil)
		prepare(t, c, fmt.Sprintf("{b%d: int}", i), nil)
		c.Remember(fmt.Sprint("hash", i), fmt.Sprintf("{b%d: int}", i), false)
	}
	check("documents that were asked twice")
	for i := range 4000 {
		text := fmt.Sprintf(`{a%d: echo(i: %d, s: "%x")}`, i/2, i, i)
		prepare(t, c, text, nil)
		for range i % 5 { // the third time, the cache keeps the literals
			c.Find(new(Bound), []byte(text), "", nil)
		}
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
	check("plans for different variables")

	huge := "{" + strings.Repeat("...{id:int string float} ", 200) + "} #" + strings.Repeat("y", 20_000)
	c.limits.CacheBytes = 20_000
	if first, second := ask(c, huge, nil), ask(c, huge, nil); first != second || c.find(textKey(huge)) != nil {
		t.Error("a document larger than the cache is cached, or its two responses differ")
	}
	c.limits.CacheBytes = 0
	prepare(t, c, "{new: int}", nil)
	if c.find(textKey("{new: int}")) != nil {
		t.Error("a document is cached although CacheBytes is zero")
	}
}

// realistic returns a random document like those that clients send.
func realistic(g *rand.Rand, i int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "query Q%d($id: Int = %d, $o: Filter, $on: Int) {\n", i, i)
	for range 1 + g.IntN(3) {
		switch g.IntN(5) {
		case 0:
			fmt.Fprintf(&b, "  n%d: node(n: $id) { id name ... on Cat { lives kittens { id name mood(as: BLUE) } } "+
				"peer { ...F } }\n", g.IntN(1000))
		case 1:
			fmt.Fprintf(&b, "  e%d: echo(o: {min: 1, any: [{color: RED, id: $id2}]}, l: [1, 2, $on], s: \"text\")\n",
				g.IntN(1000))
		case 2:
			fmt.Fprintf(&b, "  c%d: cat { id name lives weight peers(count: %d) { id name __typename } }\n",
				g.IntN(1000), i)
		case 3:
			fmt.Fprintf(&b, "  p%d: pets { __typename ... on Cat { lives } "+
				"... on Dog { bark(times: 3) owner { name } } }\n", g.IntN(1000))
		default:
			fmt.Fprintf(&b, "  s%d: self { int float string boolean color must identity plain old matrix "+
				"echo(o: $o) }\n", g.IntN(1000))
		}
	}
	text := strings.ReplaceAll(b.String(), ", id: $id2", "") +
		"  node(n: $id) { ...F } echo(o: $o, i: $on)\n}\nfragment F on Node { id name }"
	return text
}

func heap() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

func TestCacheIsSafeForConcurrentUse(t *testing.T) {
	limits := defaultLimits
	limits.CacheBytes = 20_000
	c := testCache(t, limits)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range 300 {
				text := fmt.Sprintf("query($on: Boolean!){a%d: echo(i: %d) b: string @include(if: $on) node{id}}", i%40,
					w%2)
				b, errs := c.Prepare(text, "", map[string]any{"on": i%3 == 0})
				if errs != nil {
					t.Errorf("%s: got %v, want no error", text, errs)
					return
				}
				want := fmt.Sprintf(`{"data":{"a%d":"[%d,null,null,null,null,null,null,null,null,null]"`, i%40, w%2)
				if got := string(b.run(world{})); !strings.HasPrefix(got, want) ||
					strings.Contains(got, "text") != (i%3 == 0) {
					t.Errorf("got %s, want %s...", got, want)
				}
			}
		}()
	}
	wg.Wait()
}

// PrepareCached coerces the variables of a subscription. If Find did it too, the work would be done twice.
func TestFindDoesNotCoerceVariablesOfSubscriptions(t *testing.T) {
	c := testCache(t, defaultLimits)
	const text = "subscription($n:Int){ticks(n:$n)}"
	prepare(t, c, text, nil)
	var b Bound
	found := c.Find(&b, []byte(text), "", []Variable{{Name: []byte("n"), Value: json.Number("1")}})
	if found || !b.Subscribes() || len(b.variables) > 0 {
		t.Errorf("found %v, subscribes %v, coerced %v", found, b.Subscribes(), b.variables)
	}
}

// If Find gets the same text as before, it skips the lookup, but only while the document is cached. Such a call
// also counts as a use of the document.
func TestFindReusesItsLastEntryOnlyWhileItIsCached(t *testing.T) {
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
		if got, want := string(b.run(nil)), `{"data":{"`+name+`":42}}`; got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
		return true
	}
	prepare(t, c, "{b:int}", nil)
	for _, other := range []string{"c", "d", "e", "f"} {
		for range 2 {
			if !find("{a:int}") {
				t.Fatal("a document was evicted although Find used it before each new document")
			}
		}
		prepare(t, c, "{"+other+":int}", nil)
		if !find("{" + other + ":int}") {
			t.Error("Find does not find a new document")
		}
	}
	find("{a:int}")
	for _, other := range []string{"g", "h", "i", "j", "k", "l"} {
		for range 20 { // more often than a
			prepare(t, c, "{"+other+":int}", nil)
		}
	}
	if find("{a:int}") {
		t.Error("Find finds an evicted document")
	}
	if prepare(t, c, "{a:int}", nil); !find("{a:int}") {
		t.Error("Find does not find a document that was cached again")
	}
	for _, other := range []string{"m", "n", "o", "p", "q", "r"} { // Find never looks a up
		if prepare(t, c, "{"+other+":int}", nil); !find("{a:int}") {
			t.Fatal("a document was evicted although Find found it before each new document")
		}
	}
}

// PrepareCached returns plans that are already compiled for the values of the conditions, but compiles none itself.
func TestPrepareCachedCompilesNothing(t *testing.T) {
	c := NewCache(testSchema(t), defaultLimits, masked, nil)
	const text = "query($v:Boolean!){int @include(if:$v)}"
	known := func(on bool) bool { b, _ := c.PrepareCached(text, "", map[string]any{"v": on}); return b != nil }
	prepare := func(on bool) {
		if _, errs := c.Prepare(text, "", map[string]any{"v": on}); errs != nil {
			t.Fatal(errs)
		}
	}
	said := fmt.Sprint(known(true))
	prepare(true)
	unset, _ := c.PrepareCached(text, "", nil)
	said += fmt.Sprint(" ", known(true), known(false), unset != nil)
	prepare(false)
	said += fmt.Sprint(" ", known(false))
	if want := "false true false false true"; said != want {
		t.Errorf("PrepareCached found a plan: %s, want %s", said, want)
	}
	var b Bound
	if given := []Variable{{[]byte("v"), true}}; !c.Find(&b, []byte(text), "", given) {
		t.Error("Find reports false although the plan for these variables is compiled")
	}
}

// BenchmarkFind compares a repeated text, for which Find skips the lookup, with two alternating texts.
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
