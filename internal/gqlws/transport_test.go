package gqlws

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestTransportWSDecodesValidMessages(t *testing.T) {
	for _, tc := range []struct {
		frame   string
		kind    kind
		echo    string
		payload string
	}{
		{`{"type":"connection_init","payload":{"a":1}}`, kindInit, "", `{"a":1}`},
		{` { "payload" : { } , "type" : "connection_init" } `, kindInit, "", `{ }`},
		{`{"type":"connection_init","payload":null,"id":[]}`, kindInit, "", ""},
		{`{"type":"ping"}`, kindPing, "", ""},
		{`{"type":"ping","payload":{}}`, kindPing, "", "{}"},
		{`{"type":"pong","payload":{"a":1}}`, kindPong, "", `{"a":1}`},
		{`{"id":"1","type":"subscribe","payload":{"query":"{a}"}}`, kindStart, `"1"`, `{"query":"{a}"}`},
		{`{"id":"1","type":"subscribe","payload":{"query":""}}`, kindStart, `"1"`, `{"query":""}`},
		{`{"id":"1","type":"subscribe","payload":{"query":null,"extensions":{}}}`, kindStart, `"1"`,
			`{"query":null,"extensions":{}}`},
		{`{"id":"12345678","type":"complete"}`, kindStop, `"12345678"`, ""},
		{`{"id":"\u0031","type":"complete","payload":5}`, kindStop, `"\u0031"`, ""},
		{`{"type":"x","type":"ping"}`, kindPing, "", ""}, // like JSON.parse
	} {
		m := transport{maxID: 8}.decode([]byte(tc.frame))
		if m.kind != tc.kind || string(m.id.raw) != tc.echo || string(m.payload) != tc.payload || m.reason != "" {
			t.Errorf("%s: kind %d, id %s, payload %s, reason %s, want %d, %s, %s",
				tc.frame, m.kind, m.id.raw, m.payload, m.reason, tc.kind, tc.echo, tc.payload)
		}
	}
}

func TestTransportWSReportsMalformedMessages(t *testing.T) {
	subscribe := func(payload string) string { return `{"id":"1","type":"subscribe","payload":` + payload + `}` }
	for frame, want := range map[string]string{
		"":                                     "Message is not a JSON object",
		"null":                                 "Message is not a JSON object",
		"[]":                                   "Message is not a JSON object",
		`"ping"`:                               "Message is not a JSON object",
		`{"type":"ping"}{}`:                    "Message is not a JSON object",
		`{"type":"ping",}`:                     "Message is not a JSON object",
		`{"a":` + strings.Repeat("[", 2e4):     "Message is not a JSON object",
		`{}`:                                   "Message type is unknown",
		`{"TYPE":"ping"}`:                      "Message type is unknown",
		`{"type":null}`:                        "Message type is unknown",
		`{"type":["ping"]}`:                    "Message type is unknown",
		`{"type":"Ping"}`:                      "Message type is unknown",
		`{"type":"start","id":"1"}`:            "Message type is unknown",
		`{"type":"stop","id":"1"}`:             "Message type is unknown",
		`{"type":"connection_terminate"}`:      "Message type is unknown",
		`{"type":"connection_ack"}`:            "Message type is unknown",
		`{"type":"next","id":"1"}`:             "Message type is unknown",
		`{"type":"error","id":"1"}`:            "Message type is unknown",
		`{"type":"pong","payload":1}`:          "Payload is not an object",
		`{"type":"ping","payload":[]}`:         "Payload is not an object",
		`{"type":"ping","payload":false}`:      "Payload is not an object",
		`{"type":"complete"}`:                  "Operation id is not a string",
		`{"type":"complete","id":null}`:        "Operation id is not a string",
		`{"type":"complete","id":1}`:           "Operation id is not a string",
		`{"type":"complete","id":{}}`:          "Operation id is not a string",
		`{"type":"complete","id":["1"]}`:       "Operation id is not a string",
		`{"type":"complete","id":"" }`:         "Operation id is empty",
		`{"type":"complete","id":"123456789"}`: "Operation id is longer than 8 bytes",
		`{"type":"subscribe","payload":{"query":"{a}"}}`:         "Operation id is not a string",
		`{"type":"subscribe","id":"","payload":{"query":"{a}"}}`: "Operation id is empty",
		`{"type":"subscribe","id":"1"}`:                          "Payload of subscribe is not an object",
		subscribe(`null`):                                        "Payload of subscribe is not an object",
		subscribe(`"{a}"`):                                       "Payload of subscribe is not an object",
		subscribe(`[]`):                                          "Payload of subscribe is not an object",
		subscribe(`{}`):                                          "query is missing",
		subscribe(`{"query":null,"variables":{}}`):               "query is missing",
		subscribe(`{"query":1}`):                                 "query is not a string",
		subscribe(`{"query":["{a}"]}`):                           "query is not a string",
		subscribe(`{"query":"","operationName":{}}`):             "operationName is not a string",
		subscribe(`{"query":"","operationName":0}`):              "operationName is not a string",
		subscribe(`{"query":"","variables":[]}`):                 "variables is not an object",
		subscribe(`{"query":"","variables":"{}"}`):               "variables is not an object",
		subscribe(`{"query":"","extensions":true}`):              "extensions is not an object",
	} {
		m := transport{maxID: 8}.decode([]byte(frame))
		if m.kind != kindMalformed || m.reason != want {
			t.Errorf("%.60s: kind %d, reason %q, want %d and %q", frame, m.kind, m.reason, kindMalformed, want)
		}
	}
}

func TestCloseReasonIsTruncatedBetweenCharacters(t *testing.T) {
	a := strings.Repeat("a", 122)
	for in, want := range map[string]string{
		"":                       "",
		a:                        a,
		a + "b":                  a + "b",
		a + "bc":                 a + "b",
		a + "é":                  a,
		a[:121] + "é":            a[:121] + "é",
		a[:120] + "éé":           a[:120] + "é",
		a[:121] + "😀bcd":         a[:121],
		strings.Repeat("😀", 100): strings.Repeat("😀", 30),
	} {
		_, code, got := transport{}.closing(nil, ending{cause: causeMalformed, detail: in})
		if got != want || code != 4400 {
			t.Errorf("code %d, reason %q, want 4400 and %q", code, got, want)
		}
	}
}

func FuzzTransportDecode(f *testing.F) {
	for _, seed := range []string{
		`{"type":"connection_init","payload":{"Authorization":"Basic OnM="}}`, `{"type":"connection_init"}`,
		`{"id":"1","type":"subscribe","payload":` +
			`{"variables":{},"extensions":{},"operationName":null,"query":"subscription{blocks{id}}"}}`,
		`{"id":"1","type":"subscribe","payload":{"query":5}}`,
		`{"id":"1","type":"subscribe","payload":{"extensions":{"a":1}}}`,
		`{"id":5,"type":"complete"}`, `{"id":"\u0041\ud800","type":"complete"}`, `{"id":"" , "type":"complete"}`,
		`{"type":"ping","payload":{"a":[1, 2]} }`, `{"type":"pong","payload":[]}`, `{"id":"9","type":"next"}`,
		`{"TYPE":"ping"}`,
		`{`, `[]`, `null`, `"x"`, `5`, ``, ` `, `{}`, `{"type":5}`,
		`{"id":"","id":"1","type":"complete","type":"ping"}`,
		`{"id":"😀😀😀😀😀😀😀😀","type":"complete"}`, strings.Repeat(`{"a":`, 100), `{"type":"ping","payload":null }`,
	} {
		f.Add([]byte(seed))
	}
	tr := transport{maxID: 32}
	f.Fuzz(func(t *testing.T, frame []byte) {
		if !utf8.Valid(frame) {
			return // a connection ends before it decodes invalid UTF-8
		}
		m := tr.decode(frame)
		switch {
		case m.kind == kindMalformed:
			if m.reason == "" || len(m.reason) > maxReason || m.payload != nil || m.id.raw != nil {
				t.Errorf("malformed message %+v, want only a reason of at most %d bytes", m, maxReason)
			}
			return
		case m.kind == kindInvalid || m.kind == kindTerminate || m.reply != nil || m.reason != "":
			t.Errorf("decoded %+v, which is not a message of this protocol", m)
		case !json.Valid(frame):
			t.Errorf("invalid JSON was decoded as kind %d, want %d", m.kind, kindMalformed)
		}
		if p := m.payload; p != nil && (!json.Valid(p) || p[0] != '{' || p[len(p)-1] != '}') {
			t.Errorf("payload %q, want a JSON object", p)
		}
		identified := m.kind == kindStart || m.kind == kindStop
		if text := m.id.text(); identified != (text != "") || len(text) > 32 || !utf8.ValidString(text) {
			t.Errorf("kind %d with id %q, want a valid id only for subscribe and complete", m.kind, text)
		}
		if m.kind == kindStart && m.payload == nil {
			t.Error("a subscribe message without a payload was accepted")
		}
		for _, b := range [][]byte{
			tr.appendPong(nil, m.payload),
			tr.appendComplete(nil, m.id),
			tr.appendData(nil, m.id, []byte(`{"data":null}`)),
			tr.appendErrors(nil, m.id, errInternal.Errors),
		} {
			if !json.Valid(b) {
				t.Errorf("response %q, want valid JSON", b)
			}
		}
		if identified {
			if again := tr.decode(tr.appendComplete(nil, m.id)); again.kind != kindStop || again.id.key != m.id.key {
				t.Errorf("id %q became %q when it was encoded and decoded again", m.id.key, again.id.key)
			}
		}
		_, code, reason := tr.closing(nil, ending{cause: causeIDInUse, detail: m.id.text()})
		if code != 4409 || len(reason) > maxReason || !utf8.ValidString(reason) {
			t.Errorf("close code %d, reason %q, want 4409 and a valid reason", code, reason)
		}
	})
}
