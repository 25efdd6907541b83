package plan

import "testing"

func TestADocumentIsRecalledByItsNameUntilItsBytesAreNeeded(t *testing.T) {
	c := testCache(t, Limits{CacheBytes: 64 << 10})
	const text = "{__typename}"
	if _, ok := c.Recall("abc"); ok {
		t.Error("recalled what was never remembered")
	}
	c.Remember("bad", "{nope}")
	if _, ok := c.Recall("bad"); ok {
		t.Error("remembered a document that is not valid")
	}
	c.Remember("abc", text)
	if got, ok := c.Recall("abc"); !ok || got != text {
		t.Errorf("recalled %q, %v", got, ok)
	}
	if errs := c.Check("abc"); errs == nil {
		t.Error("a name was taken for a document")
	}
	for i := range 1000 {
		c.Check("{__typename a" + string(rune('a'+i%26)) + string(rune('a'+i/26)) + ":__typename}")
	}
	if _, ok := c.Recall("abc"); ok {
		t.Error("1,000 documents later it is still kept in 64 KiB")
	}
}
