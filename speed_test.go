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
	balanceText = `query balance($address: String!) { blockchain { account(address: $address) { info { address balance(format: DEC) } } } }`
	latestText  = `query latest { blockchain { blocks(last: 1) { edges { node { ` + blockParts + ` } } } } }`
	last50Text  = `query page { blockchain { blocks(last: 50) { edges { node { ` + blockParts + ` } } } } }`
)

// A caller calls a handler as net/http does, and allocates nothing by itself.
type caller struct {
	handler http.Handler
	request *http.Request
	posted  bytes.Reader
	header  http.Header
	answer  []byte
}

func (c *caller) Header() http.Header              { return c.header }
func (c *caller) WriteHeader(int)                  {}
func (c *caller) Write(p []byte) (int, error)      { c.answer = append(c.answer, p...); return len(p), nil }
func (c *caller) Flush()                           {}
func (c *caller) SetReadDeadline(time.Time) error  { return nil }
func (c *caller) SetWriteDeadline(time.Time) error { return nil }

type posted struct{ *bytes.Reader }

func (posted) Close() error { return nil }

func (c *caller) call(body []byte) []byte {
	c.posted.Reset(body)
	c.request.ContentLength = int64(len(body))
	clear(c.header)
	c.answer = c.answer[:0]
	c.handler.ServeHTTP(c, c.request)
	return c.answer
}

// newCaller returns a caller of a handler whose stream is live, and the
// account that it may ask for.
func newCaller(t testing.TB) (*caller, chaingql.Address) {
	t.Helper()
	blocks := randomBlocks(31, 400)
	chain := chainOf(t, blocks[:200])
	heard := make(chan struct{}, 1000)
	h, _ := newHandler(t, chain, chaingql.Options{Silence: -1, Hooks: chaingql.Hooks{
		BlockReceived: func(chaingql.Block, time.Duration) { heard <- struct{}{} },
	}})
	chain.SetBalance(abAccount, big.NewInt(1_234_567_890_123))
	awake(t, h, chain, blocks[200:], heard)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, "POST", "http://127.0.0.1/demo/graphql", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.RequestURI = "/demo/graphql"
	r.Header.Set("Content-Type", "application/json")
	r.SetPathValue("project", "demo")
	c := &caller{handler: h, request: r, header: http.Header{}}
	r.Body = posted{&c.posted}
	return c, abAccount
}

// awake commits blocks until one has been heard of.
func awake(t testing.TB, h http.Handler, chain *memchain.Chain, blocks []chaingql.Block, heard <-chan struct{}) {
	t.Helper()
	query(h, newest, nil)
	for _, b := range blocks {
		if err := chain.Append(b); err != nil {
			t.Fatal(err)
		}
		select {
		case <-heard:
			return
		case <-t.Context().Done():
		case <-time.After(100 * time.Millisecond): // it began behind that one
		}
	}
	t.Fatal("the stream does not begin")
}

func bodyOf(text string, variables map[string]any) []byte {
	request := map[string]any{"query": text}
	if variables != nil {
		request["variables"] = variables
	}
	body, err := json.Marshal(request)
	if err != nil {
		panic(err) // strings
	}
	return body
}

// measuredBodies are the queries that speed is measured by.
func measuredBodies(account chaingql.Address) map[string][]byte {
	return map[string][]byte{
		"balance": bodyOf(balanceText, map[string]any{"address": account.String()}),
		"latest":  bodyOf(latestText, nil),
		"last 50": bodyOf(last50Text, nil),
	}
}

// A balance takes two for its address. What it takes of the Backend is counted
// apart: two for the caller's own copy, one for its deadline.
func TestAQueryAllocatesNextToNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("pools are emptied at random under the race detector")
	}
	c, account := newCaller(t)
	most := map[string]float64{"balance": 2 + 3, "latest": 0, "last 50": 2}
	for name, body := range measuredBodies(account) {
		if got := c.call(body); !bytes.HasPrefix(got, []byte(`{"data":`)) || bytes.Contains(got, []byte("errors")) {
			t.Fatalf("%s: %s", name, got)
		}
		if n := testing.AllocsPerRun(200, func() { c.call(body) }); n > most[name] {
			t.Errorf("%s allocates %v times, more than %v", name, n, most[name])
		}
	}
}

func BenchmarkQuery(b *testing.B) {
	c, account := newCaller(b)
	for name, body := range measuredBodies(account) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.call(body)
			}
		})
	}
}

// BenchmarkPlainBody shows what it brings to find query and variables in a body
// without making a tree of it: "otherwise" has one key that nobody knows.
func BenchmarkPlainBody(b *testing.B) {
	c, account := newCaller(b)
	plain := measuredBodies(account)["balance"]
	for name, body := range map[string][]byte{
		"plain":     plain,
		"otherwise": append(bytes.TrimSuffix(bytes.Clone(plain), []byte("}")), `,"x":0}`...),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.call(body)
			}
		})
	}
}

// BenchmarkAnotherText asks what nobody has asked: with other names, or with
// another literal, whose plan is known by its shape; "in a list" shows the same
// query as text that has no shape.
func BenchmarkAnotherText(b *testing.B) {
	c, _ := newCaller(b)
	r := rand.New(rand.NewPCG(1, 2))
	address := func() string { return fmt.Sprintf("0:%064x", r.Uint64()) }
	for name, text := range map[string]func() string{
		"names": func() string {
			return fmt.Sprintf("query q%x($address: String!){a%x: blockchain {account(address: $address){info{address balance(format:DEC)}} blocks(last:1){edges{node{%s}}}}}", r.Uint64(), r.Uint64(), blockParts)
		},
		"literal": func() string {
			return `{ blockchain { account(address: "` + address() + `") { info { address balance(format: DEC) } } } }`
		},
		"literal without a shape": func() string {
			return `{ blockchain { account(address: """` + address() + `""") { info { address balance(format: DEC) } } } }`
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

// Requests that are served at once use the same room, one after the other.
func TestAnswersOfRequestsAtOnceDoNotMix(t *testing.T) {
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
					got = query(h, `query($a:String!){blockchain{`+alias+`:account(address:$a){info{balance(format:DEC)}}}}`, map[string]any{"a": address})
				case 1:
					got = query(h, `{blockchain{`+alias+`:account(address:"`+address+`"){info{balance(format:DEC)}}}}`, nil)
				case 2:
					got = query(h, `query($a:String! $f:BigIntFormat){blockchain{`+alias+`:account(address:$a){info{balance(format:$f)}}}}`, map[string]any{"a": address, "f": "DEC"})
				default:
					want = `{"errors":[{"message":"Cannot query field \"` + alias + `\" on type \"Query\".","locations":[{"line":1,"column":2}],"extensions":{"code":"GRAPHQL_VALIDATION_FAILED"}}]}`
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
