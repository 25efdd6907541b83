package plan

import (
	"container/list"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"
)

// Two callers find the same document while others evict it again and again.
func TestFindWithoutALookupIsSafeForConcurrentUse(t *testing.T) {
	c := testCache(t, defaultLimits)
	prepare(t, c, "{a:int}", nil)
	c.limits.CacheBytes = 3 * c.bytes
	var callers sync.WaitGroup
	for range 2 {
		callers.Go(func() {
			var b Bound
			for range 500 {
				if !c.Find(&b, []byte("{a:int}"), "", nil) {
					prepare(t, c, "{a:int}", nil)
				} else if got := string(b.run(nil)); got != `{"data":{"a":42}}` {
					t.Errorf("got %s", got)
				}
			}
		})
	}
	for i := range 500 {
		prepare(t, c, fmt.Sprintf("{b%d:int}", i), nil)
	}
	callers.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bytes > c.limits.CacheBytes {
		t.Errorf("the cache has %d bytes, want at most %d", c.bytes, c.limits.CacheBytes)
	}
}

func TestFindIsSafeWhileItsDocumentIsPersisted(t *testing.T) {
	for range 200 {
		c := testCache(t, defaultLimits)
		prepare(t, c, "{int}", nil)
		var callers sync.WaitGroup
		callers.Go(func() { c.Remember(Hash("{int}"), "{int}", true) })
		callers.Go(func() {
			if !c.Find(new(Bound), []byte("{int}"), "", nil) {
				t.Error("Find does not find a document that is cached")
			}
		})
		callers.Wait()
	}
}

// An operation that costs too much is refused without compiling, so that it is not priced twice.
func TestPrepareCachedReturnsErrorsOfKnownDocuments(t *testing.T) {
	limits := defaultLimits
	limits.Calls = 1
	c := NewCache(countingSchema(t, new(steps)), limits, masked, nil)
	const text = "query($v:Counted){a:counted(l:[$v]) b:counted}"
	if b, errs := c.PrepareCached(text, "", nil); b != nil || errs != nil {
		t.Errorf("an unknown document: got %v and %v, want neither", b, errs)
	}
	c.Check(text) // caches the document
	_, want := c.Prepare(text, "", nil)
	b, errs := c.PrepareCached(text, "", nil)
	if b != nil || len(want) == 0 || fmt.Sprint(errs) != fmt.Sprint(want) {
		t.Errorf("got %v and %v, want the errors of Prepare: %v", b, errs, want)
	}
}

// BenchmarkFindOnAllProcessors finds the same document on all processors at once.
func BenchmarkFindOnAllProcessors(b *testing.B) {
	c := testCache(b, defaultLimits)
	text := []byte("query latest { int a:int b:int c:int d:int e:int f:int g:int h:int i:int }")
	prepare(b, c, string(text), nil)
	b.RunParallel(func(p *testing.PB) {
		var bound Bound
		for p.Next() {
			c.Find(&bound, text, "", nil)
		}
	})
}

// lists yields the elements of all lists of entries.
func (c *Cache) lists() iter.Seq[*list.Element] {
	return func(yield func(*list.Element) bool) {
		for _, l := range []*list.List{
			&c.documents.once, &c.documents.found, &c.variants.once, &c.variants.found,
		} {
			for el := l.Front(); el != nil; el = el.Next() {
				if !yield(el) {
					return
				}
			}
		}
	}
}

// count returns the number of entries.
func (c *Cache) count() (n int) {
	for range c.lists() {
		n++
	}
	return n
}

// A document with many conditions has a plan for each combination of their values, and a client can name the document
// by its hash.
func TestPlansForConditionsDoNotEvictDocuments(t *testing.T) {
	limits := defaultLimits
	limits.CacheBytes = 200_000
	c := testCache(t, limits)
	prepare(t, c, "{a:int}", nil)
	text := "query("
	for i := range 8 {
		text += fmt.Sprintf("$v%d:Boolean!", i)
	}
	text += "){" + "echo(s:\"" + strings.Repeat("x", 5000) + "\")"
	for i := range 8 {
		text += fmt.Sprintf(" b%d:int@skip(if:$v%[1]d)", i)
	}
	for n := range 256 {
		variables := map[string]any{}
		for i := range 8 {
			variables[fmt.Sprint("v", i)] = n>>i&1 == 1
		}
		prepare(t, c, text+"}", variables)
	}
	if c.find(textKey("{a:int}")) == nil {
		t.Error("the plans of another document have evicted the document")
	}
	if c.variantBytes == 0 || c.variantBytes > limits.CacheBytes/variantsDivisor {
		t.Errorf("the plans use %d of %d bytes", c.variantBytes, limits.CacheBytes)
	}
}
