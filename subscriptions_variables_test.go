package chaingql_test

import (
	"runtime"
	"strings"
	"testing"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// A filter can use one variable hundreds of times. Its text is compared in lower case.
func TestUsesOfALargeVariableInAFilterAreNotCopied(t *testing.T) {
	many := strings.Repeat("$s ", 100)
	lists := "{in:[" + many + "] notIn:[" + many + "]}"
	document := "subscription($s:String){blocks(filter:{id:" + lists + " shard:" + lists + "}){id}}"
	for _, tc := range []struct {
		size  int
		valid bool
	}{{100_000, false}, {2000, true}} {
		h, _ := newHandler(t, memchain.New(), chaingql.Options{})
		variables := map[string]any{"s": "A" + strings.Repeat("a", tc.size)}
		try := func() {
			stop, err := h.Subscribe(document, variables)
			if (err == nil) != tc.valid {
				t.Fatalf("%d bytes: got error %v, want one: %v", tc.size, err, !tc.valid)
			}
			if err == nil {
				stop()
			}
		}
		try() // compiles the document
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		try()
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
			t.Errorf("%d bytes: allocated %d bytes", tc.size, n)
		}
	}
}
