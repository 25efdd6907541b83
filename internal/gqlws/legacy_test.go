package gqlws

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestLegacyProtocolMessagesAreDecoded(t *testing.T) {
	for _, tc := range []struct {
		frame   string
		kind    kind
		echo    string
		payload string
	}{
		{`{"type":"connection_init","payload":{"a":1}}`, kindInit, "", `{"a":1}`},
		{`{"type":"connection_init","payload":null}`, kindInit, "", ""},
		{`{"type":"connection_init","id":[]}`, kindInit, "", ""},
		{` {"id":"1","type":"start","payload":{"query":"{a}"}} `, kindStart, `"1"`, `{"query":"{a}"}`},
		{`{"id":-1.5e3,"type":"start"}`, kindStart, "-1.5e3", ""},
		{`{"id":"1","type":"stop","extra":[1,2]}`, kindStop, `"1"`, ""},
		{`{"type":"connection_terminate"}`, kindTerminate, "", ""},
		{`{"id":"1","type":"START"}`, kindInvalid, `"1"`, ""},
		{`{"type":["start"]}`, kindInvalid, "", ""},
		{`{"type":null}`, kindInvalid, "", ""},
		{`{}`, kindInvalid, "", ""},
		{`{"id":"123456789","type":"stop"}`, kindInvalid, "", ""},
		{`{"id":false,"type":"stop"}`, kindInvalid, "", ""},
		{`{"type":"stop"} x`, kindMalformed, "", ""},
		{`{"type":"stop"}{}`, kindMalformed, "", ""},
		{`null`, kindMalformed, "", ""},
		{``, kindMalformed, "", ""},
		{`[{"type":"stop"}]`, kindMalformed, "", ""},
		{`{"a":` + strings.Repeat("[", 20000), kindMalformed, "", ""},
	} {
		m := legacy{maxID: 8}.decode([]byte(tc.frame))
		if m.kind != tc.kind || string(m.id.raw) != tc.echo || string(m.payload) != tc.payload {
			t.Errorf("%.60s: kind %d, id %s, payload %s, want %d, %s, %s",
				tc.frame, m.kind, m.id.raw, m.payload, tc.kind, tc.echo, tc.payload)
		}
		refused := m.kind == kindMalformed || m.kind == kindInvalid
		if refused != (m.reply != nil) || refused && !json.Valid(m.reply) {
			t.Errorf("%.60s: reply %q, want a JSON reply only if the frame is refused", tc.frame, m.reply)
		}
	}
}

func FuzzLegacyDecode(f *testing.F) {
	for _, seed := range []string{
		`{"type":"connection_init","payload":{"Authorization":"Basic OnM="}}`,
		`{"id":"1","type":"start","payload":` +
			`{"variables":{},"extensions":{},"operationName":null,"query":"subscription{blocks{id}}"}}`,
		`{"id":5,"type":"stop"}`, `{"id":"\u0041\ud800","type":"stop"}`, `{"id":null,"type":"start","payload":null}`,
		`{"type":"connection_terminate"}`, `{"id":{"a":[]},"type":"start"}`, `{"id":"9","type":"foo"}`,
		`{"type":"ping"}`,
		`{`, `[]`, `null`, `"x"`, `5`, ``, ` `, `{}`, `{"type":5}`, `{"id":"","id":1,"type":"stop","TYPE":"start"}`,
		`{"id":1e999999,"type":"stop"}`, strings.Repeat(`{"a":`, 100),
	} {
		f.Add([]byte(seed))
	}
	l := legacy{maxID: 32}
	f.Fuzz(func(t *testing.T, frame []byte) {
		if !utf8.Valid(frame) {
			return // a connection ends before it decodes invalid UTF-8
		}
		m := l.decode(frame)
		refused := m.kind == kindMalformed || m.kind == kindInvalid
		if refused && !json.Valid(m.reply) {
			t.Errorf("reply %q, want valid JSON", m.reply)
		}
		if !json.Valid(frame) && m.kind != kindMalformed {
			t.Errorf("invalid JSON was decoded as kind %d, want %d", m.kind, kindMalformed)
		}
		if m.payload != nil && !json.Valid(m.payload) {
			t.Errorf("payload %q, want valid JSON", m.payload)
		}
		if len(m.id.key) > 32+1 || len(m.id.raw) > 6*32+2 {
			t.Errorf("decoded an id of %d bytes, want at most maxID", len(m.id.raw))
		}
		for _, b := range [][]byte{
			l.appendComplete(nil, m.id),
			l.appendData(nil, m.id, []byte(`{"data":null}`)),
			l.appendErrors(nil, m.id, errInternal.Errors),
		} {
			var echo struct {
				ID json.RawMessage `json:"id"`
			}
			if err := json.Unmarshal(b, &echo); err != nil || string(echo.ID) != string(m.id.raw) {
				t.Errorf("id %q was sent as %q: %v", m.id.raw, b, err)
			}
		}
		if again := l.decode(l.appendComplete(nil, m.id)); again.id.key != m.id.key {
			t.Errorf("id %q became %q when it was encoded and decoded again", m.id.key, again.id.key)
		}
	})
}
