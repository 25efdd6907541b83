package chaingql_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
)

// multipart is the Accept header of a subscription of Apollo Client 4.
const multipart = "multipart/mixed;boundary=graphql;subscriptionSpec=1.0,application/graphql-response+json," +
	"application/json;q=0.9"

// part returns the lines of one part. The line of the boundary ends when the next part begins.
func part(content string) []string {
	return []string{"--graphql", "Content-Type: application/json", content}
}

func parts(blocks []chaingql.Block) (lines []string) {
	for _, b := range blocks {
		lines = append(lines, part(fmt.Sprintf(`{"payload":{"data":{"blocks":{"chain_order":%q}}}}`, b.Cursor))...)
	}
	return lines
}

// last returns the lines of the last part and of the end of the stream.
func last(content string) []string { return append(part(content), "--graphql--", "END") }

var connected = part("{}")

func TestMultipartStreamSendsNewBlocksAndHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := randomBlocks(3, 20)
		_, chain, n := serveChain(t, chaingql.Options{})
		commit(t, chain, blocks[:10]...)
		e := n.stream(t, allBlocks, "Accept", multipart)
		equal(t, "status", e.res.StatusCode, 200)
		equal(t, "type", e.res.Header.Get("Content-Type"), `multipart/mixed;boundary="graphql";subscriptionSpec=1.0`)
		e.expect("before any block", connected...)
		commit(t, chain, blocks[10:]...)
		e.expect("new blocks", parts(blocks[10:])...)
		time.Sleep(chaingql.DefaultKeepAliveInterval)
		e.expect("a heartbeat", part("{}")...)
	})
}

func TestMultipartStreamIgnoresLastEventID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := randomBlocks(4, 300)
		_, chain, n := serveChain(t, chaingql.Options{})
		commit(t, chain, blocks[:250]...)
		document := `subscription{blocks(after:"` + string(blocks[200].Cursor) + `"){chain_order}}`
		e := n.stream(t, document, "Accept", multipart, "Last-Event-ID", string(blocks[20].Cursor))
		time.Sleep(time.Second)
		e.expect("missed blocks", append(connected, parts(blocks[201:250])...)...)
		commit(t, chain, blocks[250:]...)
		e.expect("new blocks", parts(blocks[250:])...)
	})
}

func TestMultipartStreamEndsWithATransportErrorIfARetryCanSucceed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := randomBlocks(7, 60)
		h, chain, n := serveChain(t, chaingql.Options{})
		commit(t, chain, blocks[:50]...)
		chain.Prune(blocks[30].Cursor)
		document := `subscription{blocks(after:"` + string(blocks[7].Cursor) + `"){chain_order}}`
		tooOld := n.stream(t, document, "Accept", multipart)
		time.Sleep(time.Second)
		tooOld.expect("too old", append(connected, last(`{"payload":{"errors":[`+
			`{"message":"The blocks after this cursor are no longer kept.","extensions":{"code":"CURSOR_TOO_OLD",`+
			`"cursor":"150","oldest":"`+string(blocks[30].Cursor)+`"}}]}}`)...)...)
		e := n.stream(t, allBlocks, "Accept", multipart)
		e.expect("connected", connected...)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := h.Shutdown(ctx); err != nil {
			t.Fatal(err)
		}
		e.expect("shutdown", last(fmt.Sprintf(`{"payload":null,"errors":[{"message":"Service is shutting down",`+
			`"extensions":{"code":"SERVICE_UNAVAILABLE","cursor":%q}}]}`, blocks[49].Cursor))...)
	})
}

func TestErrorsBeforeAMultipartStreamAreJSONIfTheClientAcceptsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _, n := serveChain(t, chaingql.Options{})
		const alone = "multipart/mixed;subscriptionSpec=1.0"
		invalid := n.stream(t, "{nope}", "Accept", multipart)
		equal(t, "type", invalid.res.Header.Get("Content-Type"), graphqlType)
		equal(t, "status", invalid.res.StatusCode, 400)
		query := n.stream(t, "{info{version}}", "Accept", multipart)
		equal(t, "type of a query", query.res.Header.Get("Content-Type"), graphqlType)
		const version = `{"payload":{"data":{"info":{"version":"0.1.0"}}}}`
		n.stream(t, "{info{version}}", "Accept", alone).expect("a query", append(connected, last(version)...)...)
		n.stream(t, "subscription{blocks(filter:{shard:{in:null}}){id}}", "Accept", alone).expect("a bad filter",
			append(connected, last(`{"payload":{"errors":[{"message":"shard: \"in\" must not be null",`+
				`"extensions":{"code":"BAD_USER_INPUT"}}]}}`)...)...)
		head := do(h, "HEAD", "/demo/graphql?query=subscription%7Bblocks%7Bid%7D%7D", "", "Accept", alone)
		equal(t, "HEAD", head.Code, 200)
	})
}

func TestAcceptHeaderSelectsTheStreamProtocol(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, n := serveChain(t, chaingql.Options{})
		for _, row := range []struct{ client, accept, want string }{
			{"Apollo Client 4", multipart, "multipart/mixed"},
			{"Apollo Client 3", "multipart/mixed;boundary=graphql;subscriptionSpec=1.0,*/*", "multipart/mixed"},
			{"Apollo's documentation", `multipart/mixed;subscriptionSpec="1.0", application/json`, "multipart/mixed"},
			{"spaces", `multipart/mixed; boundary="graphql" ; subscriptionSpec=1.0`, "multipart/mixed"},
			{"upper case", `Multipart/Mixed;SUBSCRIPTIONSPEC=1.0`, "multipart/mixed"},
			{"a comma in a parameter", `multipart/mixed;boundary="a,\"b";subscriptionSpec=1.0`, "multipart/mixed"},
			{"a boundary of its own", "multipart/mixed;boundary=x;subscriptionSpec=1.0", "multipart/mixed"},
			{"events first", "text/event-stream, multipart/mixed;subscriptionSpec=1.0", "text/event-stream"},
			{"multipart first", "multipart/mixed;subscriptionSpec=1.0, text/event-stream", "multipart/mixed"},
			{"events preferred", "multipart/mixed;subscriptionSpec=1.0;q=0.5, text/event-stream", "text/event-stream"},
			{"multipart refused", "multipart/mixed;subscriptionSpec=1.0;q=0, text/event-stream", "text/event-stream"},
			{"urql", "application/json, text/event-stream, multipart/mixed", "text/event-stream"},
			{"deferred queries", "multipart/mixed;deferSpec=20220824, application/json", ""},
			{"another version", "multipart/mixed;subscriptionSpec=2.0, application/json", ""},
			{"another type of parts", "multipart/related;subscriptionSpec=1.0, application/json", ""},
			{"a wildcard", "multipart/*;subscriptionSpec=1.0, application/json", ""},
			{"the parameter twice", "multipart/mixed;subscriptionSpec=1.0;subscriptionSpec=2, application/json", ""},
			{"an open quote", `multipart/mixed;subscriptionSpec="1.0, application/json`, ""},
			{"too long", multipart + strings.Repeat(",x", 4<<10), ""},
		} {
			e := n.stream(t, allBlocks, "Accept", row.accept)
			media, _, _ := strings.Cut(e.res.Header.Get("Content-Type"), ";")
			if row.want == "" {
				equal(t, row.client, fmt.Sprint(e.res.StatusCode, " ", media), "406 application/json")
			} else {
				equal(t, row.client, media, row.want)
			}
		}
	})
}
