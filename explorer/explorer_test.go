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

func get(h http.Handler, method, path string, header ...string) *http.Response {
	r := httptest.NewRequest(method, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, resp *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// references matches the files that a page loads: scripts, styles, the icon.
var references = regexp.MustCompile(`(?:src|href)="(assets/[^"]+-[^"]+)"`)

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

func TestPagesHaveStrictPolicy(t *testing.T) {
	h := explorer.New(nil)
	for path, title := range map[string]string{"/": "Explorer · chaingql", "/live": "Live · chaingql"} {
		resp := get(h, "GET", path)
		text := body(t, resp)
		if resp.StatusCode != http.StatusOK || !strings.Contains(text, "<title>"+title+"</title>") {
			t.Errorf("%s: %s, %s", path, resp.Status, text)
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
				t.Errorf("%s: %s is %q, want %q", path, name, got, want)
			}
		}
		policy := directives(resp)
		for name, want := range map[string]string{
			"default-src": "'none'", "script-src": "'self'", "connect-src": "'self'", "base-uri": "'none'",
			"form-action": "'none'", "frame-ancestors": "'none'",
		} {
			if policy[name] != want {
				t.Errorf("%s: %s is %q, want %q", path, name, policy[name], want)
			}
		}
		if regexp.MustCompile(`<script[^>]*>[^<]|<style|\son\w+=|\sstyle=|https?://`).MatchString(text) {
			t.Errorf("%s has inline content or refers to another origin:\n%s", path, text)
		}
	}
}

func TestLiveViewPolicyHasNoStyleException(t *testing.T) {
	policy := directives(get(explorer.New(nil), "GET", "/live"))
	if policy["style-src"] != "'self'" || policy["style-src-attr"] != "" || policy["require-trusted-types-for"] != "'script'" {
		t.Errorf("policy %v", policy)
	}
}

func TestNonceIsUniquePerResponse(t *testing.T) {
	h := explorer.New(nil)
	seen := map[string]bool{}
	for range 3 {
		resp := get(h, "GET", "/")
		nonce := regexp.MustCompile(`nonce="(\w{20,})"`).FindStringSubmatch(body(t, resp))
		if nonce == nil || seen[nonce[1]] {
			t.Fatalf("nonce %q, after %v", nonce, seen)
		}
		seen[nonce[1]] = true
		if got, want := directives(resp)["style-src"], "'self' 'nonce-"+nonce[1]+"'"; got != want {
			t.Errorf("style-src %q, want %q", got, want)
		}
	}
}

func TestAssetsAreImmutable(t *testing.T) {
	h := explorer.New(nil)
	types := regexp.MustCompile(`^(text/css|text/javascript); charset=utf-8$|^image/svg\+xml$`)
	for _, page := range []string{"/", "/live"} {
		names := assetsOf(t, h, page)
		if len(names) != 3 {
			t.Fatalf("%s refers to %v", page, names)
		}
		for _, name := range names {
			if !regexp.MustCompile(`-[A-Z0-9]{8}\.\w+$`).MatchString(name) {
				t.Errorf("%s has no hash in its name", name)
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
					t.Errorf("%s: %s is %q, want %q", name, header, got, want)
				}
			}
			if !types.MatchString(resp.Header.Get("Content-Type")) {
				t.Errorf("%s is %q", name, resp.Header.Get("Content-Type"))
			}
		}
	}
}

func TestAssetsAreCompressedIfAccepted(t *testing.T) {
	h := explorer.New(nil)
	name := "/" + assetsOf(t, h, "/live")[2]
	plain := body(t, get(h, "GET", name))
	if !strings.Contains(plain, "workchain_id") {
		t.Fatalf("%s is %.100q", name, plain)
	}
	for accept, packed := range map[string]bool{
		"gzip": true, "br, gzip;q=0.5": true, "*": true, "deflate,gzip": true, "gzip; q=1.0": true,
		"gzip;q=0": false, "gzip;q=0.000": false, "br": false, "x-gzip": false, "gzip;q=x": false, "identity": false,
	} {
		resp := get(h, "GET", name, "Accept-Encoding", accept)
		got := body(t, resp)
		if (resp.Header.Get("Content-Encoding") == "gzip") != packed {
			t.Errorf("%q: Content-Encoding %q", accept, resp.Header.Get("Content-Encoding"))
		}
		if packed {
			r, err := gzip.NewReader(strings.NewReader(got))
			if err != nil {
				t.Errorf("%q: %v", accept, err)
				continue
			}
			text, err := io.ReadAll(r)
			if got = string(text); err != nil {
				t.Errorf("%q: %v", accept, err)
			}
		}
		if length := resp.Header.Get("Content-Length"); !packed && length != strconv.Itoa(len(got)) {
			t.Errorf("%q: Content-Length %s of %d bytes", accept, length, len(got))
		}
		if got != plain {
			t.Errorf("%q: the content differs", accept)
		}
	}
}

func TestAllBuiltFilesAreServed(t *testing.T) {
	h := explorer.New(nil)
	entries, err := os.ReadDir("assets")
	if err != nil || len(entries) < 10 {
		t.Fatal(entries, err)
	}
	for _, entry := range entries {
		name := strings.TrimSuffix(entry.Name(), ".gz")
		resp := get(h, "GET", "/assets/"+name)
		if text := body(t, resp); resp.StatusCode != http.StatusOK || text == "" || resp.Header.Get("Content-Type") == "" {
			t.Errorf("%s: %s, %d bytes of %q", name, resp.Status, len(text), resp.Header.Get("Content-Type"))
		}
	}
}

func TestLicensesAreServed(t *testing.T) {
	resp := get(explorer.New(nil), "GET", "/assets/LICENSES.txt")
	text := body(t, resp)
	for _, name := range []string{"\ngraphiql 5.", "\nmonaco-editor 0.", "\nreact 19.", "\ngraphql-ws 6.", "\nprettier 3."} {
		if !strings.Contains(text, name) {
			t.Errorf("LICENSES.txt lacks %q", name)
		}
	}
	if resp.Header.Get("Content-Type") != "text/plain; charset=utf-8" || resp.Header.Get("Cache-Control") != "no-cache" {
		t.Error(resp.Header)
	}
}

func TestHEADEqualsGETWithoutBody(t *testing.T) {
	h := explorer.New(nil)
	for _, path := range []string{"/", "/live", "/assets/LICENSES.txt", "/" + assetsOf(t, h, "/")[0]} {
		want, got := get(h, "GET", path), get(h, "HEAD", path)
		if text := body(t, got); text != "" || got.StatusCode != http.StatusOK {
			t.Errorf("%s: %s, body %.50q", path, got.Status, text)
		}
		for _, name := range []string{"Content-Length", "Content-Type", "Cache-Control"} {
			if got.Header.Get(name) != want.Header.Get(name) || got.Header.Get(name) == "" {
				t.Errorf("%s: %s is %q, want %q", path, name, got.Header.Get(name), want.Header.Get(name))
			}
		}
	}
}

func TestUnknownPathIs404(t *testing.T) {
	h := explorer.New(nil)
	packed := assetsOf(t, h, "/")[0] + ".gz"
	for _, path := range []string{
		"/nothing", "/live/", "/live.html", "/index.html", "/assets", "/assets/", "/assets/nothing.js", "/" + packed,
		"/assets/../explorer.go", "/assets/..%2fexplorer.go", "/../explorer.go", "/assets/../assets/LICENSES.txt", "//", "/pages/live.html", "/web/package.json",
	} {
		for _, method := range []string{"GET", "POST"} {
			r := httptest.NewRequest(method, "/", nil)
			r.URL.Path = strings.ReplaceAll(path, "%2f", "/")
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != http.StatusNotFound || w.Header().Get("X-Content-Type-Options") != "nosniff" || w.Header().Get("Cache-Control") != "" {
				t.Errorf("%s %s: %d %v", method, path, w.Code, w.Header())
			}
		}
	}
}

func TestOtherMethodsAre405WithAllow(t *testing.T) {
	h := explorer.New(nil)
	for _, path := range []string{"/", "/live", "/assets/LICENSES.txt"} {
		for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS"} {
			if resp := get(h, method, path); resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s: %s, Allow %q", method, path, resp.Status, resp.Header.Get("Allow"))
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
				t.Fatalf("%s: %s", path, resp.Status)
			}
			names := assetsOf(t, mux, path)
			if len(names) != 3 {
				t.Fatalf("%s refers to %v", path, names)
			}
			for _, name := range names { // all paths are relative to the page
				if resp := get(mux, "GET", "/tools/explorer/"+name); resp.StatusCode != http.StatusOK {
					t.Errorf("%s of %s: %s", name, path, resp.Status)
				}
			}
		}
		if resp := get(mux, "GET", "/tools/explorer"); resp.StatusCode/100 != 3 || resp.Header.Get("Location") != "/tools/explorer/" {
			t.Errorf("without the slash: %s to %q", resp.Status, resp.Header.Get("Location"))
		}
	}
}

func TestOptionsAppearInPages(t *testing.T) {
	opts := &explorer.Options{Endpoint: `https://api.example:8443/{project}/graphql?"`, Project: `a"><script>`, Title: "Our <chain> {project}{nonce}", Account: `0:"ab`}
	h := explorer.New(opts)
	opts.Title = "changed later"
	for _, path := range []string{"/", "/live"} {
		resp := get(h, "GET", path)
		text := body(t, resp)
		for _, want := range []string{`data-endpoint="https://api.example:8443/{project}/graphql?&#34;"`, "Our &lt;chain&gt; {project}{nonce}", `value="a&#34;&gt;&lt;script&gt;"`, `"0:&#34;ab"`} {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %s:\n%s", path, want, text)
			}
		}
		if got := directives(resp)["connect-src"]; got != "https://api.example:8443 wss://api.example:8443" {
			t.Errorf("%s: connect-src %q", path, got)
		}
	}
}

func TestProjectFieldDependsOnEndpoint(t *testing.T) {
	for endpoint, hidden := range map[string]bool{"": false, "/{project}/graphql": false, "../{project}/graphql": false, "/graphql": true, "graphql": true} {
		text := body(t, get(explorer.New(&explorer.Options{Endpoint: endpoint}), "GET", "/live"))
		if strings.Contains(text, `<label hidden>Project`) != hidden {
			t.Errorf("%q: wrong presence of the project field:\n%s", endpoint, text)
		}
	}
}

func TestInvalidEndpointPanics(t *testing.T) {
	for _, endpoint := range []string{"ftp://host/graphql", "//host/graphql", "http:///graphql", "https://u:p@host/graphql", "javascript:alert(1)", "https://a;b/graphql", "https://{project}.example/graphql", "%zz"} {
		func() {
			defer func() {
				if p, ok := recover().(string); !ok || !strings.HasPrefix(p, "explorer: New: Endpoint: ") {
					t.Errorf("%q: panic %v", endpoint, p)
				}
			}()
			explorer.New(&explorer.Options{Endpoint: endpoint})
		}()
	}
}

func TestPagesAreSmall(t *testing.T) {
	h := explorer.New(nil)
	size := 0
	for _, name := range assetsOf(t, h, "/live") {
		size += len(body(t, get(h, "GET", "/"+name, "Accept-Encoding", "gzip")))
	}
	if page := []byte(body(t, get(h, "GET", "/live"))); size > 20_000 || bytes.Contains(page, []byte("explorer-")) {
		t.Errorf("the files of the live view have %d bytes", size)
	}
}
