package plan

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// testdata/graphql-js.txt has documents with unknown fragments and other errors. Below each document are the
// messages that the function validate of graphql-js 16.15.0 returns for the tests' schema, without suggestions. No
// document has
//   - @skip or @include at the root of a subscription, because the specification of September 2025 forbids them
//     there but graphql-js allows them;
//   - conflicting fields, because they are only reported if there is no other error;
//   - uses of a variable that has an unknown type or is defined twice, because gqlparser reports a different error
//     for them.
func TestErrorsOfUnknownFragmentsMatchGraphqlJs(t *testing.T) {
	recorded, err := os.ReadFile("testdata/graphql-js.txt")
	must(t, err)
	c := testCache(t, defaultLimits)
	documents := strings.Split(strings.TrimSpace(string(recorded)), "\n")
	for i := 0; i < len(documents); {
		text := documents[i]
		var want, got []string
		for i++; i < len(documents) && strings.HasPrefix(documents[i], "\t"); i++ {
			want = append(want, strings.TrimSuffix(documents[i][1:], "."))
		}
		_, errs := c.Prepare(text, "", nil)
		for _, e := range errs {
			got = append(got, strings.TrimSuffix(e.Message, "."))
		}
		slices.Sort(want)
		slices.Sort(got)
		want, got = slices.Compact(want), slices.Compact(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s\ngot  %q\nwant %q", text, got, want)
		}
	}
}
