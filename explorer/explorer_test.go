package explorer_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/chaingql/chaingql/explorer"
)

// get sends a request to h. header has names and values in turn.
func get(h http.Handler, method, path string, header ...string) *http.Response {
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

// body returns the body of a response.
func body(t *testing.T, resp *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// references matches the assets that a page loads: its scripts, its styles and its icon.
var references = regexp.MustCompile(`(?:src|href)="(assets/[^"]+-[^"]+)"`)

// assetsOf returns the paths of the assets that the page at path loads.
func assetsOf(t *testing.T, h http.Handler, path string) []string {
	t.Helper()
	var names []string
	for _, found := range references.FindAllStringSubmatch(body(t, get(h, "GET", path)), -1) {
		names = append(names, found[1])
	}
	return names
}

// directives parses the Content-Security-Policy of a response.
func directives(resp *http.Response) map[string]string {
	found := map[string]string{}
	for directive := range strings.SplitSeq(resp.Header.Get("Content-Security-Policy"), ";") {
		name, sources, _ := strings.Cut(strings.TrimSpace(directive), " ")
		found[name] = sources
	}
	return found
}

func TestPagesHaveStrictSecurityHeaders(t *testing.T) {
	h := explorer.New(nil)
	for path, title := range map[string]string{"/": "Explorer · chaingql", "/live": "Live · chaingql"} {
		resp := get(h, "GET", path)
		text := body(t, resp)
		if resp.StatusCode != http.StatusOK || !strings.Contains(text, "<title>"+title+"</title>") {
			t.Errorf("%s: got status %s, want 200 and the title %q in the page:\n%s", path, resp.Status, title, text)
		}
		for name, want := range map[string]string{
			"Content-Type":                 "text/html; charset=utf-8",
			"X-Content-Type-Options":       "nosniff",
			"Referrer-Policy":              "no-referrer",
			"Cross-Origin-Opener-Policy":   "same-origin",
			"Cross-Origin-Resource-Policy": "same-origin",
			"Cache-Control":                "no-cache",
		} {
			if got := resp.Header.Get(name); got != want {
				t.Errorf("%s: header %s is %q, want %q", path, name, got, want)
			}
		}
		policy := directives(resp)
		for name, want := range map[string]string{
			"default-src": "'none'", "script-src": "'self'", "connect-src": "'self'", "base-uri": "'none'",
			"form-action": "'none'", "frame-ancestors": "'none'",
		} {
			if policy[name] != want {
				t.Errorf("%s: policy directive %s is %q, want %q", path, name, policy[name], want)
			}
		}
		if regexp.MustCompile(`<script[^>]*>[^<]|<style|\son\w+=|\sstyle=|https?://`).MatchString(text) {
			t.Errorf("%s has inline content or refers to another origin:\n%s", path, text)
		}
	}
}

func TestLiveViewContentSecurityPolicyHasNoExceptions(t *testing.T) {
	policy := directives(get(explorer.New(nil), "GET", "/live"))
	styles, attributes, trusted := policy["style-src"], policy["style-src-attr"], policy["require-trusted-types-for"]
	if styles != "'self'" || attributes != "" || trusted != "'script'" {
		t.Errorf("policy of the live view permits inline styles or does not require trusted types: %v", policy)
	}
}

func TestEachResponseHasNewNonce(t *testing.T) {
	h := explorer.New(nil)
	seen := map[string]bool{}
	for range 3 {
		resp := get(h, "GET", "/")
		nonce := regexp.MustCompile(`nonce="(\w{20,})"`).FindStringSubmatch(body(t, resp))
		if nonce == nil || seen[nonce[1]] {
			t.Fatalf("nonce %q is missing or was used in an earlier response: %v", nonce, seen)
		}
		seen[nonce[1]] = true
		if got, want := directives(resp)["style-src"], "'self' 'nonce-"+nonce[1]+"'"; got != want {
			t.Errorf("policy directive style-src is %q, want %q", got, want)
		}
	}
}

func TestAssetsAreCachedAsImmutable(t *testing.T) {
	h := explorer.New(nil)
	types := regexp.MustCompile(`^(text/css|text/javascript); charset=utf-8$|^image/svg\+xml$`)
	for _, page := range []string{"/", "/live"} {
		names := assetsOf(t, h, page)
		if len(names) != 3 {
			t.Fatalf("page %s refers to the assets %v, want three", page, names)
		}
		for _, name := range names {
			if !regexp.MustCompile(`-[A-Z0-9]{8}\.\w+$`).MatchString(name) {
				t.Errorf("the asset name %s has no hash", name)
			}
			resp := get(h, "GET", "/"+name)
			for header, want := range map[string]string{
				"Cache-Control":           "public, max-age=31536000, immutable",
				"X-Content-Type-Options":  "nosniff",
				"Vary":                    "Accept-Encoding",
				"Content-Encoding":        "",
				"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
			} {
				if got := resp.Header.Get(header); got != want {
					t.Errorf("%s: header %s is %q, want %q", name, header, got, want)
				}
			}
			if !types.MatchString(resp.Header.Get("Content-Type")) {
				t.Errorf("%s: Content-Type is %q, want CSS, JavaScript or SVG", name, resp.Header.Get("Content-Type"))
			}
		}
	}
}

func TestAssetsAreCompressedIfClientAcceptsGzip(t *testing.T) {
	h := explorer.New(nil)
	name := "/" + assetsOf(t, h, "/live")[2]
	plain := body(t, get(h, "GET", name))
	if !strings.Contains(plain, "workchain_id") {
		t.Fatalf("%s does not contain workchain_id; it starts with %.100q", name, plain)
	}
	for accept, packed := range map[string]bool{
		"gzip": true, "br, gzip;q=0.5": true, "*": true, "deflate,gzip": true, "gzip; q=1.0": true,
		"gzip;q=0": false, "gzip;q=0.000": false, "br": false, "x-gzip": false, "gzip;q=x": false, "identity": false,
	} {
		resp := get(h, "GET", name, "Accept-Encoding", accept)
		got := body(t, resp)
		if (resp.Header.Get("Content-Encoding") == "gzip") != packed {
			t.Errorf("Accept-Encoding %q: Content-Encoding gzip is %v, want %v", accept, !packed, packed)
		}
		if packed {
			r, err := gzip.NewReader(strings.NewReader(got))
			if err != nil {
				t.Errorf("Accept-Encoding %q: the body is not gzip: %v", accept, err)
				continue
			}
			text, err := io.ReadAll(r)
			if got = string(text); err != nil {
				t.Errorf("Accept-Encoding %q: decompressing the body failed: %v", accept, err)
			}
		}
		if length := resp.Header.Get("Content-Length"); !packed && length != strconv.Itoa(len(got)) {
			t.Errorf("Accept-Encoding %q: Content-Length is %s, but the body has %d bytes", accept, length, len(got))
		}
		if got != plain {
			t.Errorf("Accept-Encoding %q: the content differs from that of a request without Accept-Encoding", accept)
		}
	}
}

func TestAllBuiltFilesAreServed(t *testing.T) {
	h := explorer.New(nil)
	entries, err := os.ReadDir("assets")
	if err != nil || len(entries) < 10 {
		t.Fatalf("the folder assets has %d files (error %v), want at least 10", len(entries), err)
	}
	for _, entry := range entries {
		name := strings.TrimSuffix(entry.Name(), ".gz")
		resp := get(h, "GET", "/assets/"+name)
		size, contentType := len(body(t, resp)), resp.Header.Get("Content-Type")
		if resp.StatusCode != http.StatusOK || size == 0 || contentType == "" {
			t.Errorf("%s: got status %s, %d bytes and Content-Type %q", name, resp.Status, size, contentType)
		}
	}
}

func TestLicensesAreServed(t *testing.T) {
	resp := get(explorer.New(nil), "GET", "/assets/LICENSES.txt")
	text := body(t, resp)
	for _, name := range []string{"graphiql 5.", "monaco-editor 0.", "react 19.", "graphql-ws 6.", "prettier 3."} {
		if !strings.Contains(text, "\n"+name) {
			t.Errorf("LICENSES.txt has no line that starts with %q", name)
		}
	}
	if h := resp.Header; h.Get("Content-Type") != "text/plain; charset=utf-8" || h.Get("Cache-Control") != "no-cache" {
		t.Errorf("LICENSES.txt has headers %v, want Content-Type text/plain and Cache-Control no-cache", h)
	}
}

func TestHEADHasHeadersOfGETButNoBody(t *testing.T) {
	h := explorer.New(nil)
	for _, path := range []string{"/", "/live", "/assets/LICENSES.txt", "/" + assetsOf(t, h, "/")[0]} {
		want, got := get(h, "GET", path), get(h, "HEAD", path)
		if text := body(t, got); text != "" || got.StatusCode != http.StatusOK {
			t.Errorf("HEAD %s: got status %s and body %.50q, want 200 without a body", path, got.Status, text)
		}
		for _, name := range []string{"Content-Length", "Content-Type", "Cache-Control"} {
			if got, want := got.Header.Get(name), want.Header.Get(name); got != want || got == "" {
				t.Errorf("HEAD %s: header %s is %q, GET has %q", path, name, got, want)
			}
		}
	}
}

func TestUnknownPathIs404(t *testing.T) {
	h := explorer.New(nil)
	packed := assetsOf(t, h, "/")[0] + ".gz"
	for _, path := range []string{
		"/nothing", "/live/", "/live.html", "/index.html", "/assets", "/assets/", "/assets/nothing.js", "/" + packed,
		"/assets/../explorer.go", "/assets/..%2fexplorer.go", "/../explorer.go", "/assets/../assets/LICENSES.txt",
		"//", "/pages/live.html", "/web/package.json",
	} {
		for _, method := range []string{"GET", "POST"} {
			r := httptest.NewRequest(method, "/", nil)
			r.URL.Path = strings.ReplaceAll(path, "%2f", "/")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			header := w.Header()
			sniffing, caching := header.Get("X-Content-Type-Options"), header.Get("Cache-Control")
			if w.Code != http.StatusNotFound || sniffing != "nosniff" || caching != "" {
				t.Errorf("%s %s: got status %d and headers %v, want 404 and nosniff", method, path, w.Code, header)
			}
		}
	}
}

func TestOtherMethodsAre405WithAllow(t *testing.T) {
	h := explorer.New(nil)
	for _, path := range []string{"/", "/live", "/assets/LICENSES.txt"} {
		for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS"} {
			resp := get(h, method, path)
			allow := resp.Header.Get("Allow")
			if resp.StatusCode != http.StatusMethodNotAllowed || allow != "GET, HEAD" {
				t.Errorf("%s %s: got status %s and Allow %q, want 405 and GET, HEAD", method, path, resp.Status, allow)
			}
		}
	}
}

func TestExplorerWorksUnderPathPrefix(t *testing.T) {
	for _, prefix := range []string{"/tools/explorer", "/tools/explorer/"} {
		mux := http.NewServeMux()
		mux.Handle("/tools/explorer/", http.StripPrefix(prefix, explorer.New(nil)))
		for _, path := range []string{"/tools/explorer/", "/tools/explorer/live"} {
			resp := get(mux, "GET", path)
			if resp.StatusCode != http.StatusOK {
				t.Fatalf("%s: got status %s, want 200", path, resp.Status)
			}
			names := assetsOf(t, mux, path)
			if len(names) != 3 {
				t.Fatalf("page %s refers to the assets %v, want three", path, names)
			}
			for _, name := range names { // names are relative to the URL of the page
				if r := get(mux, "GET", "/tools/explorer/"+name); r.StatusCode != http.StatusOK {
					t.Errorf("asset %s of page %s: got status %s, want 200", name, path, r.Status)
				}
			}
		}
		r := get(mux, "GET", "/tools/explorer")
		if to := r.Header.Get("Location"); r.StatusCode/100 != 3 || to != "/tools/explorer/" {
			t.Errorf("/tools/explorer: got status %s and Location %q, want a redirect", r.Status, to)
		}
	}
}

func TestOptionsAppearEscapedInPages(t *testing.T) {
	opts := &explorer.Options{Project: `a"><script>`, Title: "Our <chain> {project}{nonce}", Account: `0:"ab`}
	opts.Endpoint = `https://api.example:8443/{project}/graphql?"`
	h := explorer.New(opts)
	opts.Title = "changed later"
	for _, path := range []string{"/", "/live"} {
		resp := get(h, "GET", path)
		text := body(t, resp)
		for _, want := range []string{
			`data-endpoint="https://api.example:8443/{project}/graphql?&#34;"`,
			"Our &lt;chain&gt; {project}{nonce}", `value="a&#34;&gt;&lt;script&gt;"`, `"0:&#34;ab"`,
		} {
			if !strings.Contains(text, want) {
				t.Errorf("page %s does not contain %s:\n%s", path, want, text)
			}
		}
		if got := directives(resp)["connect-src"]; got != "https://api.example:8443 wss://api.example:8443" {
			t.Errorf("page %s: policy directive connect-src is %q, want the origin of Endpoint", path, got)
		}
	}
}

func TestProjectFieldIsHiddenIfEndpointHasNoProject(t *testing.T) {
	const with = "/{project}/graphql"
	for endpoint, want := range map[string]bool{"": false, with: false, ".." + with: false, "/api": true, "api": true} {
		text := body(t, get(explorer.New(&explorer.Options{Endpoint: endpoint}), "GET", "/live"))
		if strings.Contains(text, `<label hidden>Project`) != want {
			t.Errorf("endpoint %q: want a hidden project field: %v; the page is\n%s", endpoint, want, text)
		}
	}
}

func TestInvalidEndpointPanics(t *testing.T) {
	for _, endpoint := range []string{
		"ftp://host/graphql", "//host/graphql", "http:///graphql", "https://u:p@host/graphql", "javascript:alert(1)",
		"https://a;b/graphql", "https://{project}.example/graphql", "%zz",
	} {
		func() {
			defer func() {
				if p, ok := recover().(string); !ok || !strings.HasPrefix(p, "explorer: New: Endpoint: ") {
					t.Errorf("New with endpoint %q panicked with %q, want a message about Endpoint", endpoint, p)
				}
			}()
			explorer.New(&explorer.Options{Endpoint: endpoint})
		}()
	}
}

func TestLiveViewLoadsLessThan20KB(t *testing.T) {
	h := explorer.New(nil)
	size := 0
	for _, name := range assetsOf(t, h, "/live") {
		size += len(body(t, get(h, "GET", "/"+name, "Accept-Encoding", "gzip")))
	}
	if page := []byte(body(t, get(h, "GET", "/live"))); size > 20_000 || bytes.Contains(page, []byte("explorer-")) {
		t.Errorf("the live view loads %d bytes (want at most 20,000) or a file of the GraphiQL page", size)
	}
}
