package mounts_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql/examples/mounts"
)

var caching = proxy{"nginx-cache.conf", "nginx", "listen 80;", "listen %s;", nginx}

const (
	latest = `{blockchain{blocks(workchain:-1,last:1){edges{node{seq_no}}}}}`
	// settled selects blocks that are more than a minute older than the newest block.
	settled = `{blockchain{blocks(first:3,after:"02m"){edges{node{seq_no}}}}}`
	balance = `{blockchain{account(address:"0:abababababababababababababababababababababababababababababababab")` +
		`{info{balance}}}}`
)

func TestCachingProxyPassesSocketsAndStreams(t *testing.T) {
	passes(t, caching)
	c := newCache(t)
	c.expect("a page of settled blocks", "MISS, 1 requests, 0 calls", "demo", settled)
	c.expect("again", "HIT, 0 requests, 0 calls", "demo", settled)
	before := c.requests.Load()
	res, answer := exchange(t, "GET", c.at+"/demo/graphql?query="+url.QueryEscape(settled), "", "Connection", "Upgrade",
		"Upgrade", "websocket")
	if res.StatusCode != 400 || c.requests.Load() != before+1 { // the handshake is invalid
		t.Errorf("a WebSocket handshake for the cached URL received status %d and %s, want the Handler's 400",
			res.StatusCode, answer)
	}
}

// A cache is a caching proxy in front of a site that has already received a live block.
type cache struct {
	*site
	t  *testing.T
	at string
}

func newCache(t *testing.T) *cache { return newCacheBefore(t, newSite(t)) }

func newCacheBefore(t *testing.T, s *site) *cache {
	c := &cache{s, t, "http://" + caching.run(t, strings.TrimPrefix(s.URL, "http://"))}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	listenToStream(ctx, t, s.URL+"/demo/graphql", `subscription{blocks{seq_no}}`)
	// Responses have a max-age only after Follow has yielded a block.
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		res, answer := exchange(t, "GET", s.URL+"/demo/graphql?query="+url.QueryEscape(latest), "")
		switch live := strings.Contains(res.Header.Get("Cache-Control"), "max-age"); {
		case !live:
			s.commit(t)
		case strings.Contains(answer, fmt.Sprintf(`"seq_no":%d}`, s.seqNo)):
			return c
		}
		if time.Since(began) > 10*time.Second {
			t.Fatalf("responses have no max-age after ten seconds: %v", res.Header)
		}
	}
}

// await waits until the Handler itself, without the proxy, returns the block with the given number.
func (c *cache) await(seqNo uint32) {
	c.t.Helper()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		_, answer := exchange(c.t, "GET", c.URL+"/demo/graphql?query="+url.QueryEscape(latest), "")
		if strings.Contains(answer, fmt.Sprintf(`"seq_no":%d}`, seqNo)) {
			return
		}
		if time.Since(began) > 10*time.Second {
			c.t.Fatalf("the Handler did not return block %d within ten seconds: %s", seqNo, answer)
		}
	}
}

// ask sends a query through the proxy. did is the cache status of the response. requests is the number of requests that
// reached the Handler, and calls is the number of Backend calls.
func (c *cache) ask(project, document string, header ...string) (answer, did string, requests, calls int64) {
	c.t.Helper()
	requests, calls = c.requests.Load(), c.chain.calls.Load()
	res, answer := exchange(c.t, "GET", c.at+"/"+project+"/graphql?query="+url.QueryEscape(document), "", header...)
	return answer, res.Header.Get("X-Cache"), c.requests.Load() - requests, c.chain.calls.Load() - calls
}

// expect sends a query through the proxy and compares the cache status and the numbers of requests and calls with want.
func (c *cache) expect(what, want, project, document string, header ...string) {
	c.t.Helper()
	answer, did, requests, calls := c.ask(project, document, header...)
	if got := fmt.Sprintf("%s, %d requests, %d calls", did, requests, calls); got != want {
		c.t.Errorf("%s: got %s, want %s; the response is %s", what, got, want, answer)
	}
}

func TestCacheHitReachesNeitherHandlerNorBackend(t *testing.T) {
	c := newCache(t)
	c.expect("a balance", "MISS, 1 requests, 1 calls", "demo", balance)
	// The page comes from the window of recent blocks, so the Backend is not called.
	c.expect("a page of settled blocks", "MISS, 1 requests, 0 calls", "demo", settled)
	for range 20 {
		c.expect("the page again", "HIT, 0 requests, 0 calls", "demo", settled)
		switch answer, did, requests, calls := c.ask("demo", balance); {
		case did == "HIT" && requests+calls == 0:
		case did == "REVALIDATED" && calls == 0: // the response expired after two seconds
		default:
			t.Fatalf("the balance again: got %s, %d requests, %d calls, want no Backend call; the response is %s",
				did, requests, calls, answer)
		}
	}
	res, _ := exchange(t, "HEAD", c.at+"/demo/graphql?query="+url.QueryEscape(settled), "")
	if res.Header.Get("X-Cache") != "HIT" || res.Header.Get("ETag") == "" {
		t.Errorf("HEAD returned the headers %v, want a cache hit with an ETag", res.Header)
	}
	res, _ = exchange(t, "GET", c.at+"/demo/graphql?query="+url.QueryEscape(settled), "", "If-None-Match",
		res.Header.Get("ETag"))
	if res.StatusCode != 304 {
		t.Errorf("If-None-Match with the current ETag: status %d, want 304", res.StatusCode)
	}
}

// next repeats a query for up to ten seconds until the response has the cache status did.
func (c *cache) next(document, did string) (answer string, calls int64) {
	c.t.Helper()
	for began := time.Now(); time.Since(began) < 10*time.Second; time.Sleep(50 * time.Millisecond) {
		answer, what, _, calls := c.ask("demo", document)
		if what == did {
			return answer, calls
		}
		if what != "HIT" {
			c.t.Fatalf("got cache status %s, want %s; the response is %s", what, did, answer)
		}
	}
	c.t.Fatalf("cache status %s did not occur within ten seconds", did)
	return "", 0
}

func TestNewBlockInvalidatesCachedPage(t *testing.T) {
	c := newCache(t)
	first, _, _, _ := c.ask("demo", latest)
	if !strings.Contains(first, fmt.Sprintf(`"seq_no":%d}`, c.seqNo)) {
		t.Fatalf("the first response is %s, want block %d", first, c.seqNo)
	}
	// Blocks are a second apart, so the cache serves a response for one second. Then the proxy revalidates the
	// response: the Handler responds with 304 or with a new response.
	if again, calls := c.next(latest, "REVALIDATED"); again != first || calls != 0 {
		t.Errorf("without a new block, the response is %s after %d calls, want %s without calls", again, calls, first)
	}
	c.expect("a page of settled blocks", "MISS, 1 requests, 0 calls", "demo", settled)
	seqNo := c.commit(t)
	c.await(seqNo)
	if again, _ := c.next(latest, "EXPIRED"); !strings.Contains(again, fmt.Sprintf(`"seq_no":%d`, seqNo)) {
		t.Errorf("after block %d, the response is %s, want that block", seqNo, again)
	}
	c.expect("the page, which no block changes", "HIT, 0 requests, 0 calls", "demo", settled)
}

func TestErrorsAndPrivateResponsesAreNotCached(t *testing.T) {
	c := newCache(t)
	secret := []string{"Authorization", "Basic OnMzY3JldA=="}
	for _, row := range []struct {
		what, project, document string
		header                  []string
	}{
		{"an invalid document", "demo", "{nope}", nil},
		{"a field's error", "demo", `{blockchain{account(address:"x"){info{balance}}}}`, nil},
		{"the time", "demo", "{info{time}}", nil},
		{"a project with a secret", "shop", latest, secret},
		{"a project without its secret", "shop", latest, nil},
		{"an unknown project", "none", latest, nil},
	} {
		for range 3 {
			if answer, did, requests, _ := c.ask(row.project, row.document, row.header...); did != "MISS" ||
				requests != 1 {
				t.Errorf("%s: got %s, %d requests, want MISS, 1 requests; the response is %s",
					row.what, did, requests, answer)
			}
		}
	}
}

func TestRequestWithAuthorizationIsNotServedFromCache(t *testing.T) {
	c := newCache(t)
	c.expect("without", "MISS, 1 requests, 0 calls", "demo", settled)
	c.expect("again", "HIT, 0 requests, 0 calls", "demo", settled)
	for range 2 {
		answer, _, requests, _ := c.ask("demo", settled, "Authorization", "Basic Ondyb25n")
		if !strings.Contains(answer, "UNAUTHENTICATED") || requests != 1 {
			t.Errorf("with a wrong secret: got %s after %d requests, want UNAUTHENTICATED after 1", answer, requests)
		}
	}
}

// The Handler and a middleware of the host both set Vary headers. The cache must keep separate responses for one URL.
func TestCacheSeparatesResponsesByVaryHeaders(t *testing.T) {
	c := newCacheBefore(t, newSiteBehind(t, func(h http.Handler) http.Handler {
		return mounts.NetHTTP(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Vary", "Cookie")
			w.Header().Set("X-Cookie", r.Header.Get("Cookie"))
			h.ServeHTTP(w, r)
		}))
	}, 0))
	for _, did := range []string{"MISS", "HIT"} {
		for _, row := range []struct{ name, value, media, origin, cookie string }{
			{"Accept", "application/json", "application/json", "", ""},
			{"Accept", "application/graphql-response+json", "application/graphql-response+json", "", ""},
			{"Origin", "https://app.example", "application/json", "https://app.example", ""},
			{"Origin", "https://evil.example", "application/json", "", ""},
			{"Cookie", "who=ann", "application/json", "", "who=ann"},
			{"Cookie", "who=bob", "application/json", "", "who=bob"},
		} {
			res, _ := exchange(t, "GET", c.at+"/demo/graphql?query="+url.QueryEscape(settled), "", row.name, row.value)
			h := res.Header
			media := strings.TrimSuffix(h.Get("Content-Type"), "; charset=utf-8")
			got := []string{h.Get("X-Cache"), media, h.Get("Access-Control-Allow-Origin"), h.Get("X-Cookie")}
			if !slices.Equal(got, []string{did, row.media, row.origin, row.cookie}) {
				t.Errorf("with %s: %s, got %q, want %s and %+v", row.name, row.value, got, did, row)
			}
		}
	}
}
