package chaingql_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

func start(id, document string) string {
	const message = `{"id":%q,"type":"start",` +
		`"payload":{"variables":{},"extensions":{},"operationName":null,"query":%q}}`
	return fmt.Sprintf(message, id, document)
}

func data(id, data string) string {
	return fmt.Sprintf(`{"type":"data","id":%q,"payload":{"data":%s}}`, id, data)
}

// serveChain returns a Handler, its chain, which is new and empty, and a network that serves the Handler.
func serveChain(t *testing.T, opts chaingql.Options) (*chaingql.Handler, *memchain.Chain, *network) {
	chain := memchain.New()
	h, _ := newHandler(t, chain, opts)
	return h, chain, serve(t, mounted(h))
}

func commit(t testing.TB, chain *memchain.Chain, blocks ...chaingql.Block) {
	t.Helper()
	if err := chain.Append(blocks...); err != nil {
		t.Fatal(err)
	}
}

func TestNewBlocksArriveInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := randomBlocks(11, 60)
		_, chain, n := serveChain(t, chaingql.Options{})
		commit(t, chain, blocks[:10]...)
		s := n.socket(t)
		s.send(start("1", "subscription{blocks{chain_order}}"))
		s.expect("blocks from before the subscription")
		var want []string
		for at := 10; at < 60; at += 5 {
			commit(t, chain, blocks[at:at+5]...)
			for _, b := range blocks[at : at+5] {
				want = append(want, data("1", `{"blocks":{"chain_order":"`+string(b.Cursor)+`"}}`))
			}
			time.Sleep(time.Second)
		}
		s.expect("new blocks", want...)
	})
}

func TestSubscriptionsMatchTheRecordedReference(t *testing.T) {
	const h787 = "42afd32dd0d9404f7f04da43d103b8dda792c089ae62b4da32f5226e28eaa5e1"
	synctest.Test(t, func(t *testing.T) {
		_, chain, n := serveChain(t, chaingql.Options{})
		s := n.socket(t)
		s.send(start("1", "subscription{blocks(filter:{workchain_id:{eq:-1}}){seq_no id}}"))
		s.send(start("al", "subscription{x:blocks(filter:{workchain_id:{eq:-1}}){s:seq_no h:id __typename}}"))
		s.send(start("fr", "subscription{blocks(filter:{workchain_id:{eq:-1}}){...F}} fragment F on Block{seq_no id}"))
		const filtered = `"payload":{"query":"subscription ` +
			`blocks($filter: BlockFilter){blocks(filter:$filter){seq_no}}",` +
			`"variables":{"filter":{"workchain_id":{"eq":%d}}}}}`
		s.send(`{"id":"v","type":"start",` + fmt.Sprintf(filtered, -1))
		s.send(`{"id":"w","type":"start",` + fmt.Sprintf(filtered, 0))
		s.send(`{"type":"start","payload":{"query":"subscription{blocks{workchain_id shard gen_utime}}"}}`)
		s.expect("before any block")
		commit(t, chain, masterBlock(787, h787))
		received := map[string]int{}
		for _, frame := range s.receive() {
			received[frame]++
		}
		for _, want := range []string{
			data("1", `{"blocks":{"seq_no":787,"id":"`+h787+`"}}`),
			data("al", `{"x":{"s":787,"h":"`+h787+`","__typename":"Block"}}`),
			data("fr", `{"blocks":{"seq_no":787,"id":"`+h787+`"}}`),
			data("v", `{"blocks":{"seq_no":787}}`),
			`{"type":"data","payload":{"data":{"blocks":{"workchain_id":-1,` +
				`"shard":"8000000000000000","gen_utime":1795205730}}}}`,
		} {
			if received[want]--; received[want] != 0 {
				t.Errorf("this frame was not received exactly once: %s", want)
			}
			delete(received, want)
		}
		if len(received) > 0 {
			t.Errorf("the client received unexpected frames: %v", received)
		}
	})
}

func TestInvalidSubscriptionsAreRefused(t *testing.T) {
	fail := func(message, location, code string) string {
		if location != "" {
			location = `"locations":[{"line":1,"column":` + location + `}],`
		}
		return fmt.Sprintf(`{"type":"error","id":"1","payload":{"message":%q,%s"extensions":{"code":%q}}}`,
			message, location, code)
	}
	for frame, want := range map[string]string{
		start("1", "subscription{blocks{nope}}"): fail(
			`Cannot query field "nope" on type "Block".`, "21", "GRAPHQL_VALIDATION_FAILED"),
		start("1", "subscription{a:blocks{id} b:blocks{seq_no}}"): fail(
			"Anonymous Subscription must select only one top level field.", "27", "GRAPHQL_VALIDATION_FAILED"),
		start("1", "subscription{__typename}"): fail(
			"Anonymous Subscription must not select an introspection top level field.",
			"14", "GRAPHQL_VALIDATION_FAILED"),
		start("1", "subscription{blocks @skip(if:true){id}}"): fail(
			"Anonymous Subscription must not use `@skip` or `@include` directives in the top level selection.", "21",
			"GRAPHQL_VALIDATION_FAILED"),
		`{"id":"1","type":"start"}`:                       fail("Must provide query string.", "", "BAD_REQUEST"),
		`{"id":"1","type":"start","payload":null}`:        fail("Must provide query string.", "", "BAD_REQUEST"),
		`{"id":"1","type":"start","payload":{"query":5}}`: fail(`"query" must be a string.`, "", "BAD_REQUEST"),
		`{"id":"1","type":"start","payload":{"query":"{a}","query":"{b}"}}`: fail(
			`The body is not JSON: duplicate key "query".`, "", "BAD_REQUEST"),
		`{"id":"1","type":"start","payload":"x"}`: fail("The body must be a JSON object.", "", "BAD_REQUEST"),
		`{"id":"1","type":"start","payload":{"query":"query A{info{version}} query B{info{version}}"}}`: fail(
			"Must provide operation name if query contains multiple operations.", "", "BAD_USER_INPUT"),
		`{"id":"1","type":"start","payload":{"query":"subscription b($f:BlockFilter){blocks(filter:$f){id}}",` +
			`"variables":{"f":{"workchain_id":{"eq":"x"}}}}}`: fail(
			`Variable "$f" got invalid value "x" at "f.workchain_id.eq"; `+
				`Int cannot represent non-integer value, or one past 32 bits.`, "16", "BAD_USER_INPUT"),
	} {
		synctest.Test(t, func(t *testing.T) {
			_, chain, n := serveChain(t, chaingql.Options{})
			s := n.socket(t)
			s.send(frame)
			s.expect(frame, want)
			commit(t, chain, masterBlock(1, strings.Repeat("0", 64)))
			s.send(startVersion)
			s.expect("the socket still works", dataVersion, complete)
		})
	}
}

func TestBlockIsEvaluatedOnceForEqualSubscriptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, chain, n := serveChain(t, chaingql.Options{})
		s := n.socket(t)
		const filtered = `{"query":"subscription blocks($filter: BlockFilter){blocks(filter:$filter){seq_no}}",` +
			`"variables":{"filter":{"workchain_id":{"eq":%d}}}}`
		const until = `{"query":"subscription($a:String){` +
			`blocks(after:$a,filter:{chain_order:{lt:$a}}){seq_no}}","variables":{"a":%q}}`
		for i, c := range []struct {
			payload string
			feeds   int
		}{
			{fmt.Sprintf(filtered, -1), 1}, {fmt.Sprintf(filtered, -1), 1}, {fmt.Sprintf(filtered, -1), 1},
			{fmt.Sprintf(filtered, 0), 2},
			{`{"query":"subscription{blocks{seq_no}}"}`, 3},
			{`{"query":"subscription{blocks{seq_no}}","variables":{}}`, 3},
			{`{"query":"subscription{blocks{id}}"}`, 4},
			// Subscriptions that differ only in the start cursor share an evaluation.
			{`{"query":"subscription($a:String){blocks(after:$a){seq_no}}","variables":{"a":"07"}}`, 5},
			{`{"query":"subscription($a:String){blocks(after:$a){seq_no}}","variables":{"a":"08"}}`, 5},
			{`{"query":"subscription($a:String){blocks(after:$a){seq_no}}"}`, 5},
			{fmt.Sprintf(until, "07"), 6},
			{fmt.Sprintf(until, "08"), 7},
		} {
			s.send(fmt.Sprintf(`{"id":%d,"type":"start","payload":%s}`, i, c.payload))
			synctest.Wait()
			equal(t, "evaluations after "+c.payload, h.ShareGroups(), c.feeds)
		}
		commit(t, chain, masterBlock(5, strings.Repeat("0", 64)))
		equal(t, "frames", len(s.receive()), 7)
		_ = s.CloseNow()
		synctest.Wait()
		equal(t, "evaluations without subscribers", h.ShareGroups(), 0)
	})
}

func TestQuerySeesBlocksAlreadySentOnSockets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, chain, n := serveChain(t, chaingql.Options{})
		s := n.socket(t)
		s.send(start("1", "subscription{blocks{seq_no}}"))
		for seqNo := range uint32(20) {
			synctest.Wait()
			commit(t, chain, masterBlock(seqNo, strings.Repeat("0", 64)))
			s.expect("block", data("1", fmt.Sprintf(`{"blocks":{"seq_no":%d}}`, seqNo)))
			s.send(start("q", "{blockchain{blocks(last:1){edges{node{seq_no}}}}}"))
			page := fmt.Sprintf(`{"blockchain":{"blocks":{"edges":[{"node":{"seq_no":%d}}]}}}`, seqNo)
			s.expect("query", data("q", page), `{"type":"complete","id":"q","payload":null}`)
		}
	})
}

func TestSubscriptionContinuesAfterSourceFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, chain, n := serveChain(t, chaingql.Options{KeepAliveInterval: -1})
		s := n.socket(t)
		s.send(start("1", "subscription{blocks{seq_no}}"))
		synctest.Wait()
		var want []string
		for seqNo := range uint32(10) {
			chain.Interrupt(nil)
			commit(t, chain, masterBlock(seqNo, strings.Repeat("0", 64)))
			want = append(want, data("1", fmt.Sprintf(`{"blocks":{"seq_no":%d}}`, seqNo)))
		}
		time.Sleep(time.Minute)
		s.expect("after a minute", want...)
	})
}

func TestSubscriptionWhoseNextBlocksWerePrunedEndsWithCursorTooOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, chain, n := serveChain(t, chaingql.Options{KeepAliveInterval: -1})
		s := n.socket(t)
		s.send(start("1", "subscription{blocks{seq_no}}"))
		synctest.Wait()
		commit(t, chain, masterBlock(1, strings.Repeat("0", 64)))
		s.expect("block", data("1", `{"blocks":{"seq_no":1}}`))
		chain.Interrupt(nil)
		commit(t, chain, masterBlock(2, strings.Repeat("0", 64)), masterBlock(3, strings.Repeat("0", 64)))
		chain.Prune("03m") // prunes 02m before the Handler reads it
		time.Sleep(time.Minute)
		s.expect("the end",
			`{"type":"connection_error","id":null,`+
				`"payload":{"message":"The blocks after this cursor are no longer kept.",`+
				`"extensions":{"code":"CURSOR_TOO_OLD","cursor":"01m","oldest":"03m"}}}`,
			"CLOSE 1001")

		s = n.socket(t)
		s.send(start("1", "subscription{blocks{seq_no}}"))
		synctest.Wait()
		commit(t, chain, masterBlock(4, strings.Repeat("0", 64)))
		s.expect("after reconnecting", data("1", `{"blocks":{"seq_no":4}}`))
	})
}

func TestSlowSubscriberCatchesUpFromTheBackend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, chain, n := serveChain(t, chaingql.Options{WindowSize: 4})
		client := n.client()
		defer client.CloseIdleConnections()
		conn, _, err := websocket.Dial(context.Background(), "ws://api.example/demo/graphql", &websocket.DialOptions{
			HTTPClient: client, Subprotocols: []string{"graphql-ws"},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.CloseNow()
		text := []byte(start("1", "subscription{blocks{chain_order}}"))
		if err := conn.Write(context.Background(), websocket.MessageText, text); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		blocks := randomBlocks(12, 100)
		for _, b := range blocks {
			commit(t, chain, b)
			synctest.Wait()
		}
		for _, b := range blocks {
			_, frame, err := conn.Read(context.Background())
			if err != nil {
				t.Fatalf("the client was disconnected before it received block %s: %v", b.Cursor, err)
			}
			equal(t, "frame", string(frame), data("1", `{"blocks":{"chain_order":"`+string(b.Cursor)+`"}}`))
		}
	})
}
