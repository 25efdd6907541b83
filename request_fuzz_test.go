package chaingql_test

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
)

// The response to any request head must be JSON or an event stream, have a status below 500, and take at most 100 ms.
func FuzzRequestHead(f *testing.F) {
	for _, h := range [][7]string{
		{
			"POST", "/demo/graphql", "*/*", "Basic OnMzY3JldA==",
			"application/json", "https://app.example", `{"query":"{__typename}"}`,
		},
		{
			"GET", "/a%2Fb/graphql?query={__typename}", "application/graphql-response+json;q=0.5, text/event-stream",
			"basic  Og==", "", "null", "",
		},
		{
			"GET", "//graphql?query={__typename}&query={info{version}}&variables={}",
			"application/*", "Bearer x", "", "", "",
		},
		{"HEAD", "/%C3%A9/graphql/?query=%7B__typename%7D", "text/html", "Basic", "", "http://[::1]:80", ""},
		{"OPTIONS", "/../graphql", "", "Basic !!!", "", "https://app.example", ""},
		{
			"POST", "/demo/graphql?query=x", "application/json;q=1.0001,*/*;q=0",
			"Basic " + strings.Repeat("A", 3000), "application/json; charset=utf-16", "", "[]",
		},
	} {
		f.Add(h[0], h[1], h[2], h[3], h[4], h[5], h[6])
	}
	projects := chaingql.StaticProjects{"demo": {}, "a/b": {Secret: "s3cret"}, "é": {Secret: "", RequireSecret: false}}
	h, _ := newHandler(f, referenceChain(f), chaingql.Options{
		Authorizer:     projects,
		AllowedOrigins: []string{"https://app.example"},
	})
	f.Fuzz(func(t *testing.T, method, target, accept, authorization, contentType, origin, body string) {
		u, err := url.ParseRequestURI(target)
		if err != nil || !strings.HasPrefix(target, "/") {
			return // net/http rejects it
		}
		var w *httptest.ResponseRecorder
		took := time.Hour
		for tries := 0; tries < 4 && took > 100*time.Millisecond; tries++ { // the machine may be busy
			r := httptest.NewRequest("GET", "/", strings.NewReader(body))
			r.Method, r.URL, r.RequestURI = method, u, target
			for name, value := range map[string]string{
				"Accept": accept, "Authorization": authorization, "Content-Type": contentType, "Origin": origin,
			} {
				if value != "" {
					r.Header.Set(name, value)
				}
			}
			w = httptest.NewRecorder()
			start := time.Now()
			h.ServeHTTP(w, r)
			took = time.Since(start)
		}
		if took > 100*time.Millisecond {
			t.Errorf("the response took %v, want at most 100ms", took)
		}
		res := w.Result()
		kind := res.Header.Get("Content-Type")
		switch {
		case res.StatusCode >= 500:
			t.Errorf("the response has status %d: %s", res.StatusCode, w.Body)
		case method == http.MethodHead, method == http.MethodOptions, strings.HasPrefix(kind, "text/event-stream"):
		case !strings.Contains(kind, "json") || !json.Valid(w.Body.Bytes()):
			t.Errorf("the response of type %q is not JSON: %s", kind, w.Body)
		}
	})
}

// Cursors must sort like the numbers that they encode. Any text is allowed as the cursor of a query.
func FuzzCursor(f *testing.F) {
	f.Add(uint64(0), uint64(1), uint32(0), "")
	f.Add(uint64(255), uint64(256), uint32(1<<31), "01m")
	f.Add(uint64(1)<<63, ^uint64(0), ^uint32(0), "zz\x00\xff\"")
	h, _ := newHandler(f, chainOf(f, randomBlocks(5, 40)), chaingql.Options{})
	f.Fuzz(func(t *testing.T, a, b uint64, seqNo uint32, after string) {
		if got := cmp.Compare(chaingql.SeqCursor(a), chaingql.SeqCursor(b)); got != cmp.Compare(a, b) {
			t.Errorf("the cursors of %d and %d compare as %d", a, b, got)
		}
		digits := string(chaingql.SeqCursor(a))
		if back, err := strconv.ParseUint(digits[1:], 16, 64); err != nil || back != a {
			t.Errorf("the cursor %s parsed as %d with the error %v", digits, back, err)
		}
		one, other := chaingql.ChainOrder(-1, a, seqNo, 0), chaingql.ChainOrder(0, a, 1, seqNo)
		later := chaingql.ChainOrder(-1, a, seqNo+1, 0)
		if seqNo < ^uint32(0) && (one >= later || other >= later) {
			t.Errorf("%s and %s are not before the next masterchain block", one, other)
		}
		const document = "query($a:String){blockchain{blocks(after:$a first:50){edges{cursor}}}}"
		response := query(h, document, map[string]any{"a": after})
		var page struct {
			Data struct {
				Blockchain struct {
					Blocks struct{ Edges []struct{ Cursor string } }
				}
			}
		}
		if err := json.Unmarshal([]byte(response), &page); err != nil {
			t.Fatal(err)
		}
		last := strings.ToValidUTF8(after, "\uFFFD")
		for _, e := range page.Data.Blockchain.Blocks.Edges {
			if e.Cursor <= last {
				t.Errorf("the page has the cursor %q after %q, although it is not greater", e.Cursor, last)
			}
			last = e.Cursor
		}
	})
}
