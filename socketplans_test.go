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

// Queries of which the answers wait for their client keep no plans.
func TestDeafSocketsKeepNoPlans(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector needs memory of its own")
	}
	const sockets, queries = 20, 31
	h, _ := newHandler(t, memchain.New(), chaingql.Options{Limits: chaingql.Limits{CacheBytes: 1, BackendTimeout: time.Minute}})
	n := serve(t, h)
	before := heapInUse()
	var all sync.WaitGroup
	var wires []*wire
	for s := range sockets {
		w := rawSocket(t, n)
		var b bytes.Buffer
		for i := range queries {
			var q strings.Builder
			fmt.Fprintf(&q, "{q%d_%d:__typename blockchain{", s, i)
			for j := range 45 {
				fmt.Fprintf(&q, "a%d:blocks(last:1,workchain:-7){edges{node{id hash shard seq_no workchain_id chain_order gen_utime}}}", j)
			}
			q.WriteString("}}")
			text := fmt.Sprintf(`{"id":"%d","type":"start","payload":%s}`, i, body(q.String(), nil))
			b.Write(append([]byte{0x81, 0x80 | 126, byte(len(text) >> 8), byte(len(text)), 0, 0, 0, 0}, text...))
		}
		wires = append(wires, w)
		all.Go(func() { _, _ = w.Write(b.Bytes()) })
	}
	all.Wait()
	time.Sleep(time.Second) // the queries run
	_, held := h.Pending()
	each := (heapInUse() - before) / sockets
	t.Logf("a socket keeps %d bytes, of which %d are counted", each, held/sockets)
	if each > 512<<10 {
		t.Errorf("a socket keeps %d bytes, of which %d are counted", each, held/sockets)
	}
	for _, w := range wires {
		_ = w.Close()
	}
}
