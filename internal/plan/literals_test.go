package plan

import (
	"context"
	"fmt"
	"runtime"
	"testing"
)

func repeatable(n int) []byte {
	return fmt.Appendf(nil, `{a: echo(s: "longer than a word %d", i: -%d) plain}`, n, 1000+n)
}

// find binds and runs a text with a Bound of another request, as a server does.
func find(t *testing.T, c *Cache, b *Bound, text []byte) string {
	t.Helper()
	if !c.Find(b, text, "", nil) {
		t.Fatalf("Find reports false for %s", text)
	}
	response, _ := b.Run(context.Background(), world{}, nil)
	b.Release()
	return string(response)
}

func TestRepeatedTextIsFoundWithoutItsFingerprint(t *testing.T) {
	c := testCache(t, defaultLimits)
	prepare(t, c, string(repeatable(0)), nil)
	own, _ := prepare(t, testCache(t, defaultLimits), string(repeatable(1)), nil).Run(context.Background(), world{},
		nil)
	var b Bound
	for range 5 {
		if got := find(t, c, &b, repeatable(1)); got != string(own) {
			t.Fatalf("got %s, want %s", got, own)
		}
		find(t, c, &b, repeatable(0))
	}
	text := repeatable(1)
	if n := testing.AllocsPerRun(100, func() { c.Find(&b, text, "", nil) }); n > 0 && !raceEnabled {
		t.Errorf("finding a repeated text allocates %v times, want 0", n)
	}
	if b.fingerprint = b.fingerprint[:0]; !c.Find(&b, repeatable(1), "", nil) || len(b.fingerprint) > 0 {
		t.Error("the fingerprint of a repeated text was computed again")
	}
	if want := Hash(string(repeatable(1))); b.Hash() != want {
		t.Errorf("the hash of a repeated text is %s, want %s", b.Hash(), want)
	}
}

func TestTextsThatOccurOnceAreNotCached(t *testing.T) {
	c := testCache(t, defaultLimits)
	prepare(t, c, string(repeatable(0)), nil)
	bytes, entries := c.bytes, len(c.entries)
	var b Bound
	for i := range 1000 {
		find(t, c, &b, repeatable(i+1))
	}
	if c.bytes != bytes || len(c.entries) != entries {
		t.Errorf("1000 texts with different literals added %d entries and %d bytes", len(c.entries)-entries,
			c.bytes-bytes)
	}
}

func TestRepeatedTextsStayWithinCacheBytes(t *testing.T) {
	c := testCache(t, defaultLimits)
	prepare(t, c, string(repeatable(0)), nil)
	c.limits.CacheBytes = 10 * c.bytes
	var b Bound
	for i := range 1000 {
		for range 3 {
			find(t, c, &b, repeatable(i))
		}
		if c.bytes > c.limits.CacheBytes {
			t.Fatalf("the cache has %d bytes, want at most %d", c.bytes, c.limits.CacheBytes)
		}
	}
	if n := len(c.entries); n < 25 || n > 100 {
		t.Errorf("the cache has %d entries, want about fifty", n)
	}
}

// A plan of many fields is shared by all texts that differ only in literals. If each of them counted the whole plan, a
// client could evict all other documents with a few short texts.
func TestPlanOfRepeatedTextsIsCountedOnce(t *testing.T) {
	if !heapIsMeasurable(t) {
		return
	}
	c := testCache(t, defaultLimits)
	c.limits.CacheBytes = 1 << 30
	text := func(i int) []byte {
		return fmt.Appendf(nil, `{a:self{...F} b:self{...F} c:self{...F} d: echo(s: "text %d")} `+
			"fragment F on Query{"+many(40, "a%d:string ")+"}", i)
	}
	prepare(t, c, string(text(0)), nil)
	var b Bound
	find(t, c, &b, text(-1)) // allocates buffers
	before, counted := heap(), c.bytes
	const n = 100
	for i := range n {
		find(t, c, &b, text(i+1))
		find(t, c, &b, text(i+1))
	}
	if entries := c.count(); entries != n+1 {
		t.Fatalf("the cache has %d entries, want %d", entries, n+1)
	}
	checkMemory(t, "repeated texts", n, c.bytes-counted, heap()-before)
	runtime.KeepAlive(c)
}
