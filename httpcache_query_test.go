package chaingql_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/backendtest"
	"github.com/chaingql/chaingql/memchain"
)

// askByQUERY sends a document by the method QUERY.
func askByQUERY(h http.Handler, document string, header ...string) *httptest.ResponseRecorder {
	return do(h, "QUERY", "/demo/graphql", body(document, nil), append(header, "Content-Type", "application/json")...)
}

func TestQUERYResponseHasTheCacheHeadersOfGET(t *testing.T) {
	cached(t, chaingql.Options{}, func(t *testing.T, h *chaingql.Handler, c *callCounter, next func()) {
		for _, document := range []string{
			masterLatest, askRich, fmt.Sprintf(`{blockchain{blocks(first:5,after:%q){edges{cursor}}}}`, at(3)),
			`{__typename}`, `{info{version}}`, `{nope}`, `{blockchain{account(address:"x"){info{address}}}}`,
			fmt.Sprintf(`{blockchain{blocks(last:5,before:%q){edges{cursor}}}}`, at(99)),
		} {
			want, got := get(h, document), askByQUERY(h, document)
			equal(t, document, fmt.Sprint(got.Code, got.Body), fmt.Sprint(want.Code, want.Body))
			equal(t, "headers of "+document, fmt.Sprint(got.Header()), fmt.Sprint(want.Header()))
		}
	})
}

func TestQUERYWithAMatchingETagReceivesStatus304(t *testing.T) {
	cached(t, chaingql.Options{}, func(t *testing.T, h *chaingql.Handler, c *callCounter, next func()) {
		tag := askByQUERY(h, masterLatest).Header().Get("ETag")
		before := c.calls
		w := askByQUERY(h, masterLatest, "If-None-Match", tag)
		equal(t, "the same query", fmt.Sprint(w.Code, " ", w.Header().Get("ETag"), w.Body.String()), "304 "+tag)
		equal(t, "calls of the Backend", c.calls-before, 0)
		equal(t, "another query", askByQUERY(h, askRich, "If-None-Match", tag).Code, 200)
		equal(t, "a POST", post(h, body(masterLatest, nil), "If-None-Match", tag).Code, 200)
		next()
		next() // one of the two is a block of the masterchain
		equal(t, "after a block", askByQUERY(h, masterLatest, "If-None-Match", tag).Code, 200)
	})
}

func TestAcceptQueryHeaderNamesJSON(t *testing.T) {
	h, _ := newHandler(t, memchain.New(), chaingql.Options{})
	for _, row := range []struct {
		method, contentType, accepted string
		status                        int
	}{
		{"OPTIONS", "", "application/json", 204},
		{"PUT", "", "application/json", 405},
		{"QUERY", "", "application/json", 415},
		{"QUERY", "text/plain", "application/json", 415},
		{"QUERY", "application/json", "", 200},
		{"POST", "application/json", "", 200},
	} {
		w := do(h, row.method, "/demo/graphql", body("{info{version}}", nil), "Content-Type", row.contentType)
		got := fmt.Sprint(w.Code, " ", w.Header().Get("Accept-Query"))
		equal(t, row.method+" as "+row.contentType, got, fmt.Sprint(row.status, " ", row.accepted))
	}
}

// Clients may send the cursors of a page in the wrong order.
func TestPageThatEndsBeforeItBeginsIsEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := backendtest.Chain(1000, 1)
		chain := chainOf(t, blocks[:100])
		h, _ := newHandler(t, chain, chaingql.Options{})
		startStream(t, h, chain, blocks[100])
		commit(t, chain, blocks[101:]...)
		synctest.Wait()
		query := fmt.Sprintf("{blockchain{blocks(after:%q,before:%q){edges{cursor}}}}", blocks[700].Cursor,
			blocks[200].Cursor)
		equal(t, "response", get(h, query).Body.String(), `{"data":{"blockchain":{"blocks":{"edges":[]}}}}`)
	})
}
