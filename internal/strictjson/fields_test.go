package strictjson

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// hostile has, by name, functions that return an object of about n bytes with as many parts as possible.
var hostile = map[string]func(n int) string{
	"different keys": func(n int) string {
		var s strings.Builder
		for i := 0; s.Len() < n; i++ {
			fmt.Fprintf(&s, `"%x":1,`, i)
		}
		return "{" + s.String() + `"":1}`
	},
	"equal keys":   func(n int) string { return "{" + strings.Repeat(`"":1,`, n/5) + `"":1}` },
	"escaped keys": func(n int) string { return "{" + strings.Repeat(`"\n\u0000":1,`, n/13) + `"":1}` },
	"a long key":   func(n int) string { return `{"` + strings.Repeat(`\ud83d\ude00`, n/12) + `":1}` },
	"one array":    func(n int) string { return `{"":[` + strings.Repeat(`[],`, n/3) + "1]}" },
	"one object":   func(n int) string { return `{"":{` + strings.Repeat(`"":1,`, n/5) + `"":1}}` },
	"deep arrays": func(n int) string {
		n = min(n/2, MaxDepth-1)
		return `{"":` + strings.Repeat("[", n) + strings.Repeat("]", n) + "}"
	},
	"a long number": func(n int) string { return `{"":` + strings.Repeat("1", n) + "}" },
}

func TestFieldsAcceptsTheObjectsOfEncodingJSON(t *testing.T) {
	nested := func(n int) string { return strings.Repeat(`{"a":`, n) + "[]" + strings.Repeat("}", n) }
	for _, text := range []string{
		`{}`, " {\t} \r\n", `{"a":1}`, ` { "a" : [ ] , "b" : { } , "c" : [ 1 , { "d" : null } ] } `,
		`{"a":"","b":-0.5e+10,"c":null,"d":true,"e":false}`, `{"a":1,"a":2}`, `{"a":1,"\u0061":2}`,
		`{"a":{"b":1,"b":2}}`, `{"a":"\"\\\/\b\f\n\r\té\u0041\ud83d\ude00\ud83d"}`, `{"\ud83d":1}`, `{"é":"é"}`,
		nested(MaxDepth - 1), nested(MaxDepth), `{"a":[[1],{"b":[{}]},[[]]]}`,
		``, ` `, `null`, `1`, `"a"`, `[]`, `[{}]`, `{}{}`, `{} x`, "{}\x00", `{`, `}`, `{"a"`, `{"a":`,
		`{"a":1`, `{"a":}`, `{"a":1,}`, `{,}`, `{a:1}`, `{"a" 1}`, `{"a":1 "b":2}`, `{1:1}`, `{"a":[1,]}`,
		`{"a":[1 2]}`, `{"a":[,]}`, `{"a":[}`, `{"a":[1}`, `{"a":{]}`, `{"a":{"b"}}`, `{"a":{"b":}}`, `{"a":{"b":1,}}`,
		`{"a":{1:1}}`, `{"a":]}`, `{"a":nul}`, `{"a":True}`, `{"a":01}`, `{"a":1.}`, `{"a":.5}`, `{"a":-}`, `{"a":1e}`,
		`{"a":+1}`, `{"a":NaN}`,
		`{"a":"}`, "{\"a\":\"\n\"}", "{\"a\":\"\x00\"}", `{"a":"\x"}`, `{"a":"\u12g4"}`, `{"a":"\`, `{"a":"\u1`,
		"\ufeff{}",
	} {
		compareFields(t, text)
	}
	for _, text := range []string{"{\"\xff\":1}", "{\"a\":\"\xff\"}", "{\"a\":[{\"\xff\":1}]}"} {
		if err := Fields([]byte(text), func(_, _ []byte) {}); err == nil {
			t.Errorf("Fields accepts %q, which is not UTF-8", text)
		}
	}
}

// compareFields compares Fields with encoding/json, for which the last value of a repeated key counts, too.
func compareFields(t *testing.T, text string) {
	t.Helper()
	got := map[string]string{}
	err := Fields([]byte(text), func(key, value []byte) { got[string(key)] = string(value) })
	var raw map[string]json.RawMessage
	theirs := json.Unmarshal([]byte(text), &raw)
	if accepted := theirs == nil && raw != nil; accepted != (err == nil) {
		t.Fatalf("Fields of %.60q returns the error %v, but encoding/json %v", text, err, theirs)
	}
	want := map[string]string{}
	for key, value := range raw {
		want[key] = string(value)
	}
	if err == nil && !maps.Equal(got, want) {
		t.Fatalf("Fields of %.60q returns %.60q, but encoding/json %.60q", text, got, want)
	}
}

func FuzzFields(f *testing.F) {
	for _, object := range hostile {
		f.Add([]byte(object(100)))
	}
	for _, seed := range []string{`{"a":1,"a":[{"b":"\ud83d"}]}`, `{"a":[{}`, `{"a":[1,]}`, `{"\u00e9":"é"} `, `null`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if utf8.Valid(text) { // encoding/json accepts invalid UTF-8
			compareFields(t, string(text))
		}
	})
}

func TestFieldsTakesLinearTimeAndLittleMemory(t *testing.T) {
	took := func(text []byte) time.Duration {
		least := time.Hour // the minimum, because the machine may be busy
		for range 5 {
			began := time.Now()
			if err := Fields(text, func(_, _ []byte) {}); err != nil {
				t.Fatal(err)
			}
			least = min(least, time.Since(began))
		}
		return least
	}
	for name, object := range hostile {
		short, long := []byte(object(1<<10)), []byte(object(16<<10))
		if grown := took(long).Seconds() / took(short).Seconds(); grown > 64 {
			t.Errorf("%s: 16 times as long a text takes %.0f times as long, want less than 64", name, grown)
		}
		// The buffer for a long key, and that for many levels, grow a few times.
		if n := testing.AllocsPerRun(5, func() { _ = Fields(long, func(_, _ []byte) {}) }); n > 30 {
			t.Errorf("%s: Fields allocates %.0f times, want at most 30", name, n)
		}
	}
}
