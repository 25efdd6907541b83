package chaingql_test

import (
	"encoding/base64"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// What a refusal takes must not tell what was wrong. Reported, since a machine
// that does something else meanwhile would say anything: t is Welch's, against
// the first row, and beyond 4.5 in run after run would be a leak.
func TestTimeOfARefusalIsReported(t *testing.T) {
	tries := 100_000
	if testing.Short() || raceEnabled { // which would be what is measured
		tries = 1000
	}
	h, _ := newHandler(t, memchain.New(), chaingql.Options{Authorizer: chaingql.StaticProjects{
		"demo": {Secret: "a secret of some length", RequireSecret: true},
	}})
	basic := func(secret string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(":"+secret)) }
	rows := []struct {
		what, project, header string
		took                  []float64
	}{
		{what: "unknown project", project: "nope", header: basic("a secret of some length")},
		{what: "unknown project, wrong secret", project: "nope", header: basic("b secret of some length")},
		{what: "wrong from the first letter", project: "demo", header: basic("b secret of some length")},
		{what: "wrong in the last letter", project: "demo", header: basic("a secret of some lengti")},
		{what: "missing", project: "demo"},
		{what: "missing, unknown project", project: "nope"},
	}
	for range tries / len(rows) {
		for _, i := range rand.Perm(len(rows)) { // whoever comes behind another shares its caches
			row := &rows[i]
			var header []string
			if row.header != "" {
				header = []string{"Authorization", row.header}
			}
			start := time.Now()
			w := do(h, "POST", "/"+row.project+"/graphql", "", header...)
			row.took = append(row.took, float64(time.Since(start)))
			if w.Code != 401 || w.Body.String() != refusalBody("Unauthorized access", "UNAUTHENTICATED") {
				t.Fatalf("%s: %d %s", row.what, w.Code, w.Body)
			}
		}
	}
	var first [3]float64
	for i, row := range rows {
		slices.Sort(row.took)
		middle := row.took[len(row.took)/20 : len(row.took)*19/20] // without the collector's pauses
		mean, variance := moments(middle)
		at := [3]float64{mean, variance, float64(len(middle))}
		if i == 0 {
			first = at
		}
		welch := (at[0] - first[0]) / math.Sqrt(at[1]/at[2]+first[1]/first[2])
		t.Logf("%-30s median %5.0f ns, mean %6.1f ns, t %.1f", row.what, row.took[len(row.took)/2], mean, welch)
	}
}

func moments(xs []float64) (mean, variance float64) {
	for _, x := range xs {
		mean += x / float64(len(xs))
	}
	for _, x := range xs {
		variance += (x - mean) * (x - mean) / float64(len(xs)-1)
	}
	return mean, variance
}
