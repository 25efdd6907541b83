package chaingql

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/graphql-go/handler"

	"github.com/chaingql/chaingql/internal/plan"
)

func TestDecodeRequestIsStrict(t *testing.T) {
	deep := func(levels int) string { // levels of the whole body
		return `{"query":"q","extensions":` + strings.Repeat(`{"a":`, levels-1) + "1" + strings.Repeat("}", levels)
	}
	plain := handler.RequestOptions{Query: "q"}
	for _, c := range []struct {
		body   string
		want   handler.RequestOptions
		refuse string
	}{
		{body: `{"query":"q"}`, want: plain},
		{body: ` {"query":"q"} ` + "\n", want: plain},
		{body: `{"query":"q","variables":null,"operationName":null,"extensions":null}`, want: plain},
		{body: `{"query":"q","operationName":""}`, want: plain},
		{body: `{"query":"q","id":"1","doc_id":5,"Query":"other"}`, want: plain},
		{
			body: `{"query":"q","variables":{},"extensions":{"a":1}}`,
			want: handler.RequestOptions{Query: "q", Variables: map[string]any{}},
		},
		{
			body: `{"operationName":"A","variables":{"n":12345678901234567890},"query":"q"}`,
			want: handler.RequestOptions{
				Query: "q", OperationName: "A", Variables: map[string]any{"n": json.Number("12345678901234567890")},
			},
		},
		{body: deep(20), want: plain},
		{body: deep(21), refuse: "The body exceeds the limit of 20 nested levels."},
		{body: `{"query":5}`, refuse: `"query" must be a string.`},
		{body: `{"query":["q"]}`, refuse: `"query" must be a string.`},
		{body: `{"query":null}`, refuse: "Must provide query string."},
		{body: `{"query":""}`, refuse: "Must provide query string."},
		{body: `{}`, refuse: "Must provide query string."},
		{body: `{"query":"q","operationName":5}`, refuse: `"operationName" must be a string.`},
		{body: `{"query":"q","variables":[]}`, refuse: `"variables" must be an object.`},
		{body: `{"query":"q","variables":"{}"}`, refuse: `"variables" must be an object.`},
		{body: `{"query":"q","variables":false}`, refuse: `"variables" must be an object.`},
		{body: `{"query":"q","extensions":[]}`, refuse: `"extensions" must be an object.`},
		{body: `{"query":"q","query":"q"}`, refuse: `The body is not JSON: duplicate key "query".`},
		{
			body:   `{"query":"q","variables":{"f":{"a":1,"a":1}}}`,
			refuse: `The body is not JSON: duplicate key "a".`,
		},
		{body: `{"query":"q"}}`, refuse: `The body is not JSON: unexpected '}' at byte 13 of JSON.`},
		{body: `{"query":"q"}{"query":"q"}`, refuse: `The body is not JSON: unexpected '{' at byte 13 of JSON.`},
		{body: `[{"query":"q"}]`, refuse: "Batches are not served: send one operation at a time."},
		{body: `[]`, refuse: "Batches are not served: send one operation at a time."},
		{body: `"q"`, refuse: "The body must be a JSON object."},
		{body: `null`, refuse: "The body must be a JSON object."},
		{body: `{info{version}}`, refuse: `The body is not JSON: unexpected 'i' at byte 1 of JSON.`},
	} {
		got, refused := decodeRequest([]byte(c.body), 20)
		compareRequest(t, c.body, got, refused, c.want, c.refuse)
	}
}

func TestDecodeURLIsStrict(t *testing.T) {
	for _, c := range []struct {
		url    string
		want   handler.RequestOptions
		refuse string
	}{
		{url: "query=q", want: handler.RequestOptions{Query: "q"}},
		{url: "query=%7Ba%7D+b&x=1&x=2", want: handler.RequestOptions{Query: "{a} b"}},
		{url: "query=q&operationName=A", want: handler.RequestOptions{Query: "q", OperationName: "A"}},
		{url: "query=q&operationName=&variables=&extensions=", want: handler.RequestOptions{Query: "q"}},
		{url: "query=q&variables=null&extensions=null", want: handler.RequestOptions{Query: "q"}},
		{
			url:  `query=q&variables={"a":1}&extensions={}`,
			want: handler.RequestOptions{Query: "q", Variables: map[string]any{"a": json.Number("1")}},
		},
		{url: "query=" + strings.Repeat("q", 10_000), want: handler.RequestOptions{Query: strings.Repeat("q", 10_000)}},
		{url: "query=q" + strings.Repeat("&0", 63), want: handler.RequestOptions{Query: "q"}},
		{url: "query=q" + strings.Repeat("&0", 64), refuse: "The URL's query has more than 64 parameters."},
		{url: "", refuse: "Must provide query string."},
		{url: "query=", refuse: "Must provide query string."},
		{url: "query=q&query=q", refuse: "Duplicate parameter query."},
		{url: "query=q&operationName=A&operationName=A", refuse: "Duplicate parameter operationName."},
		{url: "query=q&variables={}&variables={}", refuse: "Duplicate parameter variables."},
		{url: "query=%zz", refuse: "The URL's query is malformed."},
		{url: "query=q;variables={}", refuse: "The URL's query is malformed."},
		{url: "query=q&variables={", refuse: "Parameter variables is not JSON: unexpected end of JSON."},
		{url: "query=q&extensions=x", refuse: "Parameter extensions is not JSON: unexpected 'x' at byte 0 of JSON."},
		{url: "query=q&variables=[]", refuse: `"variables" must be an object.`},
		{url: "query=q&extensions=5", refuse: `"extensions" must be an object.`},
		{url: `query=q&variables={"a":1,"a":1}`, refuse: `Parameter variables is not JSON: duplicate key "a".`},
		{
			url:    "query=q&variables=" + strings.Repeat("[", 21),
			refuse: "Parameter variables exceeds the limit of 20 nested levels.",
		},
	} {
		got, refused := decodeURL(c.url, 20)
		compareRequest(t, c.url, got, refused, c.want, c.refuse)
	}
}

// A client may fill a URL with parameters that have no meaning.
func TestDecodeURLAllocatesLittleForAnyURL(t *testing.T) {
	for name, url := range map[string]string{
		"many short parameters": "query=q" + strings.Repeat("&0", 64<<10),
		"as many as allowed":    "query=q" + strings.Repeat("&%30=%30", 63),
		"one long parameter":    "query=q&x=" + strings.Repeat("%30", 40<<10),
	} {
		if got := testing.AllocsPerRun(5, func() { _, _ = decodeURL(url, 20) }); got > 400 {
			t.Errorf("%s: %v allocations, want at most 400", name, got)
		}
	}
}

func compareRequest(
	t *testing.T, what string, got *request, refused *httpError, want handler.RequestOptions, refuse string,
) {
	t.Helper()
	switch {
	case refuse != "":
		if refused == nil || refused.Message != refuse {
			t.Errorf("%.80s: got request %+v and error %+v, want the error %q", what, got, refused, refuse)
			return
		}
		code := codeBadRequest
		if strings.Contains(refuse, "limit") {
			code = plan.CodeLimit
		}
		if statusCodes[refused.status].today != 400 || refused.Code != code {
			t.Errorf("%.80s: the error has status %d and code %s, want 400 and %s",
				what, refused.status, refused.Code, code)
		}
	case refused != nil || !reflect.DeepEqual(got.RequestOptions, want):
		t.Errorf("%.80s: got request %+v and error %+v, want %+v", what, got, refused, want)
	}
}

// FuzzDecodeRequest checks that a body is either refused with a status and a code, or decoded as by encoding/json. A
// GET with the same parameters must yield the same request.
func FuzzDecodeRequest(f *testing.F) {
	for _, seed := range []string{
		`{"query":"{info{version}}","variables":null}`,
		`{"query":"q","operationName":"A","variables":{"a":[1]},"extensions":{}}`,
		`[{}]`, `{"query":5}`, `{"query":"q","query":"q"}`, `{}`, `null`, `{"query":"q","variables":{"a":{"b":{}}}}x`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, refused := decodeRequest(body, 20)
		if refused != nil {
			if got != nil || statusCodes[refused.status].today != 400 || refused.Code == "" || refused.Message == "" {
				t.Fatalf("%q: got request %+v with the invalid error %+v", body, got, refused)
			}
			return
		}
		var want map[string]any
		if err := json.Unmarshal(body, &want); err != nil {
			t.Fatalf("%q was accepted, but encoding/json returned %v", body, err)
		}
		if got.Query == "" || got.Query != want["query"] {
			t.Fatalf("%q: the query is %q, want %q", body, got.Query, want["query"])
		}
		variables, err := json.Marshal(got.Variables)
		if err != nil {
			t.Fatal(err)
		}
		values := url.Values{
			"query": {got.Query}, "operationName": {got.OperationName}, "variables": {string(variables)},
		}
		again, refused := decodeURL(values.Encode(), 20)
		if refused != nil || !reflect.DeepEqual(again, got) {
			t.Fatalf("%q: by GET the request is %+v with error %+v, by POST it is %+v", body, again, refused, got)
		}
	})
}

// plainBodies contains bodies, and whether scan accepts them. The strict decoder may accept the others.
var plainBodies = map[string]bool{
	`{"query":"{a}"}`: true,
	` { "query" : "{a}" , "variables" : { "a" : "x" , "n" : -1.5e3 } , ` +
		`"operationName" : "A" , "extensions" : null } `: true,
	`{"variables":{},"query":"{a}"}`:                                                      true,
	`{"variables":null,"operationName":null,"query":"{a}"}`:                               true,
	`{"query":"{a(s:\"x\")\n\t\r\\\/}","operationName":""}`:                               true,
	`{"query":"{a}","variables":{"f":{"in":[1,{"a":[true,false,null]}]},"s":"\u00e9 é"}}`: true,
	`{"query":"é"}`:                                          true,
	`{"query":"\u0061\ud83d\ude00"}`:                         true,
	`{"query" "{a}"}`:                                        false,
	`{"query":"{a}","variables":{"a" 1}}`:                    false,
	`{"query":"\"","variables":{"a":"\"\u00e9","\"b":"\""}}`: true,

	`{"query":"{a}","id":1}`:                             false,
	`{"query":"{a}","extensions":{}}`:                    false,
	`{"query":"{a}","variables":{"\u0061":1}}`:           true,
	`{"query":""}`:                                       false,
	`{"query":null}`:                                     false,
	`{"query":"{a}"}x`:                                   false,
	`{"query":"{a}"`:                                     false,
	`{"query":"{a}",}`:                                   false,
	`{"query":"{a}","query":"{a}"}`:                      false,
	`{"query":"{a}","variables":{"a":1,"a":1}}`:          false,
	`{"query":"{a}","variables":{"a":{"b":1,"b":1}}}`:    false,
	`{"query":"{a}","variables":{"a":1,}}`:               false,
	`{"query":"{a}","variables":[]}`:                     false,
	`{"query":"{a}","operationName":5}`:                  false,
	"{\"query\":\"{a}\x01\"}":                            false,
	"{\"query\":\"{\\n \\n}\"}":                          true,
	"{\"query\":\"{\\n \x80\"}":                          false,
	"{\"query\":\"{\\n \x1f\"}":                          false,
	`{"query":"{\n a}`:                                   false,
	`{"query":"{\n a}\`:                                  false,
	"{\"query\":\"{a}\xff\"}":                            false,
	"{\"query\":\"{a}\",\"variables\":{\"a\":\"\xff\"}}": false,
	"{\"query\":\"{a}\",\"variables\":{\"a\":\"\n\"}}":   false,
	"{\"query\":\"{a}\"}\x00":                            false,
	`[{"query":"{a}"}]`:                                  false,
	`null`:                                               false,
	``:                                                   false,
}

// compareScan compares the result of scan with that of decodeRequest. It reports whether scan accepts the body.
func compareScan(t *testing.T, body []byte, depth int) (found bool) {
	t.Helper()
	var s scan
	if !s.read(bytes.Clone(body), depth) {
		return false
	}
	if !s.read(bytes.Clone(body), depth) { // this time, the query repeats the last one
		t.Fatalf("scan accepts %q only once", body)
	}
	var got request
	got.Query, got.OperationName = string(s.query), s.operation
	for _, v := range s.given {
		if got.Variables == nil {
			got.Variables = map[string]any{}
		}
		if text, ok := v.Value.(*plan.Text); ok {
			v.Value = string(*text)
		}
		got.Variables[string(v.Name)] = v.Value
	}
	want, refused := decodeRequest(body, depth)
	if refused != nil {
		t.Fatalf("scan accepts %q, decodeRequest refuses it with %q", body, refused.Message)
	}
	if len(want.Variables) == 0 {
		want.Variables = nil // equivalent to an empty map
	}
	if !reflect.DeepEqual(&got, want) {
		t.Fatalf("scan of %q yields %+v, want %+v", body, got, want)
	}
	return true
}

func TestBodyScannerAgreesWithTheDecoder(t *testing.T) {
	for body, plain := range plainBodies {
		if found := compareScan(t, []byte(body), 20); found != plain {
			t.Errorf("scan of %q returned %v, want %v", body, found, plain)
		}
	}
	many := func(n int) string {
		var b strings.Builder
		b.WriteString(`{"query":"{a}","variables":{`)
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(`"` + strings.Repeat("v", i+1) + `":1`)
		}
		return b.String() + "}}"
	}
	if !compareScan(t, []byte(many(maxScanned)), 20) || compareScan(t, []byte(many(maxScanned+1)), 20) {
		t.Error("scan does not stop at maxScanned variables")
	}
	deep := []byte(`{"query":"{a}","variables":{"a":[[1]]}}`)
	for depth, plain := range map[int]bool{0: true, 1: false, 2: false, 3: false, 4: true, 5: true} {
		if found := compareScan(t, deep, depth); found != plain {
			t.Errorf("with a depth of %d, scan returned %v, want %v", depth, found, plain)
		}
	}
}

// FuzzScan checks that decodeRequest accepts every body that scan accepts, with the same result.
func FuzzScan(f *testing.F) {
	for _, body := range slices.Sorted(maps.Keys(plainBodies)) {
		f.Add([]byte(body), 20)
	}
	for _, seed := range []string{
		`{"query":"a","variables":{"":"\\","b":[]}}`,
		`{"query":"a\"","variables":{"a":"\"","a\"":1}}`,
		`{"query":"a","variables":{"a":01}}`,
	} {
		f.Add([]byte(seed), 3)
	}
	f.Fuzz(func(t *testing.T, body []byte, depth int) {
		compareScan(t, body, min(depth, 100))
		var plain map[string]json.RawMessage
		if json.Unmarshal(body, &plain) == nil && compareScan(t, body, 20) && plain["query"] == nil {
			t.Fatalf("%q has no query", body)
		}
	})
}

// BenchmarkScan compares scan with the strict decoder.
func BenchmarkScan(b *testing.B) {
	body := []byte(`{"query":"query balance($address: String!) { blockchain ` +
		`{ account(address: $address) { info { address balance(format: DEC) } } } }",` +
		`"variables":{"address":"0:83dfd552e63729b472fcbcc8c45ebcc6691702558b68ec7527e1ba403a0f31a8"}}`)
	b.Run("scan", func(b *testing.B) {
		b.ReportAllocs()
		var s scan
		for b.Loop() {
			if !s.read(body, 20) {
				b.Fatal("scan did not accept the body")
			}
		}
	})
	b.Run("strict reader", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, refused := decodeRequest(body, 20); refused != nil {
				b.Fatal(refused)
			}
		}
	})
}
