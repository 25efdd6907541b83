package chaingql_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/graphql-go/graphql"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// A callCounter is a chain that counts the calls of Balance and Blocks.
type callCounter struct {
	*memchain.Chain
	calls int
}

func (c *callCounter) Balance(ctx context.Context, a chaingql.Address) (*big.Int, error) {
	c.calls++
	return c.Chain.Balance(ctx, a)
}

func (c *callCounter) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	c.calls++
	return c.Chain.Blocks(ctx, q)
}

// minute returns n blocks, alternately of the masterchain and workchain 0, 2.5 seconds apart.
func minute(n int) []chaingql.Block {
	blocks := make([]chaingql.Block, n)
	for i := range blocks {
		blocks[i] = chaingql.Block{
			Workchain: -int32(i % 2), Shard: 1 << 63, SeqNo: uint32(i/2 + 1), Hash: chaingql.Hash{byte(i)},
			Time: time.Unix(1e9+int64(i)*5/2, 0), Cursor: chaingql.SeqCursor(uint64(i + 1)),
		}
	}
	return blocks
}

func at(n int) string { return string(chaingql.SeqCursor(uint64(n))) }

func get(h http.Handler, document string, header ...string) *httptest.ResponseRecorder {
	return do(h, "GET", "/demo/graphql?query="+url.QueryEscape(document), "", header...)
}

func caching(w *httptest.ResponseRecorder) string { return w.Header().Get("Cache-Control") }

const (
	immutable      = "public, max-age=31536000, immutable"
	askRich        = `{blockchain{account(address:"` + rich + `"){info{balance}}}}`
	rich           = "-1:3333333333333333333333333333333333333333333333333333333333333333"
	masterLatest   = `{blockchain{blocks(workchain:-1,last:3){edges{cursor}}}}`
	pageAndBalance = `{blockchain{
		blocks(first:5,after:%q){edges{cursor}} account(address:"0:%064d"){info{balance}}
	}}`
)

// cached calls test with a Handler that follows a chain of 61 blocks, which span two and a half minutes. next commits
// one more block.
func cached(
	t *testing.T, opts chaingql.Options,
	test func(t *testing.T, h *chaingql.Handler, c *callCounter, next func()),
) {
	synctest.Test(t, func(t *testing.T) {
		c := &callCounter{Chain: memchain.New()}
		blocks := minute(100)
		commit(t, c.Chain, blocks[:60]...)
		h, _ := newHandler(t, c, opts)
		n := serve(t, mounted(h))
		s := n.socket(t)
		s.send(start("1", allBlocks))
		synctest.Wait()
		at := 60
		next := func() {
			commit(t, c.Chain, blocks[at])
			at++
			synctest.Wait()
		}
		next()
		test(t, h, c, next)
	})
}

func TestCacheControlDependsOnTheDataInTheResponse(t *testing.T) {
	cached(t, chaingql.Options{}, func(t *testing.T, h *chaingql.Handler, _ *callCounter, _ func()) {
		for _, row := range []struct{ document, want string }{
			{masterLatest, "public, max-age=5"},
			{`{blockchain{blocks(last:3){edges{cursor}}}}`, "public, max-age=2"},
			{askRich, "public, max-age=5"},
			{strings.Replace(masterLatest, "}}}}", `}} m: blocks(last:1){edges{cursor}}}}`, 1), "public, max-age=2"},
			{fmt.Sprintf(`{blockchain{blocks(first:5,after:%q){edges{cursor}}}}`, at(3)), immutable},
			{fmt.Sprintf(`{blockchain{blocks(last:5,before:%q){edges{cursor}}}}`, at(20)), immutable},
			{fmt.Sprintf(`{blockchain{blocks(after:%q,before:%q){edges{cursor}}}}`, at(3), at(20)), immutable},
			{fmt.Sprintf(`query($c:String=%q){blockchain{blocks(first:5,after:$c){edges{cursor}}}}`, at(3)), immutable},
			{fmt.Sprintf(`{blockchain{blocks(first:50,after:%q){edges{cursor}}}}`, at(30)), "public, max-age=2"},
			{fmt.Sprintf(`{blockchain{blocks(first:5,after:%q){edges{cursor}}}}`, at(50)), "public, max-age=2"},
			// Only half of this page is old enough to be final.
			{fmt.Sprintf(`{blockchain{blocks(first:20,after:%q){edges{cursor}}}}`, at(30)), "public, max-age=2"},
			{fmt.Sprintf(`{blockchain{blocks(last:5,before:%q){edges{cursor}}}}`, at(60)), "public, max-age=2"},
			{fmt.Sprintf(pageAndBalance, at(3), 1), "public, max-age=2"},
			{`{__typename}`, "public, no-cache"},
			{`{__schema{queryType{name}} __type(name:"Block"){name}}`, "public, no-cache"},
			{`{__schema{
				types{name fields{name args{name}} enumValues{name} inputFields{name}} directives{args{name}}
			}}`, "public, no-cache"},
			{`{blockchain{account(address:"0:` + strings.Repeat("3", 64) + `"){info{address}}}}`, "public, no-cache"},
			{`{info{version}}`, "no-store"},
			{`{info{version} __typename}`, "no-store"},
			{`{nope}`, "no-store"},
			{`{blockchain{account(address:"x"){info{address}}}}`, "no-store"},
		} {
			w := get(h, row.document)
			equal(t, row.document, caching(w), row.want)
			equal(t, "ETag of "+row.document, w.Header().Get("ETag") != "", row.want != "no-store")
			equal(t, "Vary", w.Header().Get("Vary"), "Authorization, Accept, Origin")
		}
		// A page that is read from the Backend may change without notice, so it has no ETag.
		for _, row := range []struct{ document, want string }{
			{`{blockchain{blocks(workchain:7,last:3){edges{cursor}}}}`, "no-store"},
			{fmt.Sprintf(`{blockchain{blocks(last:5,before:%q){edges{cursor}}}}`, at(99)), "public, max-age=2"},
			// This page reaches the oldest block.
			{fmt.Sprintf(`{blockchain{blocks(last:5,before:%q){edges{cursor}}}}`, at(6)), "public, max-age=2"},
			{fmt.Sprintf(`{blockchain{blocks(last:4,before:%q){edges{cursor}}}}`, at(6)), "public, max-age=2"},
			{fmt.Sprintf(`{blockchain{blocks(after:"",before:%q){edges{cursor}}}}`, at(6)), "public, max-age=2"},
			{`{blockchain{blocks(first:5,after:""){edges{cursor}}}}`, "public, max-age=2"},
			{`{blockchain{blocks(first:5){edges{cursor}}}}`, "public, max-age=2"},
		} {
			w := get(h, row.document)
			equal(t, row.document, caching(w), row.want)
			equal(t, "ETag of "+row.document, w.Header().Get("ETag"), "")
		}
		w := post(h, body(masterLatest, nil))
		equal(t, "of a POST", caching(w)+w.Header().Get("ETag"), "")
		equal(t, "of a POST with errors", caching(post(h, body("{nope}", nil))), "no-store")
		equal(t, "of a refusal", caching(do(h, "PUT", "/demo/graphql", "")), "no-store")
	})
}

func TestMatchingETagReceivesStatus304WithoutBackendCalls(t *testing.T) {
	cached(t, chaingql.Options{}, func(t *testing.T, h *chaingql.Handler, c *callCounter, next func()) {
		final := fmt.Sprintf(`{blockchain{blocks(first:5,after:%q){edges{cursor}}}}`, at(3))
		ask := func(document string, header ...string) (tag string, status, calls int) {
			before := c.calls
			w := get(h, document, header...)
			if w.Code == 304 && (w.Body.Len() > 0 || w.Header().Get("Vary") == "" || caching(w) == "") {
				t.Errorf("a response with status 304 has the body %q and the header %v", w.Body, w.Header())
			}
			return w.Header().Get("ETag"), w.Code, c.calls - before
		}
		tags := map[string]string{}
		for _, document := range []string{askRich, final, masterLatest, `{__typename}`} {
			tag, status, _ := ask(document)
			equal(t, document, status, 200)
			tags[document] = tag
			for _, shown := range []string{tag, `"x", ` + tag, "W/" + tag} {
				again, status, calls := ask(document, "If-None-Match", shown)
				equal(t, document+" with "+shown, fmt.Sprint(status, again == tag, calls), "304 true 0")
			}
			for _, shown := range []string{`"x", *`, "*"} { // which confirms no response
				_, status, _ = ask(document, "If-None-Match", shown)
				equal(t, document+" with "+shown, status, 200)
			}
			_, status, _ = ask(document, "If-None-Match", tag, "Accept", graphqlType)
			equal(t, "another media type", status, 200)
			w := do(h, "HEAD", "/demo/graphql?query="+url.QueryEscape(document), "", "If-None-Match", tag)
			equal(t, "HEAD", fmt.Sprint(w.Code, w.Header().Get("ETag") == tag), "304 true")
		}
		for i, want := range []map[string]int{
			{askRich: 200, final: 304, masterLatest: 200, `{__typename}`: 304}, // a block of the masterchain
			{askRich: 304, final: 304, masterLatest: 304, `{__typename}`: 304}, // a block of another workchain
		} {
			next()
			for document, status := range want {
				tag, got, _ := ask(document, "If-None-Match", tags[document])
				equal(t, fmt.Sprintf("%s after %d", document, i+1), got, status)
				tags[document] = tag
			}
		}
		_, status, _ := ask(masterLatest, "If-None-Match", tags[final])
		equal(t, "another document's tag", status, 200)
	})
}

// A silentChain is a chain. Its Follow fails.
type silentChain struct{ *memchain.Chain }

func (silentChain) Follow(context.Context, chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	return func(yield func(chaingql.Block, error) bool) { yield(chaingql.Block{}, errors.New("down")) }
}

func TestResponseIsNotCacheableWhileFollowFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := memchain.New()
		commit(t, c, minute(60)...)
		h, _ := newHandler(t, silentChain{c}, chaingql.Options{})
		for range 2 { // the second time, the window has blocks that were read before Follow failed
			for _, document := range []string{
				masterLatest, askRich, fmt.Sprintf(`{blockchain{blocks(first:5,after:%q){edges{cursor}}}}`, at(3)),
			} {
				w := get(h, document)
				equal(t, document, fmt.Sprint(w.Code, caching(w), w.Header().Get("ETag")), "200no-store")
			}
			synctest.Wait()
		}
	})
}

func TestOnlyProjectsWithoutASecretArePubliclyCacheable(t *testing.T) {
	for _, row := range []struct {
		auth   chaingql.Authorizer
		header []string
		want   string
	}{
		{nil, nil, "public, no-cache"},
		{chaingql.StaticProjects{"demo": {}}, nil, "public, no-cache"},
		{chaingql.StaticProjects{"demo": {Secret: "s"}}, nil, "private, no-cache"},
		{
			chaingql.StaticProjects{"demo": {Secret: "s", RequireSecret: true}},
			[]string{"Authorization", "Basic OnM="}, "private, no-cache",
		},
		{
			chaingql.StaticProjects{"demo": {Secret: "s", RequireSecret: true}},
			nil, "no-store",
		},
		{
			authorizer(func(ctx context.Context, _ chaingql.Credentials) (context.Context, error) {

				return ctx, nil
			}), nil, "private, no-cache",
		},
	} {
		h, _ := newHandler(t, memchain.New(), chaingql.Options{Authorizer: row.auth})
		w := get(h, `{__typename}`, row.header...)
		equal(t, fmt.Sprint(row.auth), caching(w), row.want)
		if tag := w.Header().Get("ETag"); tag != "" && row.header != nil {
			w = get(h, `{__typename}`, "If-None-Match", tag)
			equal(t, "a tag without the secret", w.Code, 401)
		}
	}
}

func TestResponseWithErrorsIsNotCacheable(t *testing.T) {
	cached(t, chaingql.Options{ShowCost: true}, func(t *testing.T, h *chaingql.Handler, _ *callCounter, _ func()) {
		w := get(h, `{blockchain{account(address:"x"){info{balance}} blocks(last:1){edges{cursor}}}}`)
		equal(t, "with a cost", fmt.Sprint(caching(w), w.Header().Get("ETag")), "no-store")
	})
	backend := stubBackend{
		Backend: memchain.New(),
		balance: func(context.Context, chaingql.Address) (*big.Int, error) { return nil, errors.New("down") },
	}
	h, _ := newHandler(t, backend, chaingql.Options{})
	equal(t, "with partial data", caching(get(h, askRich)), "no-store")
}

func TestResponseWithAHostFieldIsNotCacheable(t *testing.T) {
	h, _ := newQueryHandler(t, graphql.Fields{"own": {Type: graphql.Int}})
	w := get(h, `{own}`)
	equal(t, "own", fmt.Sprint(w.Code, caching(w), w.Header().Get("ETag")), "200no-store")
}

func TestETagDistinguishesResponses(t *testing.T) {
	cached(t, chaingql.Options{}, func(t *testing.T, h *chaingql.Handler, c *callCounter, _ func()) {
		tag := func(h http.Handler, document, variables string) string {
			target := "/demo/graphql?query=" + url.QueryEscape(document) + "&variables=" + url.QueryEscape(variables)
			return do(h, "GET", target, "").Header().Get("ETag")
		}
		page := `query A($c:String){blockchain{blocks(first:5,after:$c){edges{cursor}}}} query B{__typename}`
		named := func(c string) string {
			variables := url.QueryEscape(`{"c":"` + c + `"}`)
			target := "/demo/graphql?operationName=A&query=" + url.QueryEscape(page) + "&variables=" + variables
			return do(h, "GET", target, "").Header().Get("ETag")
		}
		equal(t, "of other variables", named(at(3)) == named(at(4)), false)
		equal(t, "of the same", named(at(3)), named(at(3)))
		two := "&query=" + url.QueryEscape(`query A{__typename} query B{t: __typename}`)
		operation := func(name string) string {
			return do(h, "GET", "/demo/graphql?operationName="+name+two, "").Header().Get("ETag")
		}
		equal(t, "of another operation", operation("A") == operation("B"), false)
		plain, _ := newHandler(t, c, chaingql.Options{})
		costly, _ := newHandler(t, c, chaingql.Options{ShowCost: true})
		other, _ := newHandler(t, c, chaingql.Options{Schema: chaingql.SchemaExtension{
			Queries: graphql.Fields{"own": {Type: graphql.Int}},
		}})
		first := tag(h, `{__typename}`, "")
		equal(t, "of another host", tag(plain, `{__typename}`, ""), first)
		equal(t, "with its cost", tag(costly, `{__typename}`, "") == first, false)
		equal(t, "of another schema", tag(other, `{__typename}`, "") == first, false)

		// The next block may change this response, so an ETag without the part for the chain must not match.
		document := fmt.Sprintf(pageAndBalance, at(3), 1)
		short, _, _ := strings.Cut(tag(h, document, ""), "-")
		equal(t, "a forged tag", get(h, document, "If-None-Match", short+`"`).Code, 200)
	})
}

// Vary must be one line, because some proxies use only the last of several lines.
func TestVarySetByTheHostIsKept(t *testing.T) {
	h, _ := newHandler(t, memchain.New(), chaingql.Options{})
	for range 2 { // the second request must not see headers of the first
		w := httptest.NewRecorder()
		w.Header().Add("Vary", "Accept-Encoding")
		w.Header().Add("Vary", "Cookie")
		h.ServeHTTP(w, httptest.NewRequest("GET", "/demo/graphql?query={__typename}", nil))
		vary := strings.Join(w.Header().Values("Vary"), "; ")
		equal(t, "Vary", vary, "Accept-Encoding, Cookie, Authorization, Accept, Origin")
	}
}

// A host that may have to recall complete pages sets MaxCacheAge. Otherwise caches would keep them for a year.
func TestMaxCacheAgeCapsCompletePages(t *testing.T) {
	complete := fmt.Sprintf(`{blockchain{blocks(after:%q,before:%q){edges{cursor}}}}`, at(3), at(20))
	uncapped := ""
	cached(t, chaingql.Options{}, func(_ *testing.T, h *chaingql.Handler, _ *callCounter, _ func()) {
		uncapped = get(h, complete).Header().Get("ETag")
	})
	cached(t, chaingql.Options{MaxCacheAge: time.Hour}, func(
		t *testing.T, h *chaingql.Handler, _ *callCounter, next func(),
	) {
		first := get(h, complete)
		equal(t, "complete page", caching(first), "public, max-age=3600")
		next()
		for _, tag := range []string{uncapped, first.Header().Get("ETag")} {
			equal(t, "status of the page after it has expired", get(h, complete, "If-None-Match", tag).Code, 200)
		}
		equal(t, "recent page", caching(get(h, masterLatest)), "public, max-age=5")
		equal(t, "service itself", caching(get(h, `{__typename}`)), "public, no-cache")
		equal(t, "uncacheable", caching(get(h, `{info{version}}`)), "no-store")
	})
	cached(t, chaingql.Options{MaxCacheAge: 3 * time.Second}, func(
		t *testing.T, h *chaingql.Handler, _ *callCounter, _ func(),
	) {
		equal(t, "complete page", caching(get(h, complete)), "public, max-age=3")
		equal(t, "recent page", caching(get(h, masterLatest)), "public, max-age=3")
	})
}
