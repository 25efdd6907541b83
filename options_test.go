package chaingql_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
)

func TestDocumentLimitsApplyOnEveryTransport(t *testing.T) {
	repeat := strings.Repeat
	aliases := func(n int) string {
		var s strings.Builder
		for i := range n {
			fmt.Fprintf(&s, "a%d:__typename ", i)
		}
		return "{" + s.String() + "}"
	}
	many := func(n int, head, item string) string { return head + repeat(item, n) }
	pages := func(n int, args string) string {
		var s strings.Builder
		for i := range n {
			fmt.Fprintf(&s, "a%d:blocks%s{__typename} ", i, args)
		}
		return "{blockchain{" + s.String() + "}}"
	}
	for _, c := range []struct {
		name, good, bad, message string
		limits                   chaingql.Limits
	}{
		{
			name: "bytes", limits: chaingql.Limits{DocumentBytes: 20},
			good: "{__typename}        ", bad: "{__typename}         ",
			message: "limit of 20 bytes",
		},
		{
			name: "tokens", limits: chaingql.Limits{Tokens: 5},
			good: "{a:__typename}", bad: "{a:__typename __typename}",
			message: "limit of 5 tokens",
		},
		{
			name: "depth", limits: chaingql.Limits{Depth: 3},
			good: "{blockchain{__typename}}", bad: "{blockchain{blocks{edges{cursor}}}}",
			message: "limit of 3 nested levels",
		},
		{
			name: "fields", limits: chaingql.Limits{Fields: 3},
			good:    "{__typename a:__typename b:__typename}",
			bad:     "{__typename a:__typename ...F} fragment F on Query{c:__typename d:__typename}",
			message: "limit of 3 fields",
		},
		{name: "aliases", good: aliases(50), bad: aliases(51), message: "limit of 50 aliases"},
		{
			name: "directives", limits: chaingql.Limits{Directives: 2},
			good:    "{__typename @skip(if:false) @include(if:true)}",
			bad:     "{__typename @skip(if:false) @include(if:true) a:__typename @skip(if:true)}",
			message: "limit of 2 directives",
		},
		{
			name: "one name",
			good: many(8, "{", "__typename ") + "}", bad: many(9, "{", "__typename ") + "}",
			message: "limit of 8 fields of one name",
		},
		{
			name: "operations", limits: chaingql.Limits{Operations: 1},
			good: "query A{__typename}", bad: "query A{__typename} query B{__typename}",
			message: "limit of 1 operations",
		},
		{
			name: "fragments", limits: chaingql.Limits{Fragments: 1},
			good:    "{...A} fragment A on Query{__typename}",
			bad:     "{...A ...B} fragment A on Query{__typename} fragment B on Query{__typename}",
			message: "limit of 1 fragments",
		},
		{
			name: "response", limits: chaingql.Limits{ResponseBytes: 60},
			good:    "{" + repeat("a:__typename ", 4) + "}",
			bad:     "{a:__typename b:__typename c:__typename d:__typename e:__typename}",
			message: "limit of 60 bytes",
		},
		{
			name: "calls", limits: chaingql.Limits{Aliases: 60},
			good: pages(50, "(first:1)"), bad: pages(51, "(first:1)"),
			message: "51 calls of the backend, more than the limit of 50",
		},
		{
			name: "blocks", limits: chaingql.Limits{BackendCalls: 60, Aliases: 60},
			good: pages(50, ""), bad: pages(51, ""),
			message: "2550 blocks, more than the limit of 2500",
		},
		{
			name: "variables", limits: chaingql.Limits{Variables: 1},
			good:    "query($a:Int){blockchain{blocks(first:1 workchain:$a){__typename}}}",
			bad:     "query($a:Int $b:Int){blockchain{blocks(first:$b workchain:$a){__typename}}}",
			message: "limit of 1 variables",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, _ := newHandler(t, referenceChain(t), chaingql.Options{Limits: c.limits})
				n := serve(t, h)
				for transport, ask := range allTransports {
					if r := parse(t, ask(t, n, c.good, nil)); len(r.Errors) > 0 || len(r.Data) == 0 {
						t.Errorf("%s: a document within the limit received %+v", transport, r)
					}
					r := parse(t, ask(t, n, c.bad, nil))
					if r.code() != "LIMIT_EXCEEDED" || !strings.Contains(r.Errors[0].Message, c.message) {
						t.Errorf("%s: a document beyond the limit received %+v", transport, r)
					}
				}
			})
		})
	}
}

func TestSocketMessagesAndSubscriptionsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, n := serveChain(t, chaingql.Options{Limits: chaingql.Limits{MessageBytes: 200, SocketSubscriptions: 2}})
		s := n.socket(t)
		for id := range 3 {
			s.send(start(fmt.Sprint(id), "subscription{blocks{id}}"))
		}
		got := s.receive()
		if len(got) != 1 || !strings.Contains(got[0], `"id":"2"`) || !strings.Contains(got[0], "LIMIT_EXCEEDED") {
			t.Errorf("the third subscription received %s", got)
		}
		s.send(startVersion + strings.Repeat(" ", 201-len(startVersion)))
		got = s.receive()
		if len(got) != 2 || !strings.Contains(got[0], "LIMIT_EXCEEDED") || got[1] != "CLOSE 1009" {
			t.Errorf("a message of 201 bytes received %s", got)
		}
	})
}

func TestOperationIDLengthIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, n := serveChain(t, chaingql.Options{Limits: chaingql.Limits{IDBytes: 4}})
		s := n.socket(t)
		s.send(`{"id":"1234","type":"start","payload":{"query":"{__typename}"}}`)
		s.expect("4 bytes",
			`{"type":"data","id":"1234","payload":{"data":{"__typename":"Query"}}}`,
			`{"type":"complete","id":"1234","payload":null}`)
		s.send(`{"id":"12345","type":"start","payload":{"query":"{__typename}"}}`)
		got := fmt.Sprint(s.receive())
		if !strings.Contains(got, "longer than 4 bytes") || !strings.Contains(got, "LIMIT_EXCEEDED") {
			t.Errorf("an id of 5 bytes received %s", got)
		}
	})
}

func TestKeepAlivesAreSentAtTheConfiguredInterval(t *testing.T) {
	for given, want := range map[time.Duration]time.Duration{0: 15 * time.Second, time.Second: time.Second, -1: 0} {
		synctest.Test(t, func(t *testing.T) {
			_, _, n := serveChain(t, chaingql.Options{KeepAliveInterval: given})
			s := n.socket(t)
			s.send(initWith("null"))
			if want == 0 {
				s.expect("init", ack)
				time.Sleep(time.Hour)
				s.expect("turned off")
				return
			}
			s.expect("init", ack, ka)
			for n := range 10 {
				time.Sleep(want - 1)
				s.expect("before the interval")
				time.Sleep(time.Nanosecond)
				s.expect("after the interval", ka)
				if n == 0 {
					want /= 5 // from the second interval on
				}
			}
		})
	}
}

func TestSocketWithoutMessagesIsClosedAfterAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, n := serveChain(t, chaingql.Options{})
		s := n.socket(t)
		time.Sleep(time.Minute - 1)
		s.expect("before the interval")
		time.Sleep(time.Nanosecond)
		got := s.receive()
		if len(got) != 2 || !strings.HasPrefix(got[0], `{"type":"connection_error"`) ||
			!strings.HasPrefix(got[1], "CLOSE") {
			t.Errorf("the socket received %s, want connection_error and a close frame", got)
		}
	})
}

func TestLimitsCanBeTurnedOff(t *testing.T) {
	off := chaingql.Limits{
		BodyBytes: -1, DocumentBytes: -1, Tokens: -1, Depth: -1, Fields: -1,
		Aliases: -1, Directives: -1, FieldRepeats: -1, Operations: -1,
		Fragments: -1, Variables: -1, ListItems: -1, BackendCalls: -1, QueryBlocks: -1,
		CacheBytes: -1, MessageBytes: -1, Connections: -1, SocketSubscriptions: -1,
		SocketQueries: -1, Requests: -1,
		BodyTimeout: -1, WriteTimeout: -1, BackendTimeout: -1,
	}
	h, _ := newHandler(t, referenceChain(t), chaingql.Options{Limits: off, WindowSize: -1})
	document := "{" + strings.Repeat("a:__typename @skip(if:false) ", 3000) + "#" + strings.Repeat("x", 200_000) + "\n}"
	equal(t, "body", query(h, document, nil), `{"data":{"a":"Query"}}`)
}
