package chaingql_test

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

const (
	jsonType    = "application/json; charset=utf-8"
	graphqlType = "application/graphql-response+json; charset=utf-8"
)

const request802 = `{"query":"query{\n  blockchain{` +
	`\n    blocks(workchain:-1, last:1){\n      edges{` +
	`\n        node{\n          hash\n          seq_no\n        }\n      }\n    }\n  }\n}","` +
	`variables":{}}`

const response802 = `{"data":{"blockchain":{"blocks":{"edges":[{"node":{` +
	`"hash":"c3dd7d12ca3d1416a4b2f64c95790e472e7c0b8ecc9243c4a5e1ae7f9f94a1b0","seq_no":802}}]}}}}`

func refusalBody(message, code string) string {
	return fmt.Sprintf(`{"errors":[{"message":%q,"extensions":{"code":%q}}]}`, message, code)
}

func TestHTTPResponsesHaveTheExpectedStatusAndBody(t *testing.T) {
	h, _ := newHandler(t, referenceChain(t), chaingql.Options{Limits: chaingql.Limits{BodyBytes: 1000}})
	mux := mounted(h)
	const version = `{"data":{"info":{"version":"0.1.0"}}}`
	const unknownField = `{"errors":[{"message":"Cannot query field \"foo\" on type \"BlockchainQuery\".",` +
		`"locations":[{"line":1,"column":13}],` +
		`"extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}]}`
	onlyGetAndPost := refusalBody("Only GET, POST and QUERY are served.", "METHOD_NOT_ALLOWED")
	big := `{"query":"{info{version}}","extensions":{"x":"` + strings.Repeat("x", 1000) + `"}}`
	own := []string{"Accept", "application/graphql-response+json"}
	as := func(contentType string, more ...string) []string {
		return append([]string{"Content-Type", contentType}, more...)
	}
	plain := as("application/json")
	typed := append(own, plain...)
	const (
		path         = "/demo/graphql"
		unsupported  = `"code":"UNSUPPORTED_MEDIA_TYPE"`
		notJSON      = "The body is not JSON: unexpected end of JSON."
		oneField     = `{"query":"{blockchain{foo}}"}`
		unterminated = `{"query":"query{blockchain{"}`
		subscription = `{"query":"subscription{blocks{id}}"}`
	)

	for _, c := range []struct {
		what, method, target, body string
		header                     []string
		status                     int
		response                   string
	}{
		{"query", "POST", "/demo/graphql", request802, plain, 200, response802},
		{"query as the response type", "POST", "/demo/graphql", request802, append(own, plain...), 200, response802},
		{"trailing slash", "POST", "/demo/graphql/", request802, plain, 200, response802},
		{"GET", "GET", "/demo/graphql?query={info{version}}", "", nil, 200, version},
		{"GET with a trailing slash", "GET", "/demo/graphql/?query={info{version}}", "", nil, 200, version},
		{"HEAD", "HEAD", "/demo/graphql?query={info{version}}", "", nil, 200, ""},
		{"HEAD of a refusal", "HEAD", "/demo/graphql", "", nil, 400, ""},
		{"OPTIONS", "OPTIONS", "/demo/graphql", "", nil, 204, ""},
		{
			"field error", "POST", path,
			`{"query":"{blockchain{account(address:\"zzz\"){info{balance}}}}"}`, plain, 200,
			`{"data":{"blockchain":{"account":null}},"errors":[{"message":"Invalid account address",` +
				`"locations":[{"line":1,"column":13}],"path":["blockchain","account"],` +
				`"extensions":{"code":"BAD_USER_INPUT"}}]}`,
		},
		{"validation", "POST", path, oneField, plain, 200, unknownField},
		{"validation as the response type", "POST", path, oneField, typed, 400, unknownField},
		{"parse", "POST", path, unterminated, plain, 200, `"code":"GRAPHQL_PARSE_FAILED"`},
		{"parse as the response type", "POST", path, unterminated, typed, 400, `"code":"GRAPHQL_PARSE_FAILED"`},
		{
			"bad enum", "POST", path,
			`{"query":"{blockchain{account(address:\"0:00\"){info{balance(format:OCT)}}}}"}`, plain, 200,
			`{"errors":[{"message":"Value \"OCT\" does not exist in \"BigIntFormat\" enum.",` +
				`"locations":[{"line":1,"column":57}],"extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}]}`,
		},
		{
			"missing variable", "POST", path,
			`{"query":"query($address:String!){blockchain{account(address:$address){info{balance}}}}","variables":{}}`,
			typed, 400,
			`{"errors":[{"message":"Variable \"$address\" of required type \"String!\" was not provided.",` +
				`"locations":[{"line":1,"column":7}],"extensions":{"code":"BAD_USER_INPUT"}}]}`,
		},
		{
			"two operations, no name", "POST", path,
			`{"query":"query A{info{version}} query B{info{version}}"}`, typed, 400,
			refusalBody("Must provide operation name if query contains multiple operations.", "BAD_USER_INPUT"),
		},
		{
			"unknown operation name", "POST", path,
			`{"query":"query A{info{version}}","operationName":"B"}`, plain, 200,
			`"code":"BAD_USER_INPUT"`,
		},
		{
			"operation name", "POST", path,
			`{"query":"query A{info{version}} query B{info{rempEnabled}}","operationName":"B"}`, plain, 200,
			`{"data":{"info":{"rempEnabled":false}}}`,
		},
		{
			"batch", "POST", "/demo/graphql", `[{"query":"{info{version}}"}]`, plain, 400,
			refusalBody("Batches are not served: send one operation at a time.", "BAD_REQUEST"),
		},
		{
			"no query", "POST", "/demo/graphql", `{"variables":{}}`, plain, 400,
			refusalBody("Must provide query string.", "BAD_REQUEST"),
		},
		{"broken JSON", "POST", path, `{`, plain, 400, refusalBody(notJSON, "BAD_REQUEST")},
		{"empty body", "POST", path, "", plain, 400, refusalBody(notJSON, "BAD_REQUEST")},
		{"GET without query", "GET", path, "", nil, 400, refusalBody("Must provide query string.", "BAD_REQUEST")},
		{"not JSON as the response type", "POST", path, `{`, typed, 400, `"code":"BAD_REQUEST"`},
		{"mutation", "GET", "/demo/graphql?query=mutation{x}", "", nil, 200, `"code":"GRAPHQL_VALIDATION_FAILED"`},
		{"subscription", "POST", path, subscription, plain, 406, `"code":"NOT_ACCEPTABLE"`},
		{
			"subscription with events refused", "POST", path, subscription,
			append([]string{"Accept", "application/json, text/event-stream;q=0"}, plain...), 406,
			`"code":"NOT_ACCEPTABLE"`,
		},
		{"PUT", "PUT", path, request802, plain, 405, onlyGetAndPost},
		{"DELETE", "DELETE", "/demo/graphql/", "", nil, 405, onlyGetAndPost},
		{
			"unacceptable Accept", "GET", "/demo/graphql?query={info{version}}",
			"", []string{"Accept", "text/html"}, 406, `"code":"NOT_ACCEPTABLE"`,
		},
		{
			"declared too large", "POST", "/demo/graphql", big, plain, 413,
			refusalBody("The body exceeds the limit of 1000 bytes.", "LIMIT_EXCEEDED"),
		},
		{
			"URL too large", "GET", "/demo/graphql?query={info{version}}&x=" + strings.Repeat("x", 1000),
			"", nil, 413, refusalBody("The URL's query exceeds the limit of 1000 bytes.", "LIMIT_EXCEEDED"),
		},
		{
			"path and host too long", "POST", "/" + strings.Repeat("\xff", 493) + "/graphql", request802, plain, 413,
			refusalBody("Path and host exceed the limit of 512 bytes.", "LIMIT_EXCEEDED"),
		},
		{
			"no type", "POST", "/demo/graphql", request802, nil, 415,
			refusalBody("The body must be application/json in UTF-8.", "UNSUPPORTED_MEDIA_TYPE"),
		},
		{"text/plain", "POST", path, request802, as("text/plain"), 415, unsupported},
		{"a form", "POST", path, "query=x", as("application/x-www-form-urlencoded"), 415, unsupported},
		{"malformed type", "POST", path, request802, as("application/json; charset"), 415, unsupported},
		{"utf-8", "POST", path, request802, as(`application/json;charset="UTF-8"`), 200, response802},
		{"latin1", "POST", path, request802, as("application/json; charset=iso-8859-1"), 415, unsupported},
		{
			"gzip", "POST", "/demo/graphql", request802, as("application/json", "Content-Encoding", "gzip"), 415,
			refusalBody("The body must not be compressed.", "UNSUPPORTED_MEDIA_TYPE"),
		},
		{
			"identity, then gzip", "POST", path, request802,
			as("application/json", "Content-Encoding", "identity", "Content-Encoding", "gzip"), 415, unsupported,
		},
		{
			"identity", "POST", path, request802, as("application/json", "Content-Encoding", "identity"), 200,
			response802,
		},
	} {
		t.Run(c.what, func(t *testing.T) {
			w := do(mux, c.method, strings.NewReplacer("{", "%7B", "}", "%7D").Replace(c.target), c.body, c.header...)
			equal(t, "status", w.Code, c.status)
			if body := w.Body.String(); strings.HasPrefix(c.response, "{") {
				equal(t, "body", body, c.response)
			} else if !strings.Contains(body, c.response) || c.response == "" && body != "" {
				t.Errorf("the body is %s, want it to contain %s", body, c.response)
			}
			if w.Code == 204 {
				return
			}
			want := jsonType
			accepted := len(c.header) > 0 && c.header[1] == own[1]
			if (w.Code == 200 || w.Code == 400) && accepted && !strings.Contains(c.response, "BAD_REQUEST") {
				want = graphqlType
			}
			equal(t, "content type", w.Header().Get("Content-Type"), want)
			if w.Code != 200 && strings.Contains(w.Body.String(), `"data"`) {
				t.Errorf("the response has data, although no operation ran: %s", w.Body)
			}
			if allow := w.Header().Get("Allow"); (w.Code == 405) != (allow == "GET, HEAD, OPTIONS, POST, QUERY") {
				t.Errorf("a response with status %d has the header Allow %q", w.Code, allow)
			}
		})
	}
}

// RFC 9110, 9.3.2: without running the query, the Handler would not know the headers.
func TestHeadResponseHasTheHeadersOfGetAndNoContent(t *testing.T) {
	h, _ := newHandler(t, memchain.New(), chaingql.Options{})
	for name, query := range map[string]string{
		"data": "{info{version}}", "unchanging data": "{__typename}", "a refused document": "{nope}", "no document": "",
		"a field error": `{blockchain{block(hash:"1"){id}}}`,
	} {
		target := "/demo/graphql?query=" + url.QueryEscape(query)
		get, head := do(h, "GET", target, ""), do(h, "HEAD", target, "")
		equal(t, name+": status", head.Code, get.Code)
		equal(t, name+": headers", fmt.Sprint(head.Header()), fmt.Sprint(get.Header()))
		equal(t, name+": length", get.Header().Get("Content-Length"), strconv.Itoa(get.Body.Len()))
		equal(t, name+": content", head.Body.String(), "")
	}
}

func TestChunkedBodyIsLimited(t *testing.T) {
	h, _ := newHandler(t, memchain.New(), chaingql.Options{Limits: chaingql.Limits{BodyBytes: 100}})
	srv := httptest.NewServer(h)
	defer srv.Close()
	for size, status := range map[int]int{100: 200, 101: 413} {
		const frame = `{"query":"{info{version}}"}`
		body := frame + strings.Repeat(" ", size-len(frame))
		r, _ := http.NewRequest("POST", srv.URL+"/demo/graphql", struct{ *strings.Reader }{strings.NewReader(body)})
		r.ContentLength = -1
		r.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		equal(t, fmt.Sprintf("status of %d bytes", size), res.StatusCode, status)
	}
	http.DefaultClient.CloseIdleConnections()
}

// A row that is named after a client has the Accept header of that client. If want is empty, the status must be 406.
func TestAcceptHeaderSelectsTheContentType(t *testing.T) {
	h, _ := newHandler(t, memchain.New(), chaingql.Options{})
	for _, c := range []struct{ client, accept, want string }{
		{"none", "-", jsonType},
		{"empty", "", jsonType},
		{"curl, node", "*/*", jsonType},
		{"the SDK", "application/json", jsonType},
		{"Apollo Client 3", "application/graphql-response+json,application/json;q=0.9", graphqlType},
		{"Apollo Client 3.6", "*/*", jsonType},
		{
			"Apollo iOS",
			"multipart/mixed;deferSpec=20220824,application/graphql-response+json,application/json", graphqlType,
		},
		{
			"urql",
			"application/graphql-response+json, application/graphql+json, application/json, " +
				" text/event-stream, multipart/mixed", graphqlType,
		},
		{"graphql-request", "application/graphql-response+json, application/json", graphqlType},
		{"Relay", "application/json; charset=utf-8", jsonType},
		{
			"a browser",
			"text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8", jsonType,
		},
		{"axios", "application/json, text/plain, */*", jsonType},
		{"JSON preferred", "application/graphql-response+json;q=0.5, application/json", jsonType},
		{"own type preferred", "application/json;q=0.5, application/graphql-response+json", graphqlType},
		{"equal, JSON first", "application/json, application/graphql-response+json", jsonType},
		{"JSON twice", "application/json, application/graphql-response+json, application/json", jsonType},
		{"a weight of one", "application/json;q=0.5, application/graphql-response+json;q=1", graphqlType},
		{"application/*", "application/*", jsonType},
		{"wildcard preferred", "application/graphql-response+json;q=0.5, */*;q=0.8", jsonType},
		{"upper case", "Application/JSON", jsonType},
		{"all but JSON", "*/*, application/json;q=0", graphqlType},
		{"all but JSON, turned", "application/json;q=0, */*", graphqlType},
		{"malformed and valid item", "@@, application/json", jsonType},
		{"malformed weight", "application/graphql-response+json;q=2, application/json;q=0.1", jsonType},
		{"nothing but JSON refused", "application/json;q=0", ""},
		{"everything refused", "*/*;q=0", ""},
		{"specific wildcard refused", "application/*;q=0, */*", ""},
		{"other charset", "application/json; charset=utf-16", ""},
		{"malformed", "@@", ""},
	} {
		t.Run(c.client, func(t *testing.T) {
			var header []string
			if c.accept != "-" {
				header = []string{"Accept", c.accept}
			}
			w := post(h, `{"query":"{info{version}}"}`, header...)
			if c.want == "" {
				equal(t, "status", w.Code, 406)
				return
			}
			equal(t, "status", w.Code, 200)
			equal(t, "content type", w.Header().Get("Content-Type"), c.want)
		})
	}
	w := post(h, `{"query":"{info{version}}"}`, "Accept", "text/html", "Accept", "application/graphql-response+json")
	equal(t, "content type by two header lines", w.Header().Get("Content-Type"), graphqlType)
}

func TestConnectionIsReusedAfterAnErrorResponse(t *testing.T) {
	h, _ := newHandler(t, memchain.New(), chaingql.Options{})
	srv := httptest.NewServer(mounted(h))
	defer srv.Close()
	conn, err := new(net.Dialer).DialContext(context.Background(), "tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	for _, c := range []struct {
		body   string
		status int
	}{{`{`, 400}, {`{"query":"{info{version}}"}`, 200}, {`{"query":"{nope}"}`, 200}} {
		fmt.Fprintf(conn, "POST /demo/graphql HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"+
			"Content-Length: %d\r\n\r\n%s", len(c.body), c.body)
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = in.Discard(int(res.ContentLength))
		equal(t, "status of "+c.body, res.StatusCode, c.status)
	}
}

// The headers of several responses share slices of values. If a host adds a value to one of them, the others must not
// change.
func TestHeaderAddedByAHostDoesNotAppearInOtherResponses(t *testing.T) {
	h, _ := newHandler(t, chainOf(t, nil), chaingql.Options{})
	ask := func() http.Header {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("POST", "/demo/graphql", strings.NewReader(`{"query":"{__typename}"}`))
		r.Header.Set("Content-Type", "application/json")
		h.ServeHTTP(w, r)
		return w.Header()
	}
	want := ask().Clone()
	for name := range want {
		first, second := ask(), ask()
		first.Add(name, "mine")
		second.Add(name, "yours")
		if got := first[name]; !slices.Equal(got, append(slices.Clone(want[name]), "mine")) {
			t.Errorf("header %s of the first response is %q", name, got)
		}
	}
	if got := ask(); !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("a later response has the header\n%v\nwant\n%v", got, want)
	}
}
