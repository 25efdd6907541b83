package chaingql_test

import (
	"context"
	"encoding/json"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
)

const invalidCursor = `{"message":"Invalid cursor","extensions":{"code":"BAD_USER_INPUT"}}`

func TestForeignCursorIsRejectedInsideAndOutsideTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := randomBlocks(6, 100)
		_, chain, n := serveChain(t, chaingql.Options{WindowSize: 16})
		n.stream(t, allBlocks) // fills the window
		time.Sleep(time.Second)
		commit(t, chain, blocks...)
		time.Sleep(time.Second)
		for what, cursor := range map[string]string{
			"before the window":             string(blocks[5].Cursor) + "z",
			"in the window":                 string(blocks[95].Cursor) + "z",
			"after the newest block":        "zzz",
			"with a control character":      string(blocks[95].Cursor) + "\x01",
			"with a character of two bytes": string(blocks[95].Cursor) + "é",
			"with a replacement character":  string(blocks[95].Cursor) + "\uFFFD",
		} {
			s := n.socket(t)
			after, err := json.Marshal(cursor)
			if err != nil {
				t.Fatal(err)
			}
			s.send(`{"id":"1","type":"start","payload":` +
				`{"query":"subscription($a:String){blocks(after:$a){chain_order}}",` +
				`"variables":{"a":` + string(after) + `}}}`)
			time.Sleep(time.Second)
			s.expect(what, `{"type":"error","id":"1","payload":`+invalidCursor+`}`)
		}
	})
}

// In a binaryCursors chain, Follow yields cursors with the high bit set in each byte. If pages is true, Blocks returns
// such cursors too.
type binaryCursors struct {
	chaingql.Backend
	pages bool
}

func (c binaryCursors) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	if !c.pages {
		return c.Backend.Blocks(ctx, q)
	}
	q.After, q.Before = flip(q.After), flip(q.Before)
	page, err := c.Backend.Blocks(ctx, q)
	for i := range page {
		page[i].Cursor = flip(page[i].Cursor)
	}
	return page, err
}

func (c binaryCursors) Follow(ctx context.Context, after chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	if c.pages {
		after = flip(after)
	}
	return func(yield func(chaingql.Block, error) bool) {
		for b, err := range c.Backend.Follow(ctx, after) {
			b.Cursor = flip(b.Cursor)
			if !yield(b, err) {
				return
			}
		}
	}
}

func flip(c chaingql.Cursor) chaingql.Cursor {
	flipped := []byte(c)
	for i := range flipped {
		flipped[i] ^= 0x80
	}
	return chaingql.Cursor(flipped)
}

func TestNonASCIICursorFromBlocksIsABackendError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := randomBlocks(6, 20)
		chain := chainOf(t, blocks[:10])
		h, log := newHandler(t, binaryCursors{chain, true}, chaingql.Options{})
		masked(t, post(h, askBlocks).Body.String(), log, "printable ASCII")
		e := serve(t, mounted(h)).stream(t, allBlocks)
		time.Sleep(time.Second)
		commit(t, chain, blocks[10:]...)
		time.Sleep(time.Second)
		for len(e.lines) > 0 {
			if line := <-e.lines; strings.Contains(line, "chain_order") || strings.HasPrefix(line, "id:") {
				t.Errorf("a subscription received a block from whose cursor it cannot resume: %q", line)
			}
		}
	})
}

// The cursors from Follow are checked separately from those from Blocks.
func TestNonASCIICursorFromFollowCountsAsSourceFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := randomBlocks(6, 20)
		chain := chainOf(t, blocks[:10])
		h, log := newHandler(t, binaryCursors{chain, false}, chaingql.Options{})
		e := serve(t, mounted(h)).stream(t, allBlocks)
		time.Sleep(time.Second)
		commit(t, chain, blocks[10:]...)
		time.Sleep(time.Second)
		for len(e.lines) > 0 {
			if line := <-e.lines; strings.Contains(line, "\uFFFD") {
				t.Errorf("a subscription received a replacement character: %q", line)
			}
		}
		if got := log.String(); !strings.Contains(got, "printable ASCII") {
			t.Errorf("the log lacks the reason for the failure: %s", got)
		}
	})
}
