package chaingql_test

import (
	"context"
	"fmt"
	"math/big"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// A heldChain answers nothing until it is released.
type heldChain struct {
	*memchain.Chain
	asked, release chan struct{}
}

func (c heldChain) Balance(context.Context, chaingql.Address) (*big.Int, error) {
	c.asked <- struct{}{}
	<-c.release
	return new(big.Int), nil
}

func (c heldChain) Balances(ctx context.Context, all []chaingql.Address) ([]*big.Int, error) {
	_, err := c.Balance(ctx, chaingql.Address{})
	return make([]*big.Int, len(all)), err
}

// requestBytes is what docs/limits.md has for a request in progress.
const requestBytes = 384 << 10

// Requests that wait for a slow Backend keep no more than is documented, whatever they are.
func TestRequestsInProgressKeepWhatIsDocumented(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector needs memory of its own")
	}
	many := func(n int, part func(i int) string) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(part(i))
		}
		return b.String()
	}
	block := "id hash shard seq_no workchain_id chain_order gen_utime"
	lists := strings.Repeat("[],", 40_000) + "[]"
	for name, request := range map[string]func(query string) string{
		"a small one": func(q string) string { return body(q+"}}", nil) },
		"pages": func(q string) string {
			return body(q+many(45, func(i int) string {
				return fmt.Sprintf(" a%0500d:blocks(last:1,workchain:-1){edges{node{%s}}}", i, block)
			})+"}}", nil)
		},
		"fragments": func(q string) string {
			return body(q+many(31, func(i int) string { return fmt.Sprintf("...f%d ", i) })+"}}"+many(31, func(i int) string {
				return fmt.Sprintf("fragment f%d on BlockchainQuery{a%0700d:blocks(last:1){edges{node{%s}}}}", i, i, block)
			}), nil)
		},
		"one fragment in many places": func(q string) string {
			return body(q+many(40, func(i int) string { return fmt.Sprintf(" a%d:blocks(last:1){edges{node{...f}}}", i) })+
				"}}fragment f on BlockchainBlock{"+many(9, func(i int) string { return fmt.Sprintf("a%03000d:id ", i) })+block+"}", nil)
		},
		"as many fields as there may be": func(q string) string {
			return body(strings.Replace(q, "{blockchain", "{b:blockchain{...p}c:blockchain{...p}d:blockchain{...p}e:blockchain{...p}blockchain", 1)+
				"...p}}fragment p on BlockchainQuery{"+many(9, func(i int) string { return fmt.Sprintf("a%d:blocks(last:1){edges{node{...f}}}", i) })+
				"}fragment f on BlockchainBlock{"+many(22, func(i int) string { return fmt.Sprintf("a%01000d:id ", i) })+block+" __typename}", nil)
		},
		"long body": func(q string) string {
			return body(q+many(45, func(i int) string {
				return fmt.Sprintf(" a%0500d:blocks(last:1,workchain:-1){edges{node{%s}}}", i, block)
			})+"}}", nil) + strings.Repeat(" ", 100<<10)
		},
		"one literal in many places": func(q string) string {
			return body(strings.Replace(q, "{blockchain", "{"+many(45, func(i int) string { return fmt.Sprintf("b%d:blockchain{...p}", i) })+"blockchain", 1)+
				"}}fragment p on BlockchainQuery{blocks(last:1,shard:\"é"+strings.Repeat("0", 25_000)+"\"){edges{node{id}}}}", nil)
		},
		"one literal with a variable in many places": func(q string) string {
			return body(strings.Replace(q, "{blockchain", "($n:Int){"+many(45, func(i int) string { return fmt.Sprintf("b%d:blockchain{...p}", i) })+"blockchain", 1)+
				"}}fragment p on BlockchainQuery{blocks(last:$n,shard:\"é"+strings.Repeat("0", 25_000)+"\"){edges{node{id}}}}", map[string]any{"n": 1})
		},
		"further operations": func(q string) string {
			return body(q+"}}"+many(7, func(i int) string {
				return fmt.Sprintf("query r%03500d{blockchain{blocks(last:1){edges{node{%s}}}}}", i, strings.Repeat(block+" ", 8))
			}), nil)
		},
		"default values": func(q string) string {
			return body(strings.Replace(q, "{", "("+many(15, func(i int) string {
				return fmt.Sprintf("$v%d:String=%q", i, strings.Repeat("x", 1900))
			})+"){", 1)+many(15, func(i int) string { return fmt.Sprintf("a%d:blocks(last:1,shard:$v%d){edges{node{id}}}", i, i) })+"}}", nil)
		},
		"extensions": func(q string) string {
			return strings.TrimSuffix(body(q+"}}", nil), "}") + `,"extensions":{"a":[` + lists + `]}}`
		},
		"other variables": func(q string) string {
			return strings.Replace(body(q+"}}", map[string]any{"a": 1}), `{"a":1}`, `{"a":[`+lists+`]}`, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			const n = 50
			chain := heldChain{memchain.New(), make(chan struct{}), make(chan struct{})}
			h, _ := newHandler(t, chain, chaingql.Options{Limits: chaingql.Limits{CacheBytes: 1}})
			bodies, answers := make([]string, n), make([]string, n)
			for i := range bodies {
				bodies[i] = request(fmt.Sprintf(`query q%d{blockchain{account(address:"0:%064x"){info{balance}}`, i, i)) // each for itself
				if name == "further operations" {
					bodies[i] = fmt.Sprintf(`{"operationName":"q%d",`, i) + bodies[i][1:]
				}
			}
			before := heapInUse()
			var all sync.WaitGroup
			for i := range bodies {
				all.Go(func() { answers[i] = post(h, bodies[i]).Body.String() })
			}
			for i := range bodies {
				select {
				case <-chain.asked:
				case <-time.After(5 * time.Second):
					close(chain.release)
					all.Wait()
					t.Fatalf("request %d does not ask the Backend; the first answer is %.300s", i, answers[0])
				}
			}
			if each := (heapInUse() - before) / n; each > requestBytes {
				t.Errorf("a request of %d bytes keeps %d", len(bodies[0]), each)
			} else {
				t.Logf("a request of %d bytes keeps %d", len(bodies[0]), each)
			}
			close(chain.release)
			all.Wait()
		})
	}
}

// heapInUse is the memory in use, in bytes.
func heapInUse() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse)
}
