package gqlws

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestLegacyDecode(t *testing.T) {
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
		{`{"id":"1","type":"START"}`, kindWrong, `"1"`, ""},
		{`{"type":["start"]}`, kindWrong, "", ""},
		{`{"type":null}`, kindWrong, "", ""},
		{`{}`, kindWrong, "", ""},
		{`{"id":"123456789","type":"stop"}`, kindWrong, "", ""},
		{`{"id":false,"type":"stop"}`, kindWrong, "", ""},
		{`{"type":"stop"} x`, kindMalformed, "", ""},
		{`{"type":"stop"}{}`, kindMalformed, "", ""},
		{`null`, kindMalformed, "", ""},
		{``, kindMalformed, "", ""},
		{`[{"type":"stop"}]`, kindMalformed, "", ""},
		{`{"a":` + strings.Repeat("[", 20000), kindMalformed, "", ""},
	} {
		m := legacy{maxID: 8}.decode([]byte(tc.frame))
		if m.kind != tc.kind || string(m.id.echo) != tc.echo || string(m.payload) != tc.payload {
			t.Errorf("%.60s: kind %d, id %s, payload %s", tc.frame, m.kind, m.id.echo, m.payload)
		}
		if refused := m.kind == kindMalformed || m.kind == kindWrong; refused != (m.answer != nil) || refused && !json.Valid(m.answer) {
			t.Errorf("%.60s: answer %s", tc.frame, m.answer)
		}
	}
}

func FuzzLegacyDecode(f *testing.F) {
	for _, seed := range []string{
		`{"type":"connection_init","payload":{"Authorization":"Basic OnM="}}`,
		`{"id":"1","type":"start","payload":{"variables":{},"extensions":{},"operationName":null,"query":"subscription{blocks{id}}"}}`,
		`{"id":5,"type":"stop"}`, `{"id":"\u0041\ud800","type":"stop"}`, `{"id":null,"type":"start","payload":null}`,
		`{"type":"connection_terminate"}`, `{"id":{"a":[]},"type":"start"}`, `{"id":"9","type":"foo"}`, `{"type":"ping"}`,
		`{`, `[]`, `null`, `"x"`, `5`, ``, ` `, `{}`, `{"type":5}`, `{"id":"","id":1,"type":"stop","TYPE":"start"}`,
		`{"id":1e999999,"type":"stop"}`, strings.Repeat(`{"a":`, 100),
	} {
		f.Add([]byte(seed))
	}
	l := legacy{maxID: 32}
	f.Fuzz(func(t *testing.T, frame []byte) {
		if !utf8.Valid(frame) {
			t.Skip("the connection refuses it")
		}
		m := l.decode(frame)
		refused := m.kind == kindMalformed || m.kind == kindWrong
		if refused && !json.Valid(m.answer) {
			t.Errorf("answer %q", m.answer)
		}
		if !json.Valid(frame) && m.kind != kindMalformed {
			t.Errorf("kind %d for what is no JSON", m.kind)
		}
		if m.payload != nil && !json.Valid(m.payload) {
			t.Errorf("payload %q", m.payload)
		}
		if len(m.id.key) > 32+1 || len(m.id.echo) > 6*32+2 {
			t.Errorf("id of %d bytes", len(m.id.echo))
		}
		for _, b := range [][]byte{
			l.appendComplete(nil, m.id),
			l.appendData(nil, m.id, []byte(`{"data":null}`)),
			l.appendErrors(nil, m.id, errInternal.Errors),
		} {
			var echo struct {
				ID json.RawMessage `json:"id"`
			}
			if err := json.Unmarshal(b, &echo); err != nil || string(echo.ID) != string(m.id.echo) {
				t.Errorf("id %q came back in %q: %v", m.id.echo, b, err)
			}
		}
		if again := l.decode(l.appendComplete(nil, m.id)); again.id.key != m.id.key {
			t.Errorf("id %q read back as %q", m.id.key, again.id.key)
		}
	})
}
