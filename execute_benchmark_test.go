package chaingql_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

const (
	blockParts  = `id seq_no workchain_id shard gen_utime chain_order`
	balanceText = `query balance($address: String!) {
		blockchain { account(address: $address) { info { address balance(format: DEC) } } }
	}`
	latestText = `query latest {blockchain {blocks(workchain: -1, last: 1) {edges {node {` + blockParts + `}}}}}`
	last50Text = `query page {blockchain {blocks(workchain: -1, last: 50) {edges {node {` + blockParts + `}}}}}`
)

// A caller calls a handler like net/http, but makes no allocations.
type caller struct {
	handler  http.Handler
	request  *http.Request
	posted   bytes.Reader
	header   http.Header
	response []byte
}

func (c *caller) Header() http.Header { return c.header }
func (c *caller) WriteHeader(int)     {}
func (c *caller) Write(p []byte) (int, error) {
	c.response = append(c.response, p...)
	return len(p), nil
}
func (c *caller) Flush()                           {}
func (c *caller) SetReadDeadline(time.Time) error  { return nil }
func (c *caller) SetWriteDeadline(time.Time) error { return nil }

type posted struct{ *bytes.Reader }

func (posted) Close() error { return nil }

func (c *caller) call(body []byte) []byte {
	c.posted.Reset(body)
	c.request.ContentLength = int64(len(body))
	clear(c.header)
	c.response = c.response[:0]
	c.handler.ServeHTTP(c, c.request)
	return c.response
}

// newCaller returns a caller of a Handler with a live stream, and an account with a balance.
func newCaller(t testing.TB) (*caller, chaingql.Address) {
	t.Helper()
	c, chain := liveCaller(t, variedBlocks(400, 4))
	chain.SetBalance(abAccount, big.NewInt(1_234_567_890_123))
	return c, abAccount
}

// liveCaller returns a caller of a Handler whose window has all but the first of the blocks.
func liveCaller(t testing.TB, blocks []chaingql.Block) (*caller, *memchain.Chain) {
	t.Helper()
	chain := chainOf(t, blocks[:1])
	return liveCallerOf(t, chain, blocks), chain
}

// liveCallerOf returns a caller of a Handler for a chain that has the first of the blocks. The window of the Handler
// has all others.
func liveCallerOf(t testing.TB, chain *memchain.Chain, blocks []chaingql.Block) *caller {
	t.Helper()
	received, following := make(chan struct{}, len(blocks)), make(chan struct{})
	b := replacedBackend{chain, sync.OnceFunc(func() { close(following) })}
	h, _ := newHandler(t, b, chaingql.Options{StallTimeout: -1, WindowSize: len(blocks), Hooks: chaingql.Hooks{
		BlockReceived: func(chaingql.Block, time.Duration) { received <- struct{}{} },
	}})
	query(h, newest, nil)
	<-following
	commit(t, chain, blocks[1:]...)
	for range blocks[1:] {
		<-received
	}
	return callerOf(t, h)
}

// callerOf returns a caller that sends requests with a cancelable context, as on a server.
func callerOf(t testing.TB, h http.Handler) *caller {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, "POST", "http://127.0.0.1/demo/graphql", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.RequestURI, r.RemoteAddr = "/demo/graphql", "192.0.2.1:80"
	r.Header.Set("Content-Type", "application/json")
	r.SetPathValue("project", "demo")
	c := &caller{handler: h, request: r, header: http.Header{}}
	r.Body = posted{&c.posted}
	return c
}

func bodyOf(text string, variables map[string]any) []byte {
	request := map[string]any{"query": text}
	if variables != nil {
		request["variables"] = variables
	}
	body, err := json.Marshal(request)
	if err != nil {
		panic(err) // cannot happen with strings
	}
	return body
}

// measuredBodies returns the bodies of the measured queries.
func measuredBodies(account chaingql.Address) map[string][]byte {
	return map[string][]byte{
		"balance": bodyOf(balanceText, map[string]any{"address": account.String()}),
		"latest":  bodyOf(latestText, nil),
		"last 50": bodyOf(last50Text, nil),
	}
}

// A balance needs one allocation for the Backend's copy of it and one for the deadline.
func TestQueriesAllocateLittle(t *testing.T) {
	if raceEnabled {
		t.Log("not measured: the race detector empties pools at random")
		return
	}
	c, account := newCaller(t)
	most := map[string]float64{"balance": 2, "latest": 0, "last 50": 0}
	for name, body := range measuredBodies(account) {
		if got := c.call(body); !bytes.HasPrefix(got, []byte(`{"data":`)) || bytes.Contains(got, []byte("errors")) {
			t.Fatalf("%s: the response has errors: %s", name, got)
		}
		if n := testing.AllocsPerRun(200, func() { c.call(body) }); n > most[name] {
			t.Errorf("%s allocates %v times, want at most %v", name, n, most[name])
		}
	}
}

// benchmark measures call for each body.
func (c *caller) benchmark(b *testing.B, bodies map[string][]byte) {
	for name, body := range bodies {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.call(body)
			}
		})
	}
}

// BenchmarkTwoCallers shows the cost of the counters and locks that the requests of one Handler share: two callers use
// one Handler, or one each. It needs two processors.
func BenchmarkTwoCallers(b *testing.B) {
	first, _ := newCaller(b)
	second, _ := newCaller(b)
	for _, c := range []struct {
		name  string
		other *caller
	}{{"one Handler", callerOf(b, first.handler)}, {"two Handlers", second}} {
		b.Run(c.name, func(b *testing.B) {
			body := bodyOf(latestText, nil)
			var calls sync.WaitGroup
			for _, caller := range []*caller{first, c.other} {
				calls.Go(func() {
					for range b.N {
						caller.call(body)
					}
				})
			}
			calls.Wait()
		})
	}
}

func BenchmarkQuery(b *testing.B) {
	c, account := newCaller(b)
	c.benchmark(b, measuredBodies(account))
}

// BenchmarkPlainBody compares a body that scan accepts with a body that has an unknown key and is therefore decoded
// into a tree.
func BenchmarkPlainBody(b *testing.B) {
	c, account := newCaller(b)
	plain := measuredBodies(account)["balance"]
	c.benchmark(b, map[string][]byte{
		"plain":     plain,
		"otherwise": append(bytes.TrimSuffix(bytes.Clone(plain), []byte("}")), `,"x":0}`...),
	})
}

// BenchmarkUncachedText sends documents with a text that is not cached. If only a literal is new, the plan is found by
// the document's fingerprint. In the last case, the form of the literal prevents a fingerprint.
func BenchmarkUncachedText(b *testing.B) {
	c, _ := newCaller(b)
	r := rand.New(rand.NewPCG(1, 2))
	address := func() string { return fmt.Sprintf("0:%064x", r.Uint64()) }
	for name, text := range map[string]func() string{
		"names": func() string {
			return fmt.Sprintf(`query q%x($address: String!){a%x: blockchain {
				account(address: $address){info{address balance(format:DEC)}} blocks(last:1){edges{node{%s}}}
			}}`, r.Uint64(), r.Uint64(), blockParts)
		},
		"literal": func() string {
			return `{ blockchain { account(address: "` + address() + `") { info { address balance(format: DEC) } } } }`
		},
		"literal without a fingerprint": func() string {
			const after = `""") { info { address balance(format: DEC) } } } }`
			return `{ blockchain { account(address: """` + address() + after
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var variables map[string]any
			if strings.HasPrefix(name, "names") {
				variables = map[string]any{"address": address()}
			}
			bodies := make([][]byte, 0, 1000)
			for b.Loop() {
				if len(bodies) == 0 {
					b.StopTimer()
					for range 1000 {
						bodies = append(bodies, bodyOf(text(), variables))
					}
					b.StartTimer()
				}
				c.call(bodies[len(bodies)-1])
				bodies = bodies[:len(bodies)-1]
			}
		})
	}
}

// Requests reuse pooled buffers. A response must not contain parts of another.
func TestConcurrentResponsesAreNotMixedUp(t *testing.T) {
	chain := chainOf(t, randomBlocks(33, 60))
	h, _ := newHandler(t, chain, chaingql.Options{})
	account := func(i int) chaingql.Address { return chaingql.Address{Workchain: int32(i)} }
	for i := range 40 {
		chain.SetBalance(account(i), big.NewInt(int64(1000+i)))
	}
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 150 {
				n := (worker*7 + i) % 40
				alias, address := fmt.Sprintf("a%d_%d", worker, i%20), account(n).String()
				want := fmt.Sprintf(`{"data":{"blockchain":{"%s":{"info":{"balance":"%d"}}}}}`, alias, 1000+n)
				var got string
				switch i % 4 {
				case 0:
					document := `query($a:String!){blockchain{` + alias + `` +
						`:account(address:$a){info{balance(format:DEC)}}}}`
					got = query(h, document, map[string]any{"a": address})
				case 1:
					document := `{blockchain{` + alias + `` +
						`:account(address:"` + address + `"){info{balance(format:DEC)}}}}`
					got = query(h, document, nil)
				case 2:
					document := `query($a:String! $f:BigIntFormat){
						blockchain{` + alias + `:account(address:$a){info{balance(format:$f)}}}
}`
					got = query(h, document, map[string]any{"a": address, "f": "DEC"})
				default:
					want = `{"errors":[{"message":"Cannot query field \"` + alias + `\" on type \"Query\".",` +
						`"locations":[{"line":1,"column":2}],` +
						`"extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}]}`
					got = query(h, `{`+alias+`}`, nil)
				}
				if got != want {
					t.Errorf("got %s\nwant %s", got, want)
				}
			}
		})
	}
	wg.Wait()
}
