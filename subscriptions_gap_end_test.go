package chaingql_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
)

// A paced is a client of one transport that reads only when the test asks it to.
type paced struct {
	*wire
	transport string
	begun     time.Time
}

var pacedTransports = []string{"sse", "graphql-ws", "graphql-transport-ws"}

// paced opens a connection for a transport. On a socket, it also sends connection_init.
func (n *network) paced(t *testing.T, transport string) *paced {
	t.Helper()
	p := &paced{n.wire(t), transport, time.Now()}
	if transport == "sse" {
		return p
	}
	fmt.Fprintf(p, "GET /demo/graphql HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"+
		"Sec-WebSocket-Protocol: %s\r\n\r\n", transport)
	if _, err := http.ReadResponse(p.in, nil); err != nil {
		t.Fatal(err)
	}
	p.send(`{"type":"connection_init"}`)
	p.frame()
	return p
}

func (p *paced) send(frame string) {
	p.t.Helper()
	b := binary.BigEndian.AppendUint16([]byte{0x81, 0x80 | 126}, uint16(len(frame)))
	if _, err := p.Write(append(append(b, 0, 0, 0, 0), frame...)); err != nil {
		p.t.Fatal(err)
	}
}

// subscribe starts a subscription. On an event stream, it may be called only once.
func (p *paced) subscribe(id, document string) {
	p.t.Helper()
	switch p.transport {
	case "sse":
		text := body(document, nil)
		p.post("/demo/graphql", text, len(text), "Accept: text/event-stream", "Connection: close")
		if _, err := http.ReadResponse(p.in, nil); err != nil {
			p.t.Fatal(err)
		}
	case "graphql-ws":
		p.send(start(id, document))
	default:
		p.send(strings.Replace(start(id, document), `"start"`, `"subscribe"`, 1))
	}
	synctest.Wait()
}

// frame reads one message of a socket. It returns "" when the connection has ended.
func (p *paced) frame() string {
	var h [4]byte
	if _, err := io.ReadFull(p.in, h[:2]); err != nil || h[0] == 0x88 {
		return ""
	}
	n := int(h[1])
	if n == 126 {
		if _, err := io.ReadFull(p.in, h[2:]); err != nil {
			return ""
		}
		n = int(binary.BigEndian.Uint16(h[2:]))
	}
	text := make([]byte, n)
	_, _ = io.ReadFull(p.in, text)
	return string(text)
}

// rest reads until the end of the connection and returns the messages that have errors.
func (p *paced) rest() (errors []string) {
	if p.transport == "sse" {
		for sc := bufio.NewScanner(p.in); sc.Scan(); {
			if strings.Contains(sc.Text(), `"errors"`) {
				errors = append(errors, sc.Text())
			}
		}
		return errors
	}
	for text := p.frame(); text != ""; text = p.frame() {
		if strings.Contains(text, `"extensions"`) {
			errors = append(errors, text)
		}
	}
	_ = p.Close()
	return errors
}

// sessionTime is the time until the credentials expire.
const sessionTime = 8 * time.Second

// endings contains the ways in which the server can end a subscription.
var endings = map[string]func(p *paced, h *chaingql.Handler){
	"Shutdown":          func(p *paced, h *chaingql.Handler) { go func() { _ = h.Shutdown(p.t.Context()) }() },
	"the session's end": func(p *paced, _ *chaingql.Handler) { time.Sleep(time.Until(p.begun.Add(sessionTime))) },
}

// expectGap checks that errors has one message, and that it has STREAM_GAP and the given cursor.
func expectGap(t *testing.T, errors []string, cursor chaingql.Cursor) {
	t.Helper()
	want := fmt.Sprintf(`"code":"STREAM_GAP","cursor":"%s(!\S+)?"`, cursor)
	if len(errors) != 1 || len(regexp.MustCompile(want).FindAllString(errors[0], -1)) != 1 {
		t.Errorf("the client received the errors %s\nwant %s", strings.Join(errors, "\n"), want)
	}
}

// The client is slow. When the gap is found, blocks after the missing one have been sent, but not received yet. The
// server ends the subscription before the client has received STREAM_GAP.
func TestUnsentStreamGapIsReportedWhenTheSubscriptionIsEnded(t *testing.T) {
	for _, transport := range pacedTransports {
		for name, end := range endings {
			t.Run(transport+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					blocks := weave("mabmab" + "abma")
					s := newGappyChain(t, blocks[:6], blocks[6].Cursor)
					var d hookRecorder
					h, _ := newHandler(t, s, chaingql.Options{
						KeepAliveInterval: -1, Authorizer: expiresIn(sessionTime), Hooks: d.hooks(),
					})
					p := serve(t, mounted(h)).paced(t, transport)
					p.subscribe("1", allBlocks)
					commit(t, s.Chain, blocks[6:9]...)
					synctest.Wait()
					commit(t, s.Chain, blocks[9]) // reveals the gap, which is repaired
					synctest.Wait()
					end(p, h)
					synctest.Wait()
					expectGap(t, p.rest(), blocks[5].Cursor)
					synctest.Wait()
					if ends := strings.Join(d.drain(), "\n"); !strings.Contains(ends, `failed true, reason "gap"`) {
						t.Errorf("no hook reported the reason gap: %s", ends)
					}
				})
			})
		}
	}
}

// The block that reveals the gap is held back while the Handler reads the missing one.
func TestSubscriptionThatEndsDuringAGapRepairReceivesStreamGap(t *testing.T) {
	for _, transport := range pacedTransports {
		for _, name := range []string{"Shutdown", "the session's end"} {
			t.Run(transport+", "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					blocks := weave("mabmab" + "abma")
					s := newGappyChain(t, blocks[:6], blocks[6].Cursor)
					s.permanent = true
					opts := chaingql.Options{KeepAliveInterval: -1, Authorizer: expiresIn(sessionTime)}
					h, _ := newHandler(t, s, opts)
					n := serve(t, mounted(h))
					p, master := n.paced(t, transport), n.paced(t, transport)
					p.subscribe("1", allBlocks)
					master.subscribe("1", onlyMaster)
					commit(t, s.Chain, blocks[6:9]...)
					time.Sleep(7 * time.Second)
					commit(t, s.Chain, blocks[9])
					time.Sleep(time.Second / 2)
					endings[name](p, h)
					expectGap(t, p.rest(), blocks[5].Cursor) // before the gap
					want := fmt.Sprintf(`"code":"SERVICE_UNAVAILABLE","cursor":%q`, blocks[8].Cursor)
					if got := master.rest(); len(got) != 1 || !strings.Contains(got[0], want) {
						t.Errorf("a subscription that the gap does not affect received %s, want %s", got, want)
					}
				})
			})
		}
	}
}

// A heartbeat is due when the search for a missing block ends. If its id contained the reported gap, a browser that
// reconnects with the id would never receive STREAM_GAP.
func TestHeartbeatBeforeStreamGapDoesNotReportTheGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := weave("mabmab" + "maa")
		s := newGappyChain(t, blocks[:6], blocks[7].Cursor)
		s.permanent = true
		h, _ := newHandler(t, s, chaingql.Options{KeepAliveInterval: 10 * time.Second})
		n := serve(t, mounted(h))
		var streams []*events
		for range 200 { // each of them sends the heartbeat or STREAM_GAP first
			streams = append(streams, n.stream(t, allBlocks))
		}
		synctest.Wait()
		commit(t, s.Chain, blocks[6])
		time.Sleep(5 * time.Second)
		commit(t, s.Chain, blocks[8:]...)
		time.Sleep(6 * time.Second)
		for _, e := range streams {
			if id, _ := e.position.Load().(string); strings.Contains(id, "!") {
				t.Errorf("a heartbeat contained the id %q before STREAM_GAP", id)
			}
		}
	})
}

// A browser loses its connection while the server searches for a missing block, and reconnects to another instance,
// which has the block. If the last heartbeat contained a cursor after it, the browser would never receive the block.
func TestHeartbeatDuringTheSearchForABlockDoesNotSkipTheBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := weave("mabmab" + "amma")
		s := newGappyChain(t, blocks[:6], blocks[6].Cursor)
		s.permanent = true
		one, _ := newHandler(t, s, chaingql.Options{KeepAliveInterval: 10 * time.Second})
		two, _ := newHandler(t, chainOf(t, blocks), chaingql.Options{})
		lost := serve(t, mounted(one)).stream(t, onlyA)
		time.Sleep(19 * time.Second)
		commit(t, s.Chain, blocks[6:]...)
		time.Sleep(2 * time.Second)
		lost.expect("heartbeats, the last one during the search", ":", ":", ":")
		last, _ := lost.position.Load().(string)
		again := serve(t, mounted(two)).stream(t, onlyA, "Last-Event-ID", last)
		again.expect("the other instance", append([]string{":"}, nexts([]chaingql.Block{blocks[6], blocks[9]})...)...)
	})
}

// Clients of graphql-ws restart an operation on their next connection only if it has not ended. Therefore the
// connection_error contains all cursors.
func TestConnectionErrorHasTheCursorOfEachSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &tickSource{events: untilDone}
		blocks := weave("mabmabmabm")
		chain := chainOf(t, blocks[:4])
		h, _ := newHandler(t, chain, chaingql.Options{KeepAliveInterval: -1, Schema: k.schema()})
		c := serve(t, mounted(h)).socket(t)
		c.send(start("all", allBlocks))
		c.send(start("host", `subscription{tick}`))
		c.send(start("later", fmt.Sprintf("subscription{blocks(after:%q){chain_order}}", blocks[8].Cursor)))
		synctest.Wait()
		commit(t, chain, blocks[4:6]...)
		c.expect("blocks", blockFrames("all", blocks[4:6]...)...)
		if err := h.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		c.expect("the end", fmt.Sprintf(`{"type":"connection_error","id":null,"payload":{`+
			`"message":"Service is shutting down","extensions":{`+
			`"code":"SERVICE_UNAVAILABLE","cursor":%q,`+
			`"operations":[{"id":"all","code":"SERVICE_UNAVAILABLE","cursor":%q},`+
			`{"id":"host","code":"SERVICE_UNAVAILABLE"},{"id":"later","code":"SERVICE_UNAVAILABLE","cursor":%q}]}}}`,
			blocks[5].Cursor, blocks[5].Cursor, blocks[8].Cursor), "CLOSE 1001")
	})
}

// The Handler could not check whether a block is missing before the first block of workchain 0. The blocks after the
// subscription's position are then pruned.
func TestSubscriptionThatMayLackABlockReceivesStreamGapBeforeCursorTooOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := weave("mmmaammm")
		b := newBreakable()
		commit(t, b.Chain, blocks[:3]...)
		h, _ := newHandler(t, pagesBreak{b}, chaingql.Options{})
		n := serve(t, mounted(h))
		f := &follower{t: t, n: n, document: allBlocks, last: string(blocks[1].Cursor)}
		e := n.stream(t, allBlocks, "Last-Event-ID", f.last)
		synctest.Wait()
		b.breakDown(errors.New("pages are unavailable"))
		commit(t, b.Chain, blocks[4]) // blocks[3] is missing
		time.Sleep(10 * time.Second)
		b.Interrupt(errors.New("connection reset"))
		commit(t, b.Chain, blocks[5:]...)
		b.Prune(blocks[7].Cursor)
		b.restore()
		time.Sleep(time.Minute)
		for len(e.lines) > 0 {
			f.take(<-e.lines)
		}
		equal(t, "codes", strings.Join(f.codes, " "), "STREAM_GAP")
		equal(t, "blocks that the client keeps", strings.Join(f.got, " "), string(blocks[2].Cursor))
		f.connect(1)
		equal(t, "codes", strings.Join(f.codes, " "), "STREAM_GAP CURSOR_TOO_OLD")
	})
}

// A pagesBreak is a breakable whose Follow never breaks.
type pagesBreak struct{ *breakable }

func (b pagesBreak) Follow(ctx context.Context, after chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	return b.Chain.Follow(ctx, after)
}
