package chaingql_test

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// A socket that has to wait is not read: queries that wait would keep their plans.
func TestSocketsKeepFewQueriesWaiting(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector needs memory of its own")
	}
	const sockets, queries = 20, 32
	chain := heldChain{memchain.New(), make(chan struct{}, 1000), make(chan struct{})}
	h, _ := newHandler(t, chain, chaingql.Options{Limits: chaingql.Limits{CacheBytes: 1}})
	n := serve(t, h)
	before := heapInUse()
	var all sync.WaitGroup
	var wires []*wire
	for s := range sockets {
		w := rawSocket(t, n)
		var b bytes.Buffer
		for i := range queries {
			var q strings.Builder
			fmt.Fprintf(&q, `{q%d_%d:__typename blockchain{account(address:"0:%064x"){info{balance}}`, s, i, s)
			for j := range 45 {
				fmt.Fprintf(&q, "a%d:blocks(last:50,workchain:-7){edges{node{id hash shard seq_no workchain_id chain_order gen_utime}}}", j)
			}
			q.WriteString("}}")
			text := fmt.Sprintf(`{"id":"%d","type":"start","payload":%s}`, i, body(q.String(), nil))
			b.Write(append([]byte{0x81, 0x80 | 126, byte(len(text) >> 8), byte(len(text)), 0, 0, 0, 0}, text...))
		}
		wires = append(wires, w)
		all.Go(func() { _, _ = w.Write(b.Bytes()) })
	}
	time.Sleep(2 * time.Second)
	each := (heapInUse() - before) / sockets
	t.Logf("a socket keeps %d bytes", each)
	if each > 1<<20 {
		t.Errorf("a socket keeps %d bytes", each)
	}
	close(chain.release)
	for _, w := range wires {
		_ = w.Close()
	}
	all.Wait()
}
