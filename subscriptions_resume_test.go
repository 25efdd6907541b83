package chaingql_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// A follower is a client on event streams that behaves as docs/protocol.md requires: it resumes from the id of its last
// event, and after STREAM_GAP it discards the blocks after the cursor.
type follower struct {
	t        *testing.T
	n        *network
	document string
	last     string   // the id of the last event
	got      []string // the chain_order of each received block
	codes    []string // the codes of the errors that ended the streams
}

// connect reads one stream until it has received count more blocks, the stream has ended, or a minute has passed.
func (f *follower) connect(count int) {
	f.t.Helper()
	var header []string
	if f.last != "" {
		header = []string{"Last-Event-ID", f.last}
	}
	e := f.n.stream(f.t, f.document, header...)
	timeout := time.After(time.Minute)
	for count > 0 {
		select {
		case line, open := <-e.lines:
			if !open {
				return
			}
			if f.take(line) {
				count--
			}
		case <-timeout:
			count = 0
		}
	}
	_ = e.res.Body.Close()
	for range e.lines { // until the reader has returned
	}
	synctest.Wait()
}

// take reads one line of a stream and reports whether it is a block.
func (f *follower) take(line string) bool {
	f.t.Helper()
	if id, ok := strings.CutPrefix(line, "id: "); ok {
		f.last = id
	}
	text, ok := strings.CutPrefix(line, "data: ")
	if !ok || text == "" {
		return false
	}
	var event struct {
		Data   struct{ Blocks struct{ Chain_order string } }
		Errors []struct{ Extensions struct{ Code, Cursor string } }
	}
	if err := json.Unmarshal([]byte(text), &event); err != nil {
		f.t.Fatalf("an event is not valid JSON: %v: %s", err, text)
	}
	if len(event.Errors) == 0 {
		f.got = append(f.got, event.Data.Blocks.Chain_order)
		return true
	}
	x := event.Errors[0].Extensions
	f.codes = append(f.codes, x.Code)
	if x.Code == "STREAM_GAP" {
		if x.Cursor == "" || x.Cursor != f.last {
			f.t.Errorf("STREAM_GAP has the cursor %q, but the id of its event is %q", x.Cursor, f.last)
		}
		for len(f.got) > 0 && f.got[len(f.got)-1] > x.Cursor {
			f.got = f.got[:len(f.got)-1]
		}
	}
	return false
}

func orders(blocks []chaingql.Block) (cursors []string) {
	for _, b := range blocks {
		cursors = append(cursors, string(b.Cursor))
	}
	return cursors
}

// A tornBackend does not read a page at one moment, although the Backend contract requires it. It first checks whether
// the cursor is too old, then calls between, and then reads the page.
type tornBackend struct {
	*memchain.Chain
	between func(chaingql.BlocksQuery)
}

func (b *tornBackend) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	if _, err := b.Chain.Blocks(ctx, chaingql.BlocksQuery{After: q.After, Before: q.Before, First: 1}); err != nil {
		return nil, err
	}
	b.between(q)
	kept, err := b.Chain.Blocks(ctx, chaingql.BlocksQuery{First: 1 << 30})
	return chaingql.PageOf(kept, q), err
}

func TestCatchUpReportsBlocksThatArePrunedWhileAPageIsRead(t *testing.T) {
	for name, blocks := range map[string][]chaingql.Block{
		"one shard":       weave(strings.Repeat("m", 2000)),
		"several shards":  randomBlocks(5, 2000),
		"one quiet shard": weave(strings.Repeat(strings.Repeat("m", 19)+"a", 100)),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := orders(blocks)
				pages := 0
				var h *chaingql.Handler
				chain := chainOf(t, blocks)
				torn := &tornBackend{Chain: chain, between: func(q chaingql.BlocksQuery) {
					i := slices.Index(all, string(q.After))
					if q.First < 2 || i < 0 || i > 1900 {
						return
					}
					if pages++; pages%3 == 0 {
						chain.Prune(blocks[i+4].Cursor) // prunes three blocks after the cursor
					}
				}}
				h, _ = newHandler(t, torn, chaingql.Options{WindowSize: 5})
				n := serve(t, mounted(h))
				f := &follower{t: t, n: n, document: `subscription{blocks{chain_order}}`, last: all[0]}
				var had []string
				for f.last != all[len(all)-1] {
					f.connect(5000)
					for i, c := range f.got {
						if i > 0 && slices.Index(all, c) != slices.Index(all, f.got[i-1])+1 {
							t.Fatalf("block %s comes after %s without an error; errors so far: %q",
								c, f.got[i-1], f.codes)
						}
					}
					had = append(had, f.got...)
					if len(f.got) > 0 && f.got[len(f.got)-1] == all[len(all)-1] {
						break
					}
					if len(f.codes) == 0 {
						t.Fatal("the stream ended without an error")
					}
					last := f.codes[len(f.codes)-1]
					if last != "CURSOR_TOO_OLD" && last != "STREAM_GAP" {
						t.Fatalf("the stream ended after %d blocks with %q", len(had), f.codes)
					}
					if f.codes[len(f.codes)-1] == "CURSOR_TOO_OLD" {
						oldest, _ := chain.Blocks(t.Context(), chaingql.BlocksQuery{First: 1})
						f.last, f.got = string(oldest[0].Cursor), nil // the client knows that it missed blocks
					}
				}
				if len(had) < 500 || len(f.codes) < 2 {
					t.Errorf("the test covers too little: %d blocks, errors %q", len(had), f.codes)
				}
			})
		})
	}
}

func TestBlocksPrunedBeforeTheFirstResumedPageAreReported(t *testing.T) {
	for name, at := range map[string]string{"cursor of a block": "", "cursor between blocks": "0"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				blocks := randomBlocks(7, 300)
				chain := chainOf(t, blocks)
				var armed atomic.Bool
				torn := &tornBackend{Chain: chain, between: func(q chaingql.BlocksQuery) {
					if armed.Load() && q.First > 1 {
						chain.Prune(blocks[60].Cursor)
					}
				}}
				h, _ := newHandler(t, torn, chaingql.Options{WindowSize: 5})
				n := serve(t, mounted(h))
				armed.Store(true)
				f := &follower{t: t, n: n, document: allBlocks, last: string(blocks[50].Cursor) + at}
				f.connect(300)
				if len(f.got) > 0 || !slices.Equal(f.codes, []string{"CURSOR_TOO_OLD"}) {
					t.Errorf("the client received %d blocks, beginning with %q, and the errors %q",
						len(f.got), f.got[:min(1, len(f.got))], f.codes)
				}
			})
		})
	}
}

func TestResumingAtNewestPrunedBlockLosesNoBlockAndMakesOneMoreCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := randomBlocks(7, 460)
		chain := chainOf(t, blocks)
		var calls atomic.Int64
		b := &tornBackend{Chain: chain, between: func(chaingql.BlocksQuery) { calls.Add(1) }}
		h, _ := newHandler(t, b, chaingql.Options{WindowSize: 5})
		n := serve(t, mounted(h))
		n.stream(t, allBlocks)
		time.Sleep(time.Second)
		for _, from := range []int{49, 9} {
			if from == 9 {
				chain.Prune(blocks[10].Cursor)
			}
			before := int(calls.Load())
			f := &follower{t: t, n: n, document: allBlocks, last: string(blocks[from].Cursor)}
			f.connect(460 - from - 1)
			if !slices.Equal(f.got, orders(blocks[from+1:])) || len(f.codes) > 0 {
				t.Errorf("from block %d, the client received %d blocks and the errors %q", from, len(f.got), f.codes)
			}
			pages := (460 - from - 1 + 99) / 100
			// If the block at the cursor is not stored any more, the Handler needs a second small call.
			most := pages + 1
			if made := int(calls.Load()) - before; made > most && from != 9 || made > most+1 {
				t.Errorf("from block %d, the Handler made %d calls for %d pages", from, made, pages)
			}
		}
	})
}

func TestClientWithShortConnectionsReceivesBlocksAfterARepairedGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := weave("ma" + "a" + strings.Repeat("mb", 30) + "a" + strings.Repeat("m", 20))
		s := newGappyChain(t, blocks[:2], blocks[2].Cursor)
		h, _ := newHandler(t, s, chaingql.Options{})
		n := serve(t, mounted(h))
		f := &follower{t: t, n: n, document: allBlocks}
		e := n.stream(t, allBlocks)
		time.Sleep(time.Second)
		commit(t, s.Chain, blocks[2:63]...)
		synctest.Wait()
		for len(e.lines) > 0 {
			f.take(<-e.lines)
		}
		equal(t, "blocks before the gap shows", len(f.got), 60)
		_ = e.res.Body.Close() // the client disconnects before it receives the error
		synctest.Wait()
		commit(t, s.Chain, blocks[63:]...)
		for range 10 {
			f.connect(20)
		}
		if want := orders(blocks[2:]); !slices.Equal(f.got, want) || !slices.Equal(f.codes, []string{"STREAM_GAP"}) {
			t.Errorf("after 10 connections, the client has %d of %d blocks and the errors %q",
				len(f.got), len(want), f.codes)
		}
	})
}

func TestPermanentGapIsReportedOncePerClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := weave("ma" + "a" + strings.Repeat("mb", 30) + "a" + strings.Repeat("m", 20))
		s := newGappyChain(t, blocks[:2], blocks[2].Cursor)
		s.permanent = true
		h, _ := newHandler(t, s, chaingql.Options{})
		n := serve(t, mounted(h))
		f := &follower{t: t, n: n, document: allBlocks}
		e := n.stream(t, allBlocks)
		time.Sleep(time.Second)
		commit(t, s.Chain, blocks[2:]...)
		time.Sleep(10 * time.Second)
		for len(e.lines) > 0 {
			f.take(<-e.lines)
		}
		for range 10 {
			f.connect(20)
		}
		if want := orders(blocks[3:]); !slices.Equal(f.got, want) || !slices.Equal(f.codes, []string{"STREAM_GAP"}) {
			t.Errorf("the client has %d of %d blocks and the errors %q", len(f.got), len(want), f.codes)
		}
		late := &follower{t: t, n: n, document: allBlocks, last: string(blocks[0].Cursor)}
		for range 10 {
			late.connect(20)
		}
		want := orders(append([]chaingql.Block{blocks[1]}, blocks[3:]...))
		if !slices.Equal(late.got, want) || !slices.Equal(late.codes, []string{"STREAM_GAP"}) {
			t.Errorf("a client that came later has %d of %d blocks and the errors %q",
				len(late.got), len(want), late.codes)
		}
	})
}

// The last block of a quiet shard is older than all stored blocks. The Handler has received it, and must not report it
// as missing to a client that asks for the stored blocks only.
func TestStreamFromTheOldestStoredBlockHasNoGapBeforeThatBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := weave("ma" + strings.Repeat("m", 40))
		chain := chainOf(t, blocks[:1])
		h, _ := newHandler(t, chain, chaingql.Options{})
		n := serve(t, mounted(h))
		f := &follower{t: t, n: n, document: `subscription{blocks(after:""){chain_order}}`}
		query(h, "{info{latency}}", nil)
		time.Sleep(time.Second)
		commit(t, chain, blocks[1:30]...)
		time.Sleep(time.Second)
		chain.Prune(blocks[20].Cursor)
		f.connect(1000)
		commit(t, chain, blocks[30:]...)
		f.connect(12)
		if want := orders(blocks[20:]); !slices.Equal(f.got, want) || f.codes != nil {
			t.Errorf("the client received %d of %d blocks and the errors %q", len(f.got), len(want), f.codes)
		}
	})
}

// The end of a socket reports the cursors of all its subscriptions, which clients may have sent.
func TestCursorHasAtMost192Bytes(t *testing.T) {
	for size, accepted := range map[int]bool{192: true, 193: false} {
		synctest.Test(t, func(t *testing.T) {
			none := func(context.Context, chaingql.BlocksQuery) ([]chaingql.Block, error) { return nil, nil }
			h, _ := newHandler(t, stubBackend{Backend: memchain.New(), blocks: none}, chaingql.Options{})
			cursor := strings.Repeat("z", size)
			page := query(h, `{blockchain{blocks(before:"`+cursor+`"){edges{cursor}}}}`, nil)
			equal(t, "a page is refused", strings.Contains(page, `"Invalid cursor"`), !accepted)
			c := serve(t, mounted(h)).socket(t)
			c.send(start("1", `subscription{blocks(after:"`+cursor+`"){id}}`))
			synctest.Wait()
			if !accepted {
				c.expect("response to a long cursor", `{"type":"error","id":"1","payload":`+invalidCursor+`}`)
				return
			}
			go func() { _ = h.Shutdown(context.Background()) }()
			c.expect("the end", `{"type":"connection_error","id":null,"payload":{"message":"Service is shutting down",`+
				`"extensions":{"code":"SERVICE_UNAVAILABLE","cursor":"`+cursor+`"}}}`, "CLOSE 1001")
		})
	}
}
