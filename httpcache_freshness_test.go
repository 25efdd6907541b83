package chaingql_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// watched creates a chain with blocks, and calls test with a Handler that has received the last of them from Follow.
func watched(
	t *testing.T, opts chaingql.Options, blocks []chaingql.Block, test func(h *chaingql.Handler, c *memchain.Chain),
) {
	synctest.Test(t, func(t *testing.T) {
		c := memchain.New()
		commit(t, c, blocks[:len(blocks)-1]...)
		h, _ := newHandler(t, c, opts)
		s := serve(t, mounted(h)).socket(t)
		s.send(start("1", allBlocks))
		synctest.Wait()
		commit(t, c, blocks[len(blocks)-1])
		synctest.Wait()
		test(h, c)
	})
}

func TestPageOfRecentBlocksIsNotImmutable(t *testing.T) {
	document := fmt.Sprintf(`{blockchain{blocks(first:2,after:%q){edges{cursor}}}}`, at(1))
	for what, opts := range map[string]chaingql.Options{
		"a page whose blocks are 25 seconds old": {},
		"a page before the window":               {WindowSize: 7},
	} {
		watched(t, opts, minute(11), func(h *chaingql.Handler, _ *memchain.Chain) {
			equal(t, what, caching(get(h, document)), "public, max-age=2")
		})
	}
}

// The window restarts after a permanent gap, so it cannot show whether earlier pages are complete.
func TestPageBeforeAPermanentGapIsNotImmutable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := minute(60)
		s := newGappyChain(t, blocks[:58], blocks[57].Cursor)
		s.permanent = true
		h, _ := newHandler(t, s, chaingql.Options{})
		serve(t, mounted(h)).socket(t).send(start("1", allBlocks))
		synctest.Wait()
		commit(t, s.Chain, blocks[58:]...)
		time.Sleep(10 * time.Second)
		for _, document := range []string{
			fmt.Sprintf(`{blockchain{blocks(last:2,before:%q){edges{cursor}}}}`, at(20)),
			fmt.Sprintf(`{blockchain{blocks(first:2,after:%q){edges{cursor}}}}`, at(17)),
		} {
			w := get(h, document)
			want := `{"data":{"blockchain":{"blocks":{"edges":[{"cursor":%q},{"cursor":%q}]}}}}`
			equal(t, document, w.Body.String(), fmt.Sprintf(want, at(18), at(19)))
			equal(t, document, strings.Contains(caching(w), "immutable"), false)
		}
	})
}

func TestMaxAgeIgnoresPausesOfTheChain(t *testing.T) {
	blocks := minute(60)
	for i := range blocks[:55] {
		blocks[i].Time = blocks[i].Time.Add(-24 * time.Hour)
	}
	watched(t, chaingql.Options{}, blocks, func(h *chaingql.Handler, _ *memchain.Chain) {
		equal(t, "after a pause of a day", caching(get(h, masterLatest)), "public, max-age=5")
	})
	slow := minute(60)
	for i := range slow {
		slow[i].Time = slow[i].Time.Add(-time.Hour * time.Duration(max(0, 40-i)))
	}
	watched(t, chaingql.Options{}, slow, func(h *chaingql.Handler, _ *memchain.Chain) {
		equal(t, "of a chain that was slow earlier", caching(get(h, masterLatest)), "public, max-age=5")
	})
	watched(t, chaingql.Options{}, blocks[54:56], func(h *chaingql.Handler, _ *memchain.Chain) {
		w := get(h, `{blockchain{blocks(last:1){edges{cursor}}}}`)
		equal(t, "of a window with two blocks", caching(w), "no-store")
	})
}

func TestBalanceETagChangesWithEachBlockIfThereIsNoMasterchain(t *testing.T) {
	blocks := minute(20)
	for i := range blocks {
		blocks[i].Workchain, blocks[i].SeqNo = 0, uint32(i+1)
	}
	watched(t, chaingql.Options{}, blocks[:19], func(h *chaingql.Handler, c *memchain.Chain) {
		w := get(h, askRich)
		equal(t, "without a new block", get(h, askRich, "If-None-Match", w.Header().Get("ETag")).Code, 304)
		equal(t, "Cache-Control", caching(w), "public, max-age=2")
		commit(t, c, blocks[19])
		synctest.Wait()
		equal(t, "after another block", get(h, askRich, "If-None-Match", w.Header().Get("ETag")).Code, 200)
	})
}

// If a document requests blocks of several workchains, a new block in any of them changes the ETag.
func TestETagDependsOnEachRequestedWorkchain(t *testing.T) {
	const both = `{blockchain{
		a: blocks(workchain:-1,last:1){edges{cursor}}
		b: blocks(workchain:-1,last:2){edges{cursor}}
		c: blocks(workchain:0,last:1){edges{cursor}}
	}}`
	blocks := minute(22)
	watched(t, chaingql.Options{}, blocks[:20], func(h *chaingql.Handler, c *memchain.Chain) {
		for _, b := range blocks[20:] {
			tag := get(h, both).Header().Get("ETag")
			commit(t, c, b)
			synctest.Wait()
			w := get(h, both, "If-None-Match", tag)
			equal(t, fmt.Sprintf("after a block of workchain %d", b.Workchain), w.Code, 200)
		}
	})
}

// The window has no block of the requested workchain, so the page is read from the Backend.
func TestPageReadFromTheBackendHasNoETag(t *testing.T) {
	const document = `{blockchain{blocks(workchain:7,last:1){edges{cursor}}}}`
	watched(t, chaingql.Options{WindowSize: 4}, minute(20), func(h *chaingql.Handler, c *memchain.Chain) {
		w := get(h, document)
		equal(t, "headers", caching(w)+w.Header().Get("ETag"), "no-store")
	})
}

func TestCacheControlSetByTheHostIsKept(t *testing.T) {
	h, _ := newHandler(t, memchain.New(), chaingql.Options{})
	for document, want := range map[string]string{
		`{__typename}`: "private, max-age=7", `{nope}`: "no-store", `{info{version}}`: "no-store",
	} {
		w := httptest.NewRecorder()
		w.Header().Set("Cache-Control", "private, max-age=7")
		h.ServeHTTP(w, httptest.NewRequest("GET", "/demo/graphql?query="+url.QueryEscape(document), nil))
		equal(t, document, strings.Join(w.Header().Values("Cache-Control"), "; "), want)
	}
}

// Tools send the same introspection query again and again. Variables do not change that it depends only on the schema.
func TestUnchangedIntrospectionReceivesStatus304(t *testing.T) {
	text, err := os.ReadFile("internal/plan/testdata/introspection.graphql")
	equal(t, "error of reading the query", err, nil)
	const partial = `query($old:Boolean=true){__type(name:"Query"){
		fields(includeDeprecated:$old){name args(includeDeprecated:$old){name}}
	}}`
	h, _ := newHandler(t, memchain.New(), chaingql.Options{})
	for _, document := range []string{string(text), partial} {
		first := get(h, document)
		again := get(h, document, "If-None-Match", first.Header().Get("ETag"))
		equal(t, "first status", first.Code, 200)
		equal(t, "Cache-Control", caching(first), "public, no-cache")
		equal(t, "second status", again.Code, 304)
		equal(t, "second body", again.Body.String(), "")
	}
}

func TestNotModifiedResponseHasFewHeadersAndIsFlushed(t *testing.T) {
	h, _ := newHandler(t, memchain.New(), chaingql.Options{AllowedOrigins: []string{"https://app.example"}})
	tag := get(h, `{__typename}`).Header().Get("ETag")
	w := get(h, `{__typename}`, "If-None-Match", tag, "Origin", "https://app.example")
	var names []string
	for name := range w.Header() {
		names = append(names, name)
	}
	slices.Sort(names)
	equal(t, "headers", strings.Join(names, " "), "Access-Control-Allow-Origin Cache-Control Etag Vary")
	equal(t, "flushed", w.Flushed, true) // otherwise a host that ends the process after Shutdown would lose it
}

// BenchmarkGet measures GET with and without a matching ETag. With a match, the Handler only computes the freshness.
func BenchmarkGet(b *testing.B) {
	c, account := newCaller(b)
	c.request.Method, c.request.Body = "GET", http.NoBody
	for name, ask := range map[string]url.Values{
		"latest":  {"query": {latestText}},
		"balance": {"query": {balanceText}, "variables": {`{"address":"` + account.String() + `"}`}},
	} {
		c.request.URL.RawQuery = ask.Encode()
		for _, what := range []string{"made", "known"} {
			b.Run(name+"/"+what, func(b *testing.B) {
				b.ReportAllocs()
				delete(c.request.Header, "If-None-Match")
				c.call(nil)
				if what == "known" {
					c.request.Header["If-None-Match"] = c.header["Etag"]
				}
				for b.Loop() {
					c.call(nil)
				}
			})
		}
	}
}
