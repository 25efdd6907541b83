package chaingql_test

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
)

// Answers that wait for their socket keep no more memory than is counted.
func TestAnswersOfDeafSocketsAreCountedWhole(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector needs memory of its own")
	}
	const sockets, queries = 4, 20
	h, _ := newHandler(t, chainOf(t, randomBlocks(31, 400)), chaingql.Options{})
	n := serve(t, h)
	var q strings.Builder
	q.WriteString("{blockchain{")
	for i := range 20 {
		fmt.Fprintf(&q, "a%d:blocks(last:50){edges{node{...f}}}", i)
	}
	q.WriteString("}}fragment f on BlockchainBlock{")
	for i := range 25 {
		fmt.Fprintf(&q, "b%0500d:id ", i)
	}
	q.WriteString("}")
	if text := post(h, body(q.String(), nil)).Body.String(); !strings.Contains(text, "exceeds the limit") {
		t.Fatalf("answer %.100s", text)
	}
	before := heapInUse()
	var all sync.WaitGroup
	var wires []*wire
	for range sockets {
		w := rawSocket(t, n)
		var b bytes.Buffer
		for i := range queries {
			text := fmt.Sprintf(`{"id":"%d","type":"start","payload":%s}`, i, body(q.String(), nil))
			b.Write(append([]byte{0x81, 0x80 | 126, byte(len(text) >> 8), byte(len(text)), 0, 0, 0, 0}, text...))
		}
		wires = append(wires, w)
		all.Go(func() { _, _ = w.Write(b.Bytes()) })
	}
	all.Wait()
	time.Sleep(4 * time.Second) // the queries run
	_, held := h.Pending()
	if kept := heapInUse() - before; kept > held+(4<<20) {
		t.Errorf("the sockets keep %d bytes, of which %d are counted", kept, held)
	} else {
		t.Logf("the sockets keep %d bytes, of which %d are counted", kept, held)
	}
	for _, w := range wires {
		_ = w.Close()
	}
}
