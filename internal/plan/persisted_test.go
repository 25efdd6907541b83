package plan

import (
	"fmt"
	"testing"
)

func TestPersistedDocumentIsRecalledUntilEvicted(t *testing.T) {
	c := testCache(t, Limits{CacheBytes: 64 << 10})
	const text = "{__typename}"
	if _, ok := c.Recall("abc"); ok {
		t.Error("Recall returned a document under a hash that was never stored")
	}
	c.Remember("bad", "{nope}", true)
	if _, ok := c.Recall("bad"); ok {
		t.Error("Remember stored an invalid document")
	}
	c.Remember("abc", text, true)
	if got, ok := c.Recall("abc"); !ok || got != text {
		t.Errorf("Recall returned %q, %v, want %q", got, ok, text)
	}
	if errs := c.Check("abc"); errs == nil {
		t.Error("Check accepted a hash as a document")
	}
	for i := range 1000 {
		for range 5 { // documents that are used less often would evict only each other
			prepare(t, c, fmt.Sprintf("{__typename a%d:__typename}", i), nil)
		}
	}
	if _, ok := c.Recall("abc"); ok {
		t.Error("a cache of 64 KiB still has the document after 1,000 others")
	}
}

func TestRememberCompilesOnlyIfCompileIsSet(t *testing.T) {
	c := testCache(t, defaultLimits)
	prepare(t, c, "{echo(i: 1)}", nil)
	const text = "{echo(i: 2)}" // shares the plan of the first document
	if b, _ := c.PrepareCached(text, "", nil); b == nil {
		t.Fatal("PrepareCached does not find a document that differs only in a literal")
	}
	if c.Remember("abc", text, false) {
		t.Error("Remember reports true for a document that is not compiled")
	}
	for _, compile := range []bool{true, false} { // the second time, it is cached by its text
		if !c.Remember("abc", text, compile) {
			t.Errorf("compile %v: Remember reports false, want true", compile)
		}
		if got, _ := c.Recall("abc"); got != text {
			t.Errorf("compile %v: Recall returned %q, want %q", compile, got, text)
		}
	}
	if !c.Remember("bad", "{nope}", true) {
		t.Error("Remember reports false for an invalid document that it tried to compile")
	}
}
