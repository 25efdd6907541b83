package chaingql_test

import (
	"context"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// A blockingChain is a chain. Its Balance and Balances wait until release is closed.
type blockingChain struct {
	*memchain.Chain
	asked, release chan struct{}
}

func (c blockingChain) Balance(context.Context, chaingql.Address) (*big.Int, error) {
	c.asked <- struct{}{}
	<-c.release
	return new(big.Int), nil
}

func (c blockingChain) Balances(ctx context.Context, all []chaingql.Address) ([]*big.Int, error) {
	_, err := c.Balance(ctx, chaingql.Address{})
	return make([]*big.Int, len(all)), err
}

// requestBytes is the memory of a request in progress according to docs/limits.md.
const requestBytes = 512 << 10

// Requests of any kind that wait for a slow Backend must keep no more memory than documented.
func TestRequestMemoryIsWithinTheDocumentedLimit(t *testing.T) {
	if !heapIsMeasurable(t) {
		return
	}
	many := func(n int, part func(i int) string) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(part(i))
		}
		return b.String()
	}
	block := "id hash shard seq_no workchain_id chain_order gen_utime"
	level := "name kind description isOneOf specifiedByURL " +
		"inputFields{name description isDeprecated deprecationReason defaultValue}" +
		"enumValues{name description isDeprecated __typename}ofType{"
	nested := strings.Repeat(level, 16) + "name" + strings.Repeat("}", 16)
	lists := strings.Repeat("[],", 40_000) + "[]"
	spreads45 := many(45, func(i int) string { return fmt.Sprintf("b%d:blockchain{...p}", i) })
	zeros := strings.Repeat("0", 25_000)
	for name, request := range map[string]func(query string) string{
		"a small one": func(q string) string { return body(q+"}}", nil) },
		"pages": func(q string) string {
			return body(q+many(45, func(i int) string {
				return fmt.Sprintf(" a%0500d:blocks(last:1,workchain:-1){edges{node{%s}}}", i, block)
			})+"}}", nil)
		},
		"fragments": func(q string) string {
			spreads := many(31, func(i int) string { return fmt.Sprintf("...f%d ", i) })
			return body(q+spreads+"}}"+many(31, func(i int) string {
				return fmt.Sprintf("fragment f%d on BlockchainQuery{a%0700d:blocks(last:1){edges{node{%s}}}}",
					i, i, block)
			}), nil)
		},
		"one fragment in many places": func(q string) string {
			pages := many(40, func(i int) string { return fmt.Sprintf(" a%d:blocks(last:1){edges{node{...f}}}", i) })
			ids := many(9, func(i int) string { return fmt.Sprintf("a%03000d:id ", i) })
			return body(q+pages+"}}fragment f on BlockchainBlock{"+ids+block+"}", nil)
		},
		"as many fields as there may be": func(q string) string {
			const spreads = "{b:blockchain{...p}c:blockchain{...p}d:blockchain{...p}e:blockchain{...p}blockchain"
			pages := many(9, func(i int) string { return fmt.Sprintf("a%d:blocks(last:1){edges{node{...f}}}", i) })
			ids := many(22, func(i int) string { return fmt.Sprintf("a%01000d:id ", i) })
			return body(strings.Replace(q, "{blockchain", spreads, 1)+
				"...p}}fragment p on BlockchainQuery{"+pages+
				"}fragment f on BlockchainBlock{"+ids+block+" __typename}", nil)
		},
		"long body": func(q string) string {
			return body(q+many(45, func(i int) string {
				return fmt.Sprintf(" a%0500d:blocks(last:1,workchain:-1){edges{node{%s}}}", i, block)
			})+"}}", nil) + strings.Repeat(" ", 100<<10)
		},
		"one literal in many places": func(q string) string {
			return body(strings.Replace(q, "{blockchain", "{"+spreads45+"blockchain", 1)+
				"}}fragment p on BlockchainQuery{blocks(last:1,shard:\"é"+zeros+"\"){edges{node{id}}}}", nil)
		},
		"one literal with a variable in many places": func(q string) string {
			return body(strings.Replace(q, "{blockchain", "($n:Int){"+spreads45+"blockchain", 1)+
				"}}fragment p on BlockchainQuery{blocks(last:$n,shard:\"é"+zeros+"\"){edges{node{id}}}}",
				map[string]any{"n": 1})
		},
		"further operations": func(q string) string {
			return body(q+"}}"+many(7, func(i int) string {
				node := strings.Repeat(block+" ", 8)
				return fmt.Sprintf("query r%03500d{blockchain{blocks(last:1){edges{node{%s}}}}}", i, node)
			}), nil)
		},
		"default values": func(q string) string {
			variables := many(15, func(i int) string {
				return fmt.Sprintf("$v%d:String=%q", i, strings.Repeat("x", 1900))
			})
			pages := many(15, func(i int) string {
				return fmt.Sprintf("a%d:blocks(last:1,shard:$v%d){edges{node{id}}}", i, i)
			})
			return body(strings.Replace(q, "{", "("+variables+"){", 1)+pages+"}}", nil)
		},
		"balances in many places": func(q string) string {
			accounts := many(24, func(i int) string {
				return fmt.Sprintf(" a%d:account(address:\"0:%064x\"){...p}", i, i)
			})
			infos := many(5, func(i int) string { return fmt.Sprintf("i%d:info{...b}", i) })
			balances := many(11, func(i int) string { return fmt.Sprintf("b%d:balance ", i) })
			return body(q+accounts+"}}fragment p on BlockchainAccountQuery{"+infos+
				"}fragment b on BlockchainAccount{"+balances+"}", nil)
		},
		"accounts in many places": func(q string) string {
			accounts := many(24, func(i int) string {
				return fmt.Sprintf(" a%d:account(address:\"0:%064x\"){info{balance}}", i, i)
			})
			spreads := many(20, func(i int) string { return fmt.Sprintf("b%d:blockchain{...p}", i) })
			return body(strings.Replace(q, "{blockchain", "{"+spreads+"blockchain", 1)+
				"}}fragment p on BlockchainQuery{"+accounts+"}", nil)
		},
		"as many different fields as there may be": func(q string) string {
			return body(q+"}"+many(5, func(i int) string {
				return fmt.Sprintf(`a%03500d:__type(name:"A"){%s}`, i, nested)
			})+"}", nil)
		},
		"as many lists as there may be": func(q string) string {
			const level = "name kind description isOneOf specifiedByURL enumValues{name}ofType{"
			return body(q+"}"+many(9, func(i int) string {
				nested := strings.Repeat(level, 17) + "name" + strings.Repeat("}", 17)
				return fmt.Sprintf(`a%02000d:__type(name:"A"){%s}`, i, nested)
			})+"}", nil)
		},
		"long names of types in many places": func(q string) string {
			pages := many(24, func(i int) string {
				return fmt.Sprintf(" a%d:blocks(last:1){edges{node{...t b%[1]d:id}}}", i)
			})
			return body(q+pages+"}}fragment t on BlockchainBlock{"+strings.Repeat("t", 28_000)+":__typename}", nil)
		},
		"as many prices as there may be, and a long variable": func(q string) string {
			spreads := many(23, func(i int) string { return fmt.Sprintf("b%d:blockchain{...p}", i) })
			ranges := many(26, func(i int) string {
				return fmt.Sprintf("a%d:master_seq_no_range(time_start:$n){__typename}", i)
			})
			return body(strings.Replace(q, "{blockchain", "($n:Int,$s:String){"+spreads+"blockchain", 1)+
				"...p blocks(first:1,shard:$s){pageInfo{__typename}}}}fragment p on BlockchainQuery{"+ranges+"}",
				map[string]any{"n": nil, "s": strings.Repeat("s", 120_000)})
		},
		"different fields, a long variable and errors": func(q string) string {
			failing := many(8, func(i int) string { return fmt.Sprintf("e%0300d:blockchain{...e}", i) })
			q = strings.Replace(q, "{blockchain{", "($s:String!){"+failing+"blockchain{", 1)
			return body(q+"}"+many(4, func(i int) string {
				return fmt.Sprintf(`a%d:__type(name:"A"){%s}`, i, nested)
			})+"}fragment e on BlockchainQuery{"+many(16, func(i int) string {
				return fmt.Sprintf("a%d:blocks(shard:$s){__typename}", i)
			})+"}", map[string]any{"s": strings.Repeat("s", 113_000)})
		},
		"extensions": func(q string) string {
			return strings.TrimSuffix(body(q+"}}", nil), "}") + `,"extensions":{"a":[` + lists + `]}}`
		},
		"other variables": func(q string) string {
			return strings.Replace(body(q+"}}", map[string]any{"a": 1}), `{"a":1}`, `{"a":[`+lists+`]}`, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			const n = 8 // more could not call the Backend at the same time
			chain := blockingChain{memchain.New(), make(chan struct{}), make(chan struct{})}
			h, _ := newHandler(t, chain, chaingql.Options{Limits: chaingql.Limits{CacheBytes: 1}})
			bodies, responses := make([]string, n), make([]string, n)
			for i := range bodies {
				// No two requests share a document.
				bodies[i] = request(fmt.Sprintf(`query q%d{blockchain{account(address:"0:%064x"){info{balance}}`, i, i))
				if name == "further operations" {
					bodies[i] = fmt.Sprintf(`{"operationName":"q%d",`, i) + bodies[i][1:]
				}
			}
			before := heapInUse()
			var all sync.WaitGroup
			for i := range bodies {
				all.Go(func() { responses[i] = post(h, bodies[i]).Body.String() })
			}
			for i := range bodies {
				select {
				case <-chain.asked:
				case <-time.After(time.Minute):
					close(chain.release)
					all.Wait()
					t.Fatalf("request %d did not call the Backend; the first response is %.300s", i, responses[0])
				}
			}
			if each := (heapInUse() - before) / n; each > requestBytes {
				t.Errorf("a request of %d bytes keeps %d bytes, want at most %d", len(bodies[0]), each, requestBytes)
			} else {
				t.Logf("a request of %d bytes keeps %d bytes", len(bodies[0]), each)
			}
			close(chain.release)
			all.Wait()
		})
	}
}

// heapInUse returns the bytes of live objects and of stacks.
func heapInUse() int { return int(heap() + stacks()) }

// heapIsMeasurable reports whether a test can measure memory: the race detector changes its use.
func heapIsMeasurable(t *testing.T) bool {
	if raceEnabled {
		t.Log("not measured: the race detector changes memory use")
	}
	return !raceEnabled
}

// A stuckWriter is a ResponseWriter. Its Write blocks despite deadlines, like an HTTP/2 connection without
// WriteByteTimeout.
type stuckWriter struct {
	*httptest.ResponseRecorder
	stuck chan<- struct{}
	free  <-chan struct{}
}

func (w stuckWriter) Write(text []byte) (int, error) {
	w.stuck <- struct{}{}
	<-w.free
	return len(text), nil
}

func (stuckWriter) SetReadDeadline(time.Time) error  { return nil }
func (stuckWriter) SetWriteDeadline(time.Time) error { return nil }

// A onceReader is a body that drops its text when it has been read.
type onceReader struct{ rest []byte }

func (p *onceReader) Read(dst []byte) (int, error) {
	if len(p.rest) == 0 {
		p.rest = nil
		return 0, io.EOF
	}
	n := copy(dst, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// Small responses that are not read must not keep documents that the cache has evicted, or the keys of the documents,
// in memory.
func TestUnreadResponsesKeepNoDocumentsInMemory(t *testing.T) {
	if !heapIsMeasurable(t) {
		return
	}
	page := func(i int) string {
		const page = " a%d:blocks(last:1){edges{node{id hash shard seq_no workchain_id chain_order gen_utime}}}"
		return fmt.Sprintf(page, i)
	}
	var pages strings.Builder
	for i := range 25 {
		pages.WriteString(page(i))
	}
	for name, document := range map[string]func(i int) string{
		"of many fields": func(i int) string { return fmt.Sprintf("query q%d{blockchain{%s}}", i, &pages) },
		"with a comment": func(i int) string {
			return fmt.Sprintf("query q%d{blockchain{%s}}#%s", i, page(i), strings.Repeat("x", 30_000))
		},
		"with escapes": func(i int) string {
			return fmt.Sprintf("query q%d{blockchain{%s}}\n#%s", i, page(i), strings.Repeat("x", 15_800))
		},
		"with literals": func(i int) string {
			return fmt.Sprintf("query q%d{blockchain{%s}}#%s", i%2, page(0), strings.Repeat("x", 30_000))
		},
	} {
		t.Run(name, func(t *testing.T) {
			const n, each = 100, 28 << 10 // a stack, the request, buffers, and 4 KiB that the reserve counts
			h, _ := newHandler(t, memchain.New(), chaingql.Options{Limits: chaingql.Limits{CacheBytes: 512 << 10}})
			stuck, free := make(chan struct{}), make(chan struct{})
			before := heapInUse()
			var all sync.WaitGroup
			for i := range n {
				text := body(document(i), nil)
				post(h, text) // caches the document
				all.Go(func() {
					r := httptest.NewRequest(http.MethodPost, "/demo/graphql", &onceReader{[]byte(text)})
					r.Header.Set("Content-Type", "application/json")
					h.ServeHTTP(stuckWriter{httptest.NewRecorder(), stuck, free}, r)
				})
				<-stuck
			}
			for i := n; i < n+20; i++ {
				post(h, body(document(i), nil))
			}
			_, counted := h.Pending()
			kept := heapInUse() - before - 512<<10
			t.Logf("%d unread responses keep %d bytes, of which %d are counted", n, kept, counted)
			if kept-counted > n*each {
				t.Errorf("an unread response keeps %d bytes more than are counted", (kept-counted)/n)
			}
			close(free)
			all.Wait()
		})
	}
}

func TestEventStreamDoesNotKeepTheBodyOfItsRequest(t *testing.T) {
	if !heapIsMeasurable(t) {
		return
	}
	const streams = 50
	kept := func(padding int) (bytes int) {
		synctest.Test(t, func(t *testing.T) {
			_, _, n := serveChain(t, chaingql.Options{})
			text := body(allBlocks, nil) + strings.Repeat(" ", padding)
			before := heapInUse()
			for range streams {
				w := n.wire(t)
				go func() { _, _ = io.Copy(io.Discard, w) }()
				w.post("/demo/graphql", text, len(text), "Accept: text/event-stream")
			}
			synctest.Wait()
			bytes = heapInUse() - before
		})
		return bytes / streams
	}
	if small, large := kept(0), kept(16_000); large > small+2000 {
		t.Errorf("a stream keeps %d bytes after a body of 16 kB, but %d after a small one", large, small)
	}
}
