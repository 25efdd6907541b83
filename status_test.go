package chaingql_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/chaingql/chaingql"
)

func TestStatusCodesFollowTheSelectedStandard(t *testing.T) {
	h, _ := newHandler(t, referenceChain(t), chaingql.Options{Limits: chaingql.Limits{BodyBytes: 1000}})
	const fieldError = `{blockchain{account(address:"zzz"){info{balance}}}}`
	const withVariable = `query($a:Int!){blockchain{blocks(first:$a){__typename}}}`
	for _, row := range []struct {
		what, method, body string // the body of a POST, or the query of a GET
		today, draft       int
		json               int // both with Accept: application/json
	}{
		{"data", "POST", body("{info{version}}", nil), 200, 200, 200},
		{"data with errors", "POST", body(fieldError, nil), 200, 294, 200},
		{"a document that cannot be parsed", "POST", body("{", nil), 400, 400, 200},
		{"an invalid document", "POST", body("{nope}", nil), 400, 422, 200},
		{"an unknown operation", "POST", `{"query":"query A{info{version}}","operationName":"B"}`, 400, 422, 200},
		{"a wrong variable", "POST", body(withVariable, nil), 400, 422, 200},
		{"a body that is not JSON", "POST", "{", 400, 400, 0},
		{"no query", "POST", "{}", 400, 422, 0},
		{"a query of the wrong type", "POST", `{"query":1}`, 400, 422, 0},
		{"a body that is too large", "POST", strings.Repeat(" ", 2000), 413, 413, 0},
		{"a URL that is too large", "GET", "query=" + strings.Repeat("x", 2000), 413, 414, 0},
		{"a method", "PUT", "", 405, 405, 0},
	} {
		for _, draft := range []bool{false, true} {
			h.UseDraftStatuses(draft)
			want := row.today
			if draft {
				want = row.draft
			}
			for _, accept := range []string{"application/graphql-response+json", "application/json"} {
				target, body := "/demo/graphql", row.body
				if row.method == "GET" {
					target, body = target+"?"+row.body, ""
				}
				w := do(h, row.method, target, body, "Content-Type", "application/json", "Accept", accept)
				if accept == "application/json" && row.json != 0 {
					want = row.json
				}
				equal(t, fmt.Sprintf("%s, draft %t, %s", row.what, draft, accept), w.Code, want)
			}
		}
	}
}

func TestAllStatusCodesAreInOneFile(t *testing.T) {
	constant := regexp.MustCompile(`http\.Status[A-Z]\w*|WriteHeader\(\d`)
	for _, file := range goFiles(t)["."] {
		if file == "status.go" || strings.HasSuffix(file, "_test.go") {
			continue
		}
		if found := constant.FindString(read(t, file)); found != "" {
			t.Errorf("%s has the status %s, which belongs in the table in status.go", file, found)
		}
	}
}
