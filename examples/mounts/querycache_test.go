package mounts_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// A queryCache is a small shared cache for the method QUERY, as RFC 10008 describes it: the body of a request is part
// of the key. It asks the site again about each stored response, by ETag, unless the response is immutable.
type queryCache struct {
	site   string
	mu     sync.Mutex
	stored map[string]stored
}

type stored struct {
	header http.Header
	body   []byte
}

func (c *queryCache) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	content, _ := io.ReadAll(r.Body)
	key := r.Method + r.URL.String() + "\n" + r.Header.Get("Content-Type") + "\n" + string(content)
	for _, name := range []string{"Authorization", "Accept", "Origin"} {
		key += "\n" + r.Header.Get(name)
	}
	known, hit := c.stored[key]
	how := "HIT"
	if !hit || !strings.Contains(known.header.Get("Cache-Control"), "immutable") {
		ask, _ := http.NewRequestWithContext(r.Context(), r.Method, c.site+r.URL.String(), bytes.NewReader(content))
		ask.Header = r.Header.Clone()
		if hit {
			ask.Header.Set("If-None-Match", known.header.Get("ETag"))
		}
		res, err := http.DefaultClient.Do(ask)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer func() { _ = res.Body.Close() }()
		if how = "REVALIDATED"; res.StatusCode != http.StatusNotModified {
			how = "MISS"
			known.header = res.Header
			known.body, _ = io.ReadAll(res.Body)
			if strings.HasPrefix(res.Header.Get("Cache-Control"), "public") && res.Header.Get("ETag") != "" {
				c.stored[key] = known
			}
		}
	}
	w.Header().Set("X-Cache", how)
	_, _ = w.Write(known.body)
}

func TestCacheStoresResponsesToQUERYByTheirBody(t *testing.T) {
	c := newCache(t)
	proxy := httptest.NewServer(&queryCache{site: c.URL, stored: map[string]stored{}})
	defer proxy.Close()
	ask := func(want, document, answer string) {
		t.Helper()
		body := `{"query":"` + strings.ReplaceAll(document, `"`, `\"`) + `"}`
		res, got := exchange(t, "QUERY", proxy.URL+"/demo/graphql", body, "Content-Type", "application/json")
		if did := res.Header.Get("X-Cache"); did != want || !strings.Contains(got, answer) {
			t.Errorf("%s: got %s and %s, want %s and %s", document, did, got, want, answer)
		}
	}
	page := strings.Replace(settled, "02m", "03m", 1)
	ask("MISS", settled, `"seq_no":3}`)
	ask("HIT", settled, `"seq_no":3}`)
	ask("MISS", page, `"seq_no":4}`)
	ask("HIT", settled, `"seq_no":3}`)
	ask("MISS", "{__typename}", "Query")
	ask("REVALIDATED", "{__typename}", "Query")
	ask("MISS", "{info{version}}", "version")
	ask("MISS", "{info{version}}", "version")
}
