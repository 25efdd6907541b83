package chaingql

import (
	"encoding/json"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/graphql-go/handler"

	"github.com/chaingql/chaingql/internal/plan"
)

func TestBodyIsOneStrictObject(t *testing.T) {
	deep := func(levels int) string { // of the whole body
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
		{body: `{"query":"q","variables":{},"extensions":{"a":1}}`, want: handler.RequestOptions{Query: "q", Variables: map[string]any{}}},
		{body: `{"operationName":"A","variables":{"n":12345678901234567890},"query":"q"}`,
			want: handler.RequestOptions{Query: "q", OperationName: "A", Variables: map[string]any{"n": json.Number("12345678901234567890")}}},
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
		{body: `{"query":"q","query":"q"}`, refuse: `The body is not JSON: key "query" is there twice.`},
		{body: `{"query":"q","variables":{"f":{"a":1,"a":1}}}`, refuse: `The body is not JSON: key "a" is there twice.`},
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

func TestURLParametersAreReadStrictly(t *testing.T) {
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
		{url: `query=q&variables={"a":1}&extensions={}`, want: handler.RequestOptions{Query: "q", Variables: map[string]any{"a": json.Number("1")}}},
		{url: "query=" + strings.Repeat("q", 10_000), want: handler.RequestOptions{Query: strings.Repeat("q", 10_000)}},
		{url: "", refuse: "Must provide query string."},
		{url: "query=", refuse: "Must provide query string."},
		{url: "query=q&query=q", refuse: "Parameter query is there twice."},
		{url: "query=q&operationName=A&operationName=A", refuse: "Parameter operationName is there twice."},
		{url: "query=q&variables={}&variables={}", refuse: "Parameter variables is there twice."},
		{url: "query=%zz", refuse: "The URL's query is malformed."},
		{url: "query=q;variables={}", refuse: "The URL's query is malformed."},
		{url: "query=q&variables={", refuse: "Parameter variables is not JSON: unexpected end of JSON."},
		{url: "query=q&extensions=x", refuse: "Parameter extensions is not JSON: unexpected 'x' at byte 0 of JSON."},
		{url: "query=q&variables=[]", refuse: `"variables" must be an object.`},
		{url: "query=q&extensions=5", refuse: `"extensions" must be an object.`},
		{url: `query=q&variables={"a":1,"a":1}`, refuse: `Parameter variables is not JSON: key "a" is there twice.`},
		{url: "query=q&variables=" + strings.Repeat("[", 21), refuse: "Parameter variables exceeds the limit of 20 nested levels."},
	} {
		got, refused := decodeURL(c.url, 20)
		compareRequest(t, c.url, got, refused, c.want, c.refuse)
	}
}

func compareRequest(t *testing.T, what string, got *request, refused *refusal, want handler.RequestOptions, refuse string) {
	t.Helper()
	switch {
	case refuse != "":
		if refused == nil || refused.Message != refuse {
			t.Errorf("%.80s: %+v, %+v, want refusal %q", what, got, refused, refuse)
			return
		}
		code := codeBadRequest
		if strings.Contains(refuse, "limit") {
			code = plan.CodeLimit
		}
		if refused.status != 400 || refused.Code != code {
			t.Errorf("%.80s: status %d and code %s", what, refused.status, refused.Code)
		}
	case refused != nil || !reflect.DeepEqual(got.RequestOptions, want):
		t.Errorf("%.80s: %+v, %+v, want %+v", what, got, refused, want)
	}
}

// FuzzDecodeRequest: a body is refused with a status and a code, or is what
// encoding/json finds in it; and a GET with the same parts is the same request.
func FuzzDecodeRequest(f *testing.F) {
	for _, seed := range []string{
		`{"query":"{info{version}}","variables":null}`, `{"query":"q","operationName":"A","variables":{"a":[1]},"extensions":{}}`,
		`[{}]`, `{"query":5}`, `{"query":"q","query":"q"}`, `{}`, `null`, `{"query":"q","variables":{"a":{"b":{}}}}x`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, refused := decodeRequest(body, 20)
		if refused != nil {
			if got != nil || refused.status != 400 || refused.Code == "" || refused.Message == "" {
				t.Fatalf("%q: %+v, refused with %+v", body, got, refused)
			}
			return
		}
		var want map[string]any
		if err := json.Unmarshal(body, &want); err != nil {
			t.Fatalf("%q is taken: %v", body, err)
		}
		if got.Query == "" || got.Query != want["query"] {
			t.Fatalf("%q: query %q", body, got.Query)
		}
		variables, err := json.Marshal(got.Variables)
		if err != nil {
			t.Fatal(err)
		}
		values := url.Values{"query": {got.Query}, "operationName": {got.OperationName}, "variables": {string(variables)}}
		again, refused := decodeURL(values.Encode(), 20)
		if refused != nil || !reflect.DeepEqual(again, got) {
			t.Fatalf("%q: by GET %+v, %+v, by POST %+v", body, again, refused, got)
		}
	})
}
