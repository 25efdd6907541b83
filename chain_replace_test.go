package chaingql_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// stamped returns copies of blocks whose hashes contain the number of an epoch.
func stamped(epoch byte, blocks []chaingql.Block) []chaingql.Block {
	all := make([]chaingql.Block, len(blocks))
	for i, b := range blocks {
		b.Hash[0] = epoch
		all[i] = b
	}
	return all
}

func TestReplacedChainEndsEveryStreamAndServesTheNewChain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := randomBlocks(6, 40)
		chain := epochChain(t, blocks[:20])
		r := &hookRecorder{}
		h, _ := newHandler(t, chain, chaingql.Options{Hooks: r.hooks()})
		n := serve(t, mounted(h))
		e := n.stream(t, allBlocks)
		legacy, modern := n.socket(t), (*socket)(nil)
		modern, _, err := n.openWith(t, "graphql-transport-ws", "/demo/graphql")
		if err != nil {
			t.Fatal(err)
		}
		modern.send(`{"type":"connection_init"}`)
		modern.receive()
		legacy.send(start("1", allBlocks))
		modern.send(`{"id":"1","type":"subscribe","payload":{"query":"` + allBlocks + `"}}`)
		time.Sleep(time.Second)
		commit(t, chain, blocks[20])
		synctest.Wait()
		legacy.receive()
		modern.receive()
		for len(e.lines) > 0 {
			<-e.lines
		}
		chain.Replace("two")
		commit(t, chain, blocks[:30]...)
		time.Sleep(5 * time.Second)
		legacy.expect("graphql-ws", `{"type":"error","id":"1","payload":`+epochChanged+`}`)
		modern.expect("graphql-transport-ws", `{"type":"error","id":"1","payload":[`+epochChanged+`]}`)
		var got []string
		for line := range e.lines {
			got = append(got, line)
		}
		equal(t, "events", strings.Join(got, "\n"),
			"event: next\ndata: {\"errors\":["+epochChanged+"]}\nevent: complete\ndata:")
		if list := strings.Join(r.drain(), "\n"); !strings.Contains(list, "failed: chaingql: the chain was replaced") {
			t.Errorf("SourceFailed was not called: %s", list)
		}
		f := &follower{t: t, n: n, document: allBlocks, last: string(blocks[24].Cursor) + "~two"}
		f.connect(5)
		equal(t, "blocks of the new chain", strings.Join(f.got, " "), strings.Join(orders(blocks[25:30]), " "))
		commit(t, chain, blocks[30:]...)
		time.Sleep(time.Second)
		newest := string(blocks[39].Cursor)
		equal(t, "newest page", query(h, pageDocument, map[string]any{"last": 1}),
			`{"data":{"blockchain":{"blocks":{"edges":[{"cursor":"`+newest+`~two","node":{"chain_order":"`+newest+
				`"}}],"pageInfo":{"startCursor":"`+newest+`~two","endCursor":"`+newest+`~two"}}}}}`)
	})
}

func TestChainReplacedJustBeforeFollowEndsSubscriptionsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := randomBlocks(6, 20)
		chain := epochChain(t, blocks)
		replace := sync.OnceFunc(func() {
			chain.Replace("two")
			commit(t, chain, blocks[:10]...)
		})
		h, _ := newHandler(t, replacedBackend{chain, replace}, chaingql.Options{})
		e := serve(t, mounted(h)).stream(t, allBlocks)
		began := time.Now()
		equal(t, "first line", <-e.lines, ":")
		equal(t, "event", <-e.lines, "event: next")
		equal(t, "payload", <-e.lines, `data: {"errors":[`+epochChanged+`]}`)
		equal(t, "time until the subscription ended", time.Since(began), 0)
	})
}

func TestEntityTagsOfAReplacedChainAreInvalid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var blocks []chaingql.Block
		for i := range uint32(300) {
			b := masterBlock(i+1, strings.Repeat("ab", 32))
			b.Time = b.Time.Add(time.Duration(i) * time.Second)
			blocks = append(blocks, b)
		}
		chain := epochChain(t, blocks[:1])
		h, _ := newHandler(t, chain, chaingql.Options{})
		page := func(after, before string) string {
			return "/demo/graphql?query={blockchain{blocks(after:%22" + after + "%22before:%22" + before +
				"%22){edges{cursor}}}}"
		}
		a, b := string(blocks[49].Cursor), string(blocks[60].Cursor)
		blocks[55].Hash[0] = 1 // only in the first chain
		block := "/demo/graphql?query={blockchain{block(hash:%22" + blocks[55].Hash.String() + "%22){hash}}}"
		fill := func() {
			time.Sleep(time.Second)
			query(h, "{info{latency}}", nil)
			time.Sleep(time.Second)
			commit(t, chain, blocks[1:]...)
			time.Sleep(time.Second)
		}
		query(h, "{info{latency}}", nil)
		fill()
		tags := map[string]string{}
		for _, target := range []string{
			page(a+"~one", b+"~one"), page(a, b), block, "/demo/graphql?query={blockchain{blocks{edges{cursor}}}}",
		} {
			w := do(h, "GET", target, "")
			if tags[target] = w.Header().Get("ETag"); tags[target] == "" {
				t.Fatalf("%s has no ETag: %v, %s", target, w.Header(), w.Body)
			}
			immutable := strings.Contains(w.Header().Get("Cache-Control"), "immutable")
			equal(t, "immutable: "+target, immutable, strings.Contains(target, "~") || target == block)
			equal(t, "304: "+target, do(h, "GET", target, "", "If-None-Match", tags[target]).Code, 304)
		}
		chain.Replace("two")
		blocks[55].Hash[0] = 2
		commit(t, chain, blocks[:1]...)
		query(h, "{info{latency}}", nil)
		fill()
		for target, tag := range tags {
			if w := do(h, "GET", target, "", "If-None-Match", tag); w.Code == 304 || w.Header().Get("ETag") == tag {
				t.Errorf("%s is %d with %v after the chain was replaced", target, w.Code, w.Header())
			}
		}
	})
}

// epochOf returns the epoch in the block's hash, and reports an error if the cursor has another one.
func epochOf(t *testing.T, what, hash, cursor string) string {
	t.Helper()
	raw, err := hex.DecodeString(hash)
	if err != nil {
		t.Fatal(err)
	}
	epoch := epochName(raw[0])
	if !strings.HasSuffix(cursor, "~"+epoch) {
		t.Errorf("%s: a block of epoch %s has the cursor %q", what, epoch, cursor)
	}
	return epoch
}

func TestStreamsAndPagesNeverMixBlocksOfTwoChains(t *testing.T) {
	for name, backend := range map[string]func(*memchain.Chain) chaingql.Backend{
		"noticed by calls": func(c *memchain.Chain) chaingql.Backend { return newNoticingBackend(c) },
		"pages are late":   func(c *memchain.Chain) chaingql.Backend { return forgetfulBackend{c} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				blocks := randomBlocks(6, 400)
				chain := memchain.New()
				chain.Replace(epochName(1))
				commit(t, chain, stamped(1, blocks[:300])...)
				h, _ := newHandler(t, backend(chain), chaingql.Options{WindowSize: 50})
				n := serve(t, mounted(h))
				var all sync.WaitGroup
				var ended, delivered, pages atomic.Int64
				ctx, stop := context.WithCancel(t.Context())
				streams := 60
				if raceEnabled {
					streams = 15
				}
				for i := range streams {
					all.Go(func() {
						for ctx.Err() == nil {
							got, code := followEpoch(t, ctx, n, i, blocks)
							delivered.Add(int64(got))
							if code == "EPOCH_CHANGED" {
								ended.Add(1)
							}
						}
					})
				}
				for i := range 4 {
					all.Go(func() {
						for ctx.Err() == nil {
							if readEpoch(t, h, string(blocks[i*90].Cursor)) {
								pages.Add(1)
							}
							time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
						}
					})
				}
				for epoch := byte(1); epoch <= 4; epoch++ {
					if epoch > 1 {
						chain.Replace(epochName(epoch))
						commit(t, chain, stamped(epoch, blocks[:300])...)
					}
					for _, b := range stamped(epoch, blocks[300:]) {
						time.Sleep(time.Duration(rand.IntN(4)) * time.Millisecond)
						commit(t, chain, b)
					}
				}
				time.Sleep(time.Second)
				stop()
				all.Wait()
				if int(ended.Load()) < 3*streams/2 || int(delivered.Load()) < streams*100 || pages.Load() < 100 {
					t.Errorf("the test covers too little: %d streams ended with EPOCH_CHANGED, %d blocks, %d pages",
						ended.Load(), delivered.Load(), pages.Load())
				}
			})
		})
	}
}

// followEpoch reads one stream to its end, checks that all its blocks are of one epoch, and returns the number of
// blocks and the code of the error. A stream begins after the newest block, at the oldest block, or in between.
func followEpoch(t *testing.T, ctx context.Context, n *network, i int, blocks []chaingql.Block) (got int, code string) {
	args := [...]string{"", `(after:"")`, `(after:"` + string(blocks[i*6].Cursor) + `")`}[i%3]
	target := "http://api.example/demo/graphql?query=subscription{blocks" + strings.ReplaceAll(args, `"`, "%22") +
		"{id%20cursor%20chain_order}}"
	r, err := http.NewRequestWithContext(ctx, "GET", target, nil)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	r.Header.Set("Accept", "text/event-stream")
	client := n.client()
	defer client.CloseIdleConnections()
	res, err := client.Do(r)
	if err != nil {
		return 0, ""
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	first, last := "", ""
	for line := range strings.Lines(string(text)) {
		data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: ")
		if !ok || data == "" {
			continue
		}
		var event struct {
			Data struct {
				Blocks struct{ ID, Cursor, Chain_order string }
			}
			Errors []struct{ Extensions struct{ Code, Cursor string } }
		}
		if err := json.Unmarshal([]byte(data), &event); err != nil {
			t.Errorf("invalid event %q: %v", data, err)
			continue
		}
		if len(event.Errors) > 0 {
			x := event.Errors[0].Extensions
			if code = x.Code; code == "EPOCH_CHANGED" && x.Cursor != "" {
				t.Errorf("EPOCH_CHANGED has the cursor %q", x.Cursor)
			}
			continue
		}
		b := event.Data.Blocks
		epoch := epochOf(t, "stream "+args, b.ID, b.Cursor)
		if first == "" {
			first = epoch
		}
		if epoch != first || b.Chain_order <= last {
			t.Errorf("a stream of epoch %s received block %s of epoch %s after %s", first, b.Chain_order, epoch, last)
		}
		last = b.Chain_order
		got++
	}
	return got, code
}

// readEpoch reads two pages with one query and checks that their blocks are of one epoch.
func readEpoch(t *testing.T, h http.Handler, after string) bool {
	const document = `query($after:String){blockchain{
		a:blocks(first:50,after:$after){edges{cursor node{hash}}} b:blocks(last:3){edges{cursor node{hash}}}}}`
	text := query(h, document, map[string]any{"after": after})
	type page struct {
		Edges []struct {
			Cursor string
			Node   struct{ Hash string }
		}
	}
	var r struct {
		Data   struct{ Blockchain struct{ A, B page } }
		Errors []struct{ Extensions struct{ Code string } }
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Errorf("invalid response %s: %v", text, err)
		return false
	}
	for _, e := range r.Errors {
		if e.Extensions.Code != "EPOCH_CHANGED" {
			t.Errorf("a page failed with %s", e.Extensions.Code)
		}
	}
	first := ""
	for _, e := range append(r.Data.Blockchain.A.Edges, r.Data.Blockchain.B.Edges...) {
		epoch := epochOf(t, "page after "+after, e.Node.Hash, e.Cursor)
		if first == "" {
			first = epoch
		}
		if epoch != first {
			t.Errorf("a response has blocks of the epochs %s and %s", first, epoch)
		}
	}
	return first != ""
}
