package chaingql_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/backendtest"
	"github.com/chaingql/chaingql/memchain"
)

// epochChain returns a chain with the epoch "one".
func epochChain(t *testing.T, blocks []chaingql.Block) *memchain.Chain {
	t.Helper()
	chain := memchain.New()
	chain.Replace("one")
	commit(t, chain, blocks...)
	return chain
}

// withChecksum completes a cursor that ends in reported gaps without their checksum.
func withChecksum(cursor string) string {
	if strings.Contains(cursor, "!") {
		return cursor + chaingql.Checksum(cursor)
	}
	return cursor
}

const (
	epochChanged = `{"message":"The chain was replaced: its cursors are no longer valid.",` +
		`"extensions":{"code":"EPOCH_CHANGED"}}`
	pageDocument = `query($first:Int,$after:String,$last:Int,$before:String){blockchain{` +
		`blocks(first:$first,after:$after,last:$last,before:$before){edges{cursor node{chain_order}}` +
		`pageInfo{startCursor endCursor}}}}`
	streamDocument = `subscription($after:String){blocks(after:$after){chain_order cursor}}`
)

func TestCursorsContainTheEpochButChainOrderDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := randomBlocks(6, 20)
		for what, opts := range map[string]chaingql.Options{"window": {}, "Backend": {WindowSize: 1}} {
			chain := epochChain(t, blocks[:10])
			h, _ := newHandler(t, chain, opts)
			n := serve(t, mounted(h))
			e := n.stream(t, `subscription{blocks{chain_order cursor}}`)
			time.Sleep(time.Second)
			commit(t, chain, blocks[10:]...)
			time.Sleep(time.Second)
			a, b := string(blocks[18].Cursor), string(blocks[19].Cursor)
			equal(t, "page from the "+what, query(h, pageDocument, map[string]any{"last": 2}),
				`{"data":{"blockchain":{"blocks":{"edges":[`+
					`{"cursor":"`+a+`~one","node":{"chain_order":"`+a+`"}},`+
					`{"cursor":"`+b+`~one","node":{"chain_order":"`+b+`"}}],`+
					`"pageInfo":{"startCursor":"`+a+`~one","endCursor":"`+b+`~one"}}}}}`)
			var lines []string
			for len(e.lines) > 0 {
				lines = append(lines, <-e.lines)
			}
			for _, want := range []string{
				"id: " + b + "~one", `data: {"data":{"blocks":{"chain_order":"` + b + `","cursor":"` + b + `~one"}}}`,
			} {
				if !slices.Contains(lines, want) {
					t.Errorf("the stream lacks %q: %q", want, lines)
				}
			}
		}
	})
}

func TestCursorWithoutAnEpochEqualsChainOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := randomBlocks(6, 2)
		h, _ := newHandler(t, chainOf(t, blocks), chaingql.Options{})
		n := serve(t, mounted(h))
		a, b := string(blocks[0].Cursor), string(blocks[1].Cursor)
		for _, protocol := range []string{"graphql-ws", "graphql-transport-ws"} {
			s := allTransports[protocol](t, n, streamDocument, map[string]any{"after": a})
			equal(t, protocol, s, `{"data":{"blocks":{"chain_order":"`+b+`","cursor":"`+b+`"}}}`)
		}
	})
}

func TestAllFormsOfACursorAreAcceptedOnEveryTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := randomBlocks(6, 200)
		h, _ := newHandler(t, epochChain(t, blocks), chaingql.Options{})
		n := serve(t, mounted(h))
		for i, plain := range map[int]string{20: string(blocks[19].Cursor), 198: string(blocks[197].Cursor)} {
			next := string(blocks[i].Cursor)
			for _, cursor := range []string{
				plain, plain + "~one", plain + "!5.k3v9q0tm", plain + "~one!5.k3v9q0tm",
			} {
				cursor := withChecksum(cursor)
				for transport, ask := range allTransports {
					page := ask(t, n, pageDocument, map[string]any{"first": 1, "after": cursor})
					if !strings.Contains(page, `{"chain_order":"`+next+`"}`) {
						t.Errorf("%s: the page after %q is %s", transport, cursor, page)
					}
					page = ask(t, n, pageDocument, map[string]any{"last": 1, "before": cursor})
					if before := string(blocks[i-2].Cursor); !strings.Contains(page, `{"chain_order":"`+before+`"}`) {
						t.Errorf("%s: the page before %q is %s", transport, cursor, page)
					}
				}
				for _, transport := range []string{"graphql-ws", "graphql-transport-ws"} {
					equal(t, transport+" after "+cursor,
						allTransports[transport](t, n, streamDocument, map[string]any{"after": cursor}),
						`{"data":{"blocks":{"chain_order":"`+next+`","cursor":"`+next+`~one"}}}`)
				}
				f := &follower{t: t, n: n, document: allBlocks, last: cursor}
				f.connect(1)
				equal(t, "events after "+cursor, strings.Join(f.got, " "), next)
			}
		}
	})
}

func TestCursorOfAnotherEpochIsRefusedOnEveryTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := randomBlocks(6, 200)
		h, _ := newHandler(t, epochChain(t, blocks), chaingql.Options{})
		n := serve(t, mounted(h))
		for _, plain := range []string{string(blocks[19].Cursor), string(blocks[197].Cursor), "zzz", ""} {
			for suffix, want := range map[string]string{
				"~two":                        epochChanged,
				"~" + strings.Repeat("a", 32): epochChanged,
				"~two!5.k3v9q0tm":             epochChanged,
				"~":                           invalidCursor,
				"~one~one":                    invalidCursor,
				"~o-e":                        invalidCursor,
				"~" + strings.Repeat("a", 33): invalidCursor,
			} {
				cursor := withChecksum(plain + suffix)
				for transport, ask := range allTransports {
					for _, v := range []map[string]any{{"first": 1, "after": cursor}, {"last": 1, "before": cursor}} {
						errs := parse(t, ask(t, n, pageDocument, v)).Errors
						code := parse(t, `{"errors":[`+want+`]}`).code()
						if len(errs) != 1 || errs[0].Extensions["code"] != code {
							t.Errorf("%s: the page at %q has the errors %v, want %s", transport, cursor, errs, code)
						}
					}
				}
				for _, transport := range []string{"events", "graphql-ws", "graphql-transport-ws"} {
					equal(t, transport+" after "+cursor,
						allTransports[transport](t, n, streamDocument, map[string]any{"after": cursor}),
						`{"errors":[`+want+`]}`)
				}
				f := &follower{t: t, n: n, document: allBlocks, last: cursor}
				f.connect(1)
				equal(t, "Last-Event-ID "+cursor, strings.Join(append(f.got, f.codes...), " "),
					parse(t, `{"errors":[`+want+`]}`).code())
			}
		}
	})
}

func TestCursorsInErrorsHaveTheEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := randomBlocks(6, 20)
		chain := epochChain(t, blocks)
		chain.Prune(blocks[10].Cursor)
		h, _ := newHandler(t, chain, chaingql.Options{})
		n := serve(t, mounted(h))
		for transport, ask := range allTransports {
			after := map[string]any{"first": 1, "after": string(blocks[3].Cursor) + "~one"}
			reply := parse(t, ask(t, n, pageDocument, after))
			equal(t, transport+": code", reply.code(), "CURSOR_TOO_OLD")
			equal(t, transport+": oldest", reply.Errors[0].Extensions["oldest"], any(string(blocks[10].Cursor)+"~one"))
		}
		c := n.socket(t)
		c.send(start("1", allBlocks))
		time.Sleep(time.Second)
		go func() { _ = h.Shutdown(context.Background()) }()
		c.expect("shutdown", `{"type":"connection_error","id":null,"payload":{"message":"Service is shutting down",`+
			`"extensions":{"code":"SERVICE_UNAVAILABLE","cursor":"`+string(blocks[19].Cursor)+`~one"}}}`, "CLOSE 1001")
	})
}

func TestFiltersAcceptCursorsWithAnEpoch(t *testing.T) {
	var blocks []chaingql.Block
	for i := range uint64(40) {
		blocks = append(blocks, chaingql.Block{Workchain: -1, Cursor: chaingql.SeqCursor(i * 7)})
	}
	master := backendtest.Chain(40, 1)
	for name, all := range map[string][]chaingql.Block{"SeqCursor": blocks, "ChainOrder": master} {
		for i, b := range all[:len(all)-1] {
			for _, epoch := range []string{"0", "z", "Z9", strings.Repeat("z", 32)} {
				if c := string(b.Cursor) + "~" + epoch; c <= string(b.Cursor) || c >= string(all[i+1].Cursor) {
					t.Fatalf("%s: %q is not between %q and %q", name, c, b.Cursor, all[i+1].Cursor)
				}
			}
		}
	}
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHandler(t, epochChain(t, master), chaingql.Options{})
		n := serve(t, mounted(h))
		for i := range master[:len(master)-1] {
			after, err := json.Marshal(string(master[i].Cursor) + "~one")
			if err != nil {
				t.Fatal(err)
			}
			f := &follower{t: t, n: n, last: string(master[0].Cursor),
				document: `subscription{blocks(filter:{chain_order:{gt:` + string(after) + `}}){chain_order}}`}
			f.connect(1)
			equal(t, "the first block after "+string(after), strings.Join(f.got, " "), string(master[i+1].Cursor))
		}
	})
}
