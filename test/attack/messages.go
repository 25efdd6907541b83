package attack

import (
	"fmt"
	"strings"
)

// begin returns the message that starts an operation. The id and payload are JSON.
func begin(protocol, id, payload string) string {
	kind := map[string]string{legacy: "start", modern: "subscribe"}[protocol]
	return fmt.Sprintf(`{"id":%s,"type":"%s","payload":%s}`, id, kind, payload)
}

// query returns the payload of an operation that consists of a document.
func query(text string) string { return `{"query":` + asJSON(text) + `}` }

// wrongPayloads lists invalid operation payloads and their outcome in each protocol. In the legacy
// protocol, the server sends an error and continues. In the modern protocol, it closes the socket if a
// value has the wrong type, and otherwise sends an error.
var wrongPayloads = []struct{ payload, legacy, modern string }{
	{`null`, "served error BAD_REQUEST", "closed 4400"},
	{`1`, "served error BAD_REQUEST", "closed 4400"},
	{`"x"`, "served error BAD_REQUEST", "closed 4400"},
	{`[]`, "served error BAD_REQUEST", "closed 4400"},
	{`true`, "served error BAD_REQUEST", "closed 4400"},
	{`{}`, "served error BAD_REQUEST", "closed 4400"},
	{`{"query":null}`, "served error BAD_REQUEST", "closed 4400"},
	{`{"query":1}`, "served error BAD_REQUEST", "closed 4400"},
	{`{"query":{}}`, "served error BAD_REQUEST", "closed 4400"},
	{`{"query":""}`, "served error BAD_REQUEST", "served error BAD_REQUEST"},
	{`{"query":"{info{version}}","variables":1}`, "served error BAD_REQUEST", "closed 4400"},
	{`{"query":"{info{version}}","variables":"{}"}`, "served error BAD_REQUEST", "closed 4400"},
	{`{"query":"{info{version}}","operationName":1}`, "served error BAD_REQUEST", "closed 4400"},
	{`{"query":"{info{version}}","extensions":1}`, "served error BAD_REQUEST", "closed 4400"},
	{`{"query":"{","variables":{}}`, "served error PARSE", "served error PARSE"},
	{`{"query":"{...A}fragment A on Query{...A}"}`, "served error VALIDATION", "served error VALIDATION"},
	{`{"query":"subscription{...A}fragment A on Subscription{...A}"}`, "served error VALIDATION",
		"served error VALIDATION"},
	{`{"query":"{nothing}"}`, "served error VALIDATION", "served error VALIDATION"},
	{`{"query":"mutation{a}"}`, "served error GRAPHQL", "served error GRAPHQL"},
	{`{"query":"{info{version}}","query":"{info{time}}"}`, "served error BAD_REQUEST",
		"served error BAD_REQUEST|closed 4400"},
	{`{"query":"subscription{blocks{id}b:blocks{id}}"}`, "served error VALIDATION", "served error VALIDATION"},
	{`{"query":"subscription{blocks(after:\"zzz\"){id}}"}`, "served", "served"},
	{`{"query":"subscription($f:BlockFilter){blocks(filter:$f){id}}","variables":{"f":{"nothing":1}}}`,
		"served error BAD_USER_INPUT", "served error BAD_USER_INPUT"},
	{`{"query":"query($a:Int!){info{version}}","variables":{}}`, "served error", "served error"},
	{`{"query":"subscription($f:[String]){blocks(filter:{id:{in:$f}}){id}}","variables":{"f":[` +
		strings.TrimSuffix(strings.Repeat(`"a",`, 101), ",") + `]}}`, "served error LIMIT_EXCEEDED",
		"served error LIMIT_EXCEEDED"},
	{`{"query":"{info{version}}","variables":` + strings.Repeat(`{"a":`, 30) + "1" + strings.Repeat("}", 30) + `}`,
		"served error LIMIT_EXCEEDED", "served error LIMIT_EXCEEDED"},
	{`{"query":"{` + strings.Repeat("a{", 5000) + `"}`, "served error", "served error"},
	{`{"query":"{` + strings.Repeat("a:info{version}", 60) + `"}`, "served error", "served error"},
	{`{"query":"` + strings.Repeat("[", 50_000) + `"}`, "served error LIMIT_EXCEEDED", "served error LIMIT_EXCEEDED"},
	{`{"extensions":{"persistedQuery":{"version":1,"sha256Hash":"` + strings.Repeat("0", 64) + `"}}}`,
		"served error PERSISTED", "served error PERSISTED"},
	{query("{blockchain{" + times(50, "a#:blocks(last:50){edges{cursor}}") + "blocks(last:50){edges{cursor}}}}"),
		"served error LIMIT_EXCEEDED costs", "served error LIMIT_EXCEEDED costs"},
	{`{"query":"{blockchain{account(address:\"x\"){info{id}}}}"}`, "served", "served"},
	{`{"query":"{info{version}}","__proto__":{"a":1}}`, "served", "served"},
	{`{"query":"{info{version}}","variables":{"__proto__":{"a":1}}}`, "served", "served"},
}

// notMessages lists texts that are not messages of either protocol.
var notMessages = []string{
	"", " ", "x", "null", "true", "1", `"x"`, "[]", `[{"type":"connection_init"}]`, "{", "}", "{}}", `{"type"`,
	`{"type":"stop"`,
	`{"type":"stop"}x`, `{"type":"stop"}{"type":"stop"}`, "{'type':'stop'}", `{type:"stop"}`, "\x00", "\ufeff{}",
	"<a/>", "NaN",
	strings.Repeat("[", 60_000), strings.Repeat(`{"a":`, 12_000), `{"type":"stop","id":"` + strings.Repeat("a", 60_000),
	"{\"type\":\"stop\",\"id\":\"\n\"}", `{"id":01}`,
}

// wrongTypes lists messages of types that are unknown or are sent only by servers.
var wrongTypes = []string{
	`{}`, `{"type":null}`, `{"type":1}`, `{"type":[]}`, `{"type":{}}`, `{"type":""}`, `{"type":"x"}`,
	`{"type":"START"}`, `{"type":"Start"}`,
	`{"TYPE":"start"}`, `{"type":"start "}`, `{"type":"\u0000"}`, `{"type":"__proto__"}`, `{"type":"data","id":"1"}`,
	`{"type":"next","id":"1"}`,
	`{"type":"error","id":"1"}`, `{"type":"connection_ack"}`, `{"type":"ka"}`, `{"type":"connection_error"}`,
	`{"type":"GQL_START"}`,
	`{"type":"toString"}`, `{"type":"` + strings.Repeat("a", 60_000) + `"}`,
}

// messages returns attacks that violate the message rules of a protocol.
func messages(protocol string) []attack {
	say := func(name, want string, texts ...string) attack { return talk(name, want, protocol, true, texts...) }
	isLegacy := protocol == legacy
	pick := func(l, m string) string {
		if isLegacy {
			return l
		}
		return m
	}
	var all []attack
	for _, p := range wrongPayloads {
		all = append(all, say("operation "+short(p.payload), pick(p.legacy, p.modern),
			begin(protocol, `"1"`, p.payload)))
	}
	for _, text := range notMessages {
		all = append(all, say("text "+short(text), pick("served connection_error", "closed 4400"), text))
		all = append(all, say("text ten times "+short(text), pick("closed|served connection_error|cut", "closed 4400"),
			strings.Split(strings.Repeat(text+"\x1f", 10), "\x1f")[:10]...))
	}
	for _, text := range wrongTypes {
		all = append(all, say("type "+short(text), pick("served error", "closed 4400"), text))
	}
	good := query("{info{version}}")
	for _, id := range []string{
		`1`, `-1`, `1.5`, `1e400`, `null`, `""`, `true`, `[]`, `{}`, `["1"]`, `"\u0000"`, `"\ud800"`, `"__proto__"`,
		`"<script>"`,
		`"` + strings.Repeat("a", 128) + `"`, `"` + strings.Repeat("a", 129) + `"`, `"` + strings.Repeat("é", 64) + `"`,
		`"` + strings.Repeat(`\u0041`, 128) + `"`, `"` + strings.Repeat("a", 50_000) + `"`, strings.Repeat("9", 50_000),
	} {
		want := "served|closed 4400"
		if len(id) > 50_000 || id == `"`+strings.Repeat("a", 129)+`"` {
			want = pick("served LIMIT_EXCEEDED", "closed 4400")
		}
		all = append(all, say("id "+short(id), want, begin(protocol, id, good)))
		all = append(all, say("stopping id "+short(id), want, strings.Replace(pick(`{"type":"stop","id":#}`,
			`{"type":"complete","id":#}`), "#", id, 1)))
	}
	live := query(liveQuery)
	stop := pick(`{"type":"stop","id":"1"}`, `{"type":"complete","id":"1"}`)
	start := begin(protocol, `"1"`, live)
	all = append(all,
		say("no id", pick("served", "closed 4400"), strings.Replace(start, `"id":"1",`, "", 1)),
		say("two ids", "served|closed", strings.Replace(start, `"id":"1"`, `"id":"1","id":"2"`, 1)),
		say("two types", "served|closed", strings.Replace(start, `"id"`, `"type":"x","id"`, 1)),
		say("the same id twice", pick("served", "closed 4409"), start, start),
		say("the same id as a number", pick("served", "closed 4400"), start, strings.Replace(start, `"1"`, "1", 1)),
		say("the same id fifty times", pick("served", "closed 4409"),
			strings.Split(strings.Repeat(start+"\n", 50), "\n")[:50]...),
		say("stop without a start", "served", stop),
		say("stop twice", "served", start, stop, stop),
		say("start and immediate stop, fifty times", "served",
			strings.Split(strings.Repeat(start+"\n"+stop+"\n", 50), "\n")[:100]...),
		say("init twice", pick("served", "closed 4429"), `{"type":"connection_init"}`),
		say("init ten times", pick("served", "closed 4429"),
			strings.Split(strings.Repeat(`{"type":"connection_init"}`+"\n", 10), "\n")[:10]...),
		say("init of an open project with a wrong secret", pick("served|closed|cut", "closed 4429|closed 4403"),
			`{"type":"connection_init","payload":{"Authorization":"Basic Ong="}}`),
		say("257 subscriptions", "served error LIMIT_EXCEEDED subscriptions", starts(protocol, 257, live)...),
		say("300 queries", "served", starts(protocol, 300, good)...),
		say("ping", pick("served error", "served"), `{"type":"ping"}`),
		say("ping with a payload", pick("served error", "served"),
			`{"type":"ping","payload":{"a":"`+strings.Repeat("x", 10_000)+`"}}`),
		say("ping with a number", pick("served error", "closed 4400"), `{"type":"ping","payload":1}`),
		say("pong", pick("served error", "served"), `{"type":"pong"}`),
		say("pong with an array", pick("served error", "closed 4400|served"), `{"type":"pong","payload":[]}`),
		say("terminate", pick("closed|cut", "closed 4400"), `{"type":"connection_terminate"}`),
		say("terminate with operations", pick("closed|cut", "closed 4400"),
			append(starts(protocol, 20, live), `{"type":"connection_terminate"}`)...),
		say("the other protocol's start", pick("served error", "closed 4400"),
			begin(map[string]string{legacy: modern, modern: legacy}[protocol], `"1"`, live)),
	)
	bare := func(name, want string, texts ...string) attack { return talk(name, want, protocol, false, texts...) }
	all = append(all,
		bare("start without init", pick("served", "closed 4401"), start),
		bare("start before init", pick("served", "closed 4401"), start, `{"type":"connection_init"}`),
		bare("stop before init", pick("served", "closed 4401"), stop),
		bare("ping before init", pick("served", "closed 4401"), `{"type":"ping"}`),
	)
	for _, p := range []string{
		`null`, `1`, `"x"`, `[]`, `{}`, `{"Authorization":1}`, `{"Authorization":"Basic Ong="}`,
		`{"Authorization":"Basic ="}`,
		`{"Authorization":"Basic ` + strings.Repeat("A", 50_000) + `"}`, `{"accessKey":""}`, `{"accessKey":"wrong"}`,
		`{"accessKey":1}`,
		`{"authorization":"Basic Ong="}`, strings.Repeat(`{"a":`, 30) + "1" + strings.Repeat("}", 30),
		`{"Authorization":"Basic OnMzY3JldA==","Authorization":"x"}`,
		`{"__proto__":{"Authorization":"Basic OnMzY3JldA=="}}`,
		`{"a":"` + strings.Repeat("x", 60_000) + `"}`, `{"a":"` + strings.Repeat("x", 8<<10) + `"}`,
		`{"a":[` + strings.Repeat(`{"":0},`, 1000) + `1]}`, `{"a":[` + strings.Repeat("[],", 2700) + `1]}`,
		`{"token":"OnMzY3JldA==","secret":"s3cret","Authorization":"Bearer s3cret"}`,
	} {
		all = append(all, plain("init of the locked project with "+short(p), "closed|cut",
			func(s *target) (outcome, error) {
				return s.openAndAsk("locked", protocol, `{"type":"connection_init","payload":`+p+`}`)
			}))
	}
	return all
}

// starts returns n messages that start operations with different ids.
func starts(protocol string, n int, payload string) []string {
	texts := make([]string, n)
	for i := range texts {
		texts[i] = begin(protocol, fmt.Sprintf(`"%d"`, i), payload)
	}
	return texts
}
