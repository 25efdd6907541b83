package attack

import (
	"crypto/sha256"
	"fmt"
	"strings"
)

// persisted returns requests for persisted documents whose hashes are malformed, unknown, or belong to
// another document. It also returns floods of documents that the server might cache.
func persisted() []attack {
	hash := func(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }
	good, lost := "{info{version}}", hash("never sent")
	ext := func(value string) string { return `"extensions":{"persistedQuery":` + value + `}` }
	var all []attack
	for _, p := range []string{
		`{}`, `1`, `"x"`, `[]`, `true`, `{"version":1}`, `{"sha256Hash":"` + lost + `"}`,
		`{"version":2,"sha256Hash":"` + lost + `"}`,
		`{"version":"1","sha256Hash":"` + lost + `"}`, `{"version":1,"sha256Hash":1}`,
		`{"version":1,"sha256Hash":null}`,
		`{"version":1,"sha256Hash":""}`, `{"version":1,"sha256Hash":"x"}`,
		`{"version":1,"sha256Hash":"` + strings.Repeat("0", 63) + `"}`,
		`{"version":1,"sha256Hash":"` + strings.Repeat("0", 65) + `"}`,
		`{"version":1,"sha256Hash":"` + strings.Repeat("g", 64) + `"}`,
		`{"version":1,"sha256Hash":["` + lost + `"]}`, `{"version":1,"sha256Hash":{"a":1}}`,
		`{"version":1,"sha256Hash":"` + strings.Repeat("a", 100_000) + `"}`,
		`{"version":1e400,"sha256Hash":"` + lost + `"}`,
		`{"version":1,"sha256Hash":"\u0000"}`,
		`{"version":1,"sha256Hash":"__proto__"}`, `{"version":1,"sha256Hash":"../../etc/passwd"}`,
		`{"version":-1,"sha256Hash":"` + lost + `"}`,
		`{"version":1.5,"sha256Hash":"` + lost + `"}`, `{"Version":1,"SHA256Hash":"` + lost + `"}`,
	} {
		all = append(all, body("hash alone "+short(p), "PERSISTED_QUERY_NOT_FOUND|400 BAD_REQUEST", "{"+ext(p)+"}"))
		all = append(all, body("hash with a document "+short(p), "400 BAD_REQUEST",
			`{"query":"{info{version}}",`+ext(p)+"}"))
	}
	pair := func(text, sum string) string {
		return `{"query":` + asJSON(text) + `,` + ext(`{"version":1,"sha256Hash":"`+sum+`"}`) + "}"
	}
	all = append(all,
		body("hash of an unknown document", badRequest, pair(good, lost)),
		body("hash of another known document", badRequest, pair("{info{time}}", hash(good))),
		body("hash of a document that is refused", invalid, pair("{nothing}", hash("{nothing}"))),
		body("hash of a document that does not parse", unparsable, pair("{", hash("{"))),
		body("hash of a cycle", invalid, pair("{...A}fragment A on Query{...A}",
			hash("{...A}fragment A on Query{...A}"))),
		body("hash of a cycle, without the document", "PERSISTED_QUERY_NOT_FOUND",
			"{"+ext(`{"version":1,"sha256Hash":"`+hash("{...A}fragment A on Query{...A}")+`"}`)+"}"),
		body("hash of an empty document, with an empty query", "PERSISTED_QUERY_NOT_FOUND|400", pair("", hash(""))),
		body("hash of an unknown document, without a document", "PERSISTED_QUERY_NOT_FOUND",
			"{"+ext(`{"version":1,"sha256Hash":"`+lost+`"}`)+"}"),
	)
	for _, id := range []string{
		`"sha256:` + lost + `"`, `"` + lost + `"`, `"sha256:"`, `"sha256"`, `":"`, `"x-md5:` + lost + `"`,
		`"SHA256:` + lost + `"`, `"sha256:sha256:` + lost + `"`,
		`"sha256:` + strings.Repeat("0", 63) + `"`, `"sha256:` + strings.Repeat("a", 100_000) + `"`,
		`"` + strings.Repeat(":", 100_000) + `"`,
		`"sha256:\u0000"`, `"sha256:../../etc/passwd"`, `"__proto__"`, `"none"`, `"sha256:none"`, `" "`,
	} {
		all = append(all, body("documentId "+short(id), "PERSISTED_QUERY_NOT_FOUND", `{"documentId":`+id+"}"))
		all = append(all, body("documentId with a document "+short(id), answered,
			`{"documentId":`+id+`,"query":"{info{version}}"}`))
	}
	for _, id := range []string{"1", "true", "[]", "{}", `[["sha256:` + lost + `"]]`, `""`, "null"} {
		all = append(all, body("malformed documentId "+short(id), badRequest, `{"documentId":`+id+"}"))
	}
	all = append(all,
		body("two documentIds", badRequest, `{"documentId":"a","documentId":"b"}`),
		body("documentId and the hash of another document", badRequest,
			`{"documentId":"sha256:`+lost+`",`+ext(`{"version":1,"sha256Hash":"`+hash(good)+`"}`)+"}"),
	)
	floods := []attack{
		plain("3,000 documents to be persisted", answered, func(s *target) (outcome, error) {
			return s.many(3000, func(i int) string {
				text := fmt.Sprintf("{info{version}}#%d%s", i, strings.Repeat("x", 20_000))
				return pair(text, hash(text))
			})
		}),
		plain("3,000 documents of many fields", answered, func(s *target) (outcome, error) {
			return s.many(3000, func(i int) string {
				text := fmt.Sprintf("{a%d:info{version}}", i) + "query B{" + times(40, "a#:info{version time}") + "}"
				return `{"operationName":"B",` + pair("query A"+text, hash("query A"+text))[1:]
			})
		}),
		plain("3,000 documents that are refused", invalid, func(s *target) (outcome, error) {
			return s.many(3000, func(i int) string { return fmt.Sprintf(`{"query":"{nothing%d}"}`, i) })
		}),
		plain("3,000 operation names", "400 BAD_USER_INPUT", func(s *target) (outcome, error) {
			return s.many(3000, func(i int) string {
				return fmt.Sprintf(`{"query":"query A{info{version}}","operationName":"B%d"}`, i)
			})
		}),
	}
	for i := range floods {
		floods[i].within = 10 * usual
	}
	return append(all, floods...)
}
