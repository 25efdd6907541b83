package chaingql_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/chaingql/chaingql"
)

const (
	version = `{"data":{"info":{"version":"0.1.0"}}}`
	unknown = `{"errors":[{"message":"PersistedQueryNotFound","extensions":{"code":"PERSISTED_QUERY_NOT_FOUND"}}]}`
)

func sha(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func persisted(hash string) string {
	return fmt.Sprintf(`{"persistedQuery":{"version":1,"sha256Hash":%q}}`, hash)
}

func TestPersistedQueryIsServedByHashAfterItWasSentWithItsHash(t *testing.T) {
	h, _ := newHandler(t, referenceChain(t), chaingql.Options{})
	const text = "{info{version}}"
	byHash := `{"extensions":` + persisted(sha(text)) + `}`
	get := "/demo/graphql?extensions=" + url.QueryEscape(persisted(sha(text)))

	equal(t, "unknown, by POST", post(h, byHash).Body.String(), unknown)
	equal(t, "unknown, by GET", do(h, "GET", get, "").Body.String(), unknown)
	equal(t, "sent whole without a hash", post(h, `{"query":"`+text+`"}`).Body.String(), version)
	equal(t, "still unknown", post(h, byHash).Body.String(), unknown)
	both := `{"query":"` + text + `","extensions":` + persisted(sha(text)) + `}`
	equal(t, "sent with its hash", post(h, both).Body.String(), version)
	equal(t, "known, by POST", post(h, byHash).Body.String(), version)
	equal(t, "known, by GET", do(h, "GET", get, "").Body.String(), version)
	upper := `{"extensions":` + persisted(strings.ToUpper(sha(text))) + `}`
	equal(t, "known, in upper case", post(h, upper).Body.String(), version)
	strict := post(h, `{"extensions":`+persisted(sha("{x}"))+`}`, "Accept", graphqlType)
	equal(t, "the strict media type has 400", strict.Code, 400)
}

func TestInvalidPersistedQueriesAreRefused(t *testing.T) {
	h, _ := newHandler(t, referenceChain(t), chaingql.Options{})
	for body, message := range map[string]string{
		`{"query":"{info{version}}","extensions":` + persisted(sha("{x}")) + `}`: "provided sha does not match query",
		`{"extensions":{"persistedQuery":5}}`: `"extensions.persistedQuery" ` +
			`must be an object.`,
		`{"extensions":{"persistedQuery":{"version":2,"sha256Hash":"` + sha("x") + `"}}}`: "Unsupported persisted " +
			"query version.",
		`{"extensions":{"persistedQuery":{"sha256Hash":"` + sha("x") + `"}}}`: "Unsupported persisted query version.",
		`{"extensions":{"persistedQuery":{"version":1,"sha256Hash":"abc"}}}`: `"extensions.persistedQuery.` +
			`sha256Hash" must be 64 hex digits.`,
		`{"extensions":{"persistedQuery":null}}`: "Must provide query string.",
		`{"extensions":{}}`:                      "Must provide query string.",
	} {
		r := parse(t, post(h, body).Body.String())
		if len(r.Errors) != 1 || r.Errors[0].Message != message || r.code() != "BAD_REQUEST" {
			t.Errorf("%s: got the errors %+v, want %q", body, r.Errors, message)
		}
	}
	bad := `{nope}`
	invalid := post(h, `{"query":"`+bad+`","extensions":`+persisted(sha(bad))+`}`)
	equal(t, "an invalid document", parse(t, invalid.Body.String()).code(), "GRAPHQL_VALIDATION_FAILED")
	byHash := `{"extensions":` + persisted(sha(bad)) + `}`
	equal(t, "an invalid document by its hash", post(h, byHash).Body.String(), unknown)
}

func TestOnlyTrustedDocumentsAreServed(t *testing.T) {
	const text = "query Version{info{version}}"
	h, _ := newHandler(t, referenceChain(t), chaingql.Options{TrustedDocuments: []string{text}})
	equal(t, "by text", post(h, `{"query":"`+text+`"}`).Body.String(), version)
	equal(t, "by hash, never sent before", post(h, `{"extensions":`+persisted(sha(text))+`}`).Body.String(), version)
	equal(t, "an unknown hash", post(h, `{"extensions":`+persisted(sha("{x}"))+`}`).Body.String(), unknown)
	const refused = `{"errors":[{"message":"Only documents that the service knows are served.",` +
		`"extensions":{"code":"BAD_REQUEST"}}]}`
	equal(t, "another text", post(h, `{"query":"{info{version}}"}`).Body.String(), refused)
	other := `{"query":"{info{version}}","extensions":` + persisted(sha("{info{version}}")) + `}`
	equal(t, "another text with its hash", post(h, other).Body.String(), refused)
	byHash := `{"extensions":` + persisted(sha("{info{version}}")) + `}`
	equal(t, "another text by its hash", post(h, byHash).Body.String(), unknown)
}

func TestNewPanicsOnInvalidTrustedDocument(t *testing.T) {
	defer func() {
		p := fmt.Sprint(recover())
		if !strings.Contains(p, "TrustedDocuments[1]") || !strings.Contains(p, "nope") {
			t.Errorf("New panicked with %q, which does not name the document and the field", p)
		}
	}()
	chaingql.New(referenceChain(t), &chaingql.Options{TrustedDocuments: []string{"{info{version}}", "{nope}"}})
}

func TestDocumentIDSelectsATrustedDocument(t *testing.T) {
	const document = "query($n:Int!){blockchain{blocks(last:$n){edges{cursor}}}}"
	h, _ := newHandler(t, referenceChain(t), chaingql.Options{TrustedDocuments: []string{document}})
	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(document)))
	want := post(h, body(document, map[string]any{"n": 1})).Body.String()
	ask := func(fields string) string { return post(h, `{`+fields+`,"variables":{"n":1}}`).Body.String() }
	equal(t, "by POST", ask(`"documentId":"sha256:`+sum+`"`), want)
	target := "/demo/graphql?documentId=sha256:" + sum + "&variables=%7B%22n%22:1%7D"
	equal(t, "by GET", do(h, "GET", target, "").Body.String(), want)
	own := `"query":"{__typename}","documentId":"sha256:` + sum + `"`
	equal(t, "with a query", parse(t, ask(own)).code(), "BAD_REQUEST")
	both := `"documentId":"sha256:` + sum + `","extensions":{"persistedQuery":{"version":1,"sha256Hash":"%s"}}`
	equal(t, "with its hash", ask(fmt.Sprintf(both, sum)), want)
	other := fmt.Sprintf("%x", sha256.Sum256(nil))
	equal(t, "with another hash", parse(t, ask(fmt.Sprintf(both, other))).code(), "BAD_REQUEST")
	for _, id := range []string{
		"sha256:" + other, sum, "sha256:" + strings.ToUpper(sum), "SHA256:" + sum, "x-own:" + sum, "sha256:", "x",
	} {
		equal(t, id, parse(t, ask(`"documentId":"`+id+`"`)).code(), "PERSISTED_QUERY_NOT_FOUND")
	}
	equal(t, "no text", parse(t, ask(`"documentId":1`)).code(), "BAD_REQUEST")
	equal(t, "empty", parse(t, ask(`"documentId":""`)).code(), "BAD_REQUEST")
}
