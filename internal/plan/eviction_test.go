package plan

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// conditional returns a document with 10 conditions and about n fields, and variables for one of 1,024 plans.
func conditional(i, n int) (text string, variables map[string]any) {
	variables = map[string]any{}
	for j := range 10 {
		variables[fmt.Sprint("v", j)] = i>>j&1 == 1
	}
	fields := many(10, "a%d:int@skip(if:$v%[1]d) ") + many(n, "b%d:int ")
	return "query(" + many(10, "$v%d:Boolean!") + "){" + fields + "}", variables
}

// A client asks a query now and then, and another floods the cache with documents that it sends up to three times.
func TestQueriesThatAreAskedAgainSurviveAnyFlood(t *testing.T) {
	limits := defaultLimits
	limits.CacheBytes, limits.Calls, limits.Aliases = 256<<10, 3, 0
	const known, conditions = "{int}", "query($on:Boolean!){int@include(if:$on)}"
	send := func(t *testing.T, c *Cache, text string, variables map[string]any) {
		t.Helper()
		if _, errs := c.Prepare(text, "", variables); errs != nil && !errs[0].tooExpensive() {
			t.Fatal(errs)
		}
	}
	for name, flood := range map[string]func(t *testing.T, c *Cache, i int){
		"small documents": func(t *testing.T, c *Cache, i int) { send(t, c, fmt.Sprintf("{a%d:int}", i), nil) },
		"large documents": func(t *testing.T, c *Cache, i int) {
			send(t, c, fmt.Sprintf("{a%d:int %s}", i, many(200, "b%d:int ")), nil)
		},
		"literals": func(t *testing.T, c *Cache, i int) { send(t, c, fmt.Sprintf("{a%d:echo(i:%[1]d)}", i), nil) },
		"refused documents": func(t *testing.T, c *Cache, i int) {
			send(t, c, fmt.Sprintf("{a%d:counted %s}", i, many(20, "b%d:counted ")), nil)
		},
		"several operations": func(t *testing.T, c *Cache, i int) {
			text := fmt.Sprintf("query A%d{int}query B{%s}", i, many(50, "b%d:int "))
			if _, errs := c.Prepare(text, "B", nil); errs != nil {
				t.Fatal(errs)
			}
		},
		"conditions": func(t *testing.T, c *Cache, i int) {
			text, variables := conditional(i, 50)
			send(t, c, text, variables)
		},
		"persisted documents": func(t *testing.T, c *Cache, i int) {
			text := fmt.Sprintf("{a%d:echo(i:%[1]d) %s}", i, many(20, "b%d:int "))
			send(t, c, text, nil)
			c.Remember(Hash(text), text, true)
		},
	} {
		for times := 1; times <= 3; times++ {
			t.Run(fmt.Sprintf("%s, %d times", name, times), func(t *testing.T) {
				c := NewCache(countingSchema(t, new(steps)), limits, masked, nil)
				compiled, variables := 0, []Variable{{[]byte("on"), true}}
				var last Bound // finds known without a lookup
				ask := func() {
					for _, text := range []string{known, conditions} {
						b := new(Bound)
						if text == known {
							b = &last
						}
						if !c.Find(b, []byte(text), "", variables) {
							compiled++
							prepare(t, c, text, map[string]any{"on": true})
						}
					}
				}
				for range 5 {
					ask()
				}
				for i := range 500 {
					for range times {
						flood(t, c, i)
					}
					if i%50 == 49 {
						ask()
					}
				}
				if ask(); compiled != 2 {
					t.Errorf("two queries were compiled %d times", compiled)
				}
				if name != "refused documents" && c.bytes < limits.CacheBytes/5 {
					t.Errorf("the cache has only %d bytes", c.bytes)
				}
			})
		}
	}
}

// New documents and plans have a part of the cache even if all others are in use.
func TestNewDocumentsAreCachedAlthoughOthersAreInUse(t *testing.T) {
	limits := defaultLimits
	limits.CacheBytes, limits.Aliases = 1<<20, 0
	c := testCache(t, limits)
	for i := range 300 {
		for range 3 {
			prepare(t, c, fmt.Sprintf("{a%d:int %s}", i, many(20, "b%d:int ")), nil)
			text, variables := conditional(i, 20)
			prepare(t, c, text, variables)
		}
	}
	for i := range 4 {
		document := fmt.Sprintf("{new%d:int %s}", i, many(20, "b%d:int "))
		text, variables := conditional(i, 21)
		prepare(t, c, document, nil)
		prepare(t, c, text, variables)
	}
	for i := range 4 {
		text, variables := conditional(i, 21)
		again, _ := c.PrepareCached(text, "", variables)
		other, _ := c.PrepareCached(fmt.Sprintf("{new%d:int %s}", i, many(20, "b%d:int ")), "", nil)
		if again == nil || other == nil {
			t.Errorf("of the last four documents and plans, number %d is not cached", i)
		}
	}
}

// A document with a plan of 160 kB is a kilobyte long, so documents that are refused would evict the others.
func TestDocumentsThatAreTooExpensiveAreNotCached(t *testing.T) {
	c := NewCache(priced(t), Limits{Blocks: 20, CacheBytes: 1 << 20}, masked, nil)
	const open = "query($on:Boolean!,$n:Int=10){blocks(n:$n) more:blocks(n:15)@include(if:$on)}"
	refused := func(text string, variables map[string]any) {
		t.Helper()
		before, bytes := c.count(), c.bytes
		_, errs := c.Prepare(text, "", variables)
		if errs == nil || errs[0].Limit != "QueryBlocks" {
			t.Errorf("%s: got %v, want that it costs too much", text, errs)
		}
		if c.count() != before || c.bytes != bytes {
			t.Errorf("%s: the cache has %d entries of %d bytes, want %d of %d", text, c.count(), c.bytes, before, bytes)
		}
	}
	refused("{blocks(n:21)}", nil)
	refused("query($n:Int){blocks(n:$n)}", map[string]any{"n": json.Number("21")})
	refused(open, map[string]any{"on": true})
	prepare(t, c, open, map[string]any{"on": false})
	if c.count() != 2 {
		t.Errorf("the cache has %d entries, want a document and a plan", c.count())
	}
	refused(open, map[string]any{"on": true})
	refused("{blocks(n:21)"+strings.Repeat(" ", 100)+"}", nil)
	prepare(t, c, "query($n:Int){blocks(n:$n)}", map[string]any{"n": json.Number("1")})
	if c.count() != 3 {
		t.Errorf("the cache has %d entries, want a further document", c.count())
	}
}
