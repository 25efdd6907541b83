package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestJSONIsReadStrictly(t *testing.T) {
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, c := range []struct {
		text string
		want any    // where it is good
		err  string // where it is not
	}{
		{text: `{"a":1,"b":[true,false,null,"x"]}`, want: map[string]any{"a": json.Number("1"), "b": []any{true, false, nil, "x"}}},
		{text: " {\t} \r\n", want: map[string]any{}},
		{text: `[]`, want: []any{}},
		{text: `"\"\\\/\b\f\n\r\t\u0041é"`, want: "\"\\/\b\f\n\r\tAé"},
		{text: `"\ud83d\ude00"`, want: "😀"},
		{text: `"\ud83dx"`, want: "\ufffdx"},
		{text: `"\ud83d\u0041"`, want: "\ufffdA"},
		{text: `"\ude00"`, want: "\ufffd"},
		{text: `"\ud83d\`, err: "unexpected end of JSON"},
		{text: `-0.5e+10`, want: json.Number("-0.5e+10")},
		{text: `9007199254740993`, want: json.Number("9007199254740993")},
		{text: `null`, want: nil},
		{text: ``, err: "unexpected end of JSON"},
		{text: "\x00", err: `unexpected '\x00' at byte 0 of JSON`},
		{text: `{} x`, err: `unexpected 'x' at byte 3 of JSON`},
		{text: "{}\x00", err: `unexpected '\x00' at byte 2 of JSON`},
		{text: `{}{}`, err: `unexpected '{' at byte 2 of JSON`},
		{text: `{"a":1,"a":2}`, err: `key "a" is there twice`},
		{text: `{"a":1,"\u0061":2}`, err: `key "a" is there twice`},
		{text: `{"x":[{"a":{"b":1,"b":1}}]}`, err: `key "b" is there twice`},
		{text: `{a:1}`, err: `unexpected 'a' at byte 1 of JSON`},
		{text: `{"a" 1}`, err: `unexpected '1' at byte 5 of JSON`},
		{text: `{"a":1,}`, err: `unexpected '}' at byte 7 of JSON`},
		{text: `[1,]`, err: `unexpected ']' at byte 3 of JSON`},
		{text: `[1 2]`, err: `unexpected '2' at byte 3 of JSON`},
		{text: `[1`, err: "unexpected end of JSON"},
		{text: `nul`, err: `unexpected 'n' at byte 0 of JSON`},
		{text: `True`, err: `unexpected 'T' at byte 0 of JSON`},
		{text: `01`, err: `unexpected '1' at byte 1 of JSON`},
		{text: `1.`, err: "unexpected end of JSON"},
		{text: `.5`, err: `unexpected '.' at byte 0 of JSON`},
		{text: `-`, err: "unexpected end of JSON"},
		{text: `1e`, err: "unexpected end of JSON"},
		{text: `+1`, err: `unexpected '+' at byte 0 of JSON`},
		{text: `NaN`, err: `unexpected 'N' at byte 0 of JSON`},
		{text: `"a`, err: "unexpected end of JSON"},
		{text: "\"a\nb\"", err: `unexpected '\n' at byte 2 of JSON`},
		{text: "\"\\n\nb\"", err: `unexpected '\n' at byte 3 of JSON`},
		{text: `"\x"`, err: `unexpected 'x' at byte 2 of JSON`},
		{text: `"\u12g4"`, err: `unexpected 'u' at byte 2 of JSON`},
		{text: "\"\xff\"", err: "JSON is not UTF-8"},
		{text: "\"\\n\xff\"", err: "JSON is not UTF-8"},
		{text: "{\"\xff\":1}", err: "JSON is not UTF-8"},
		{text: "\ufeff{}", err: `unexpected 'ï' at byte 0 of JSON`},
		{text: nested(20), want: nestedValue(20)},
		{text: nested(21), err: ErrDepth.Error()},
		{text: strings.Repeat(`{"a":`, 21) + "1" + strings.Repeat("}", 21), err: ErrDepth.Error()},
		{text: "[" + nested(19) + "," + nested(19) + "]", want: []any{nestedValue(19), nestedValue(19)}},
	} {
		got, err := Read([]byte(c.text), 20)
		switch {
		case c.err != "":
			if err == nil || err.Error() != c.err {
				t.Errorf("%.60q: error %v, want %s", c.text, err, c.err)
			}
		case err != nil || !reflect.DeepEqual(got, c.want):
			t.Errorf("%.60q: %#v, %v, want %#v", c.text, got, err, c.want)
		}
	}
}

func nestedValue(n int) any {
	v := []any{}
	for range n - 1 {
		v = []any{v}
	}
	return v
}

func TestDepthThatIsOffIsStillBounded(t *testing.T) {
	for depth, good := range map[int]bool{MaxDepth: true, MaxDepth + 1: false} {
		text := bytes.Repeat([]byte("["), depth)
		text = append(text, bytes.Repeat([]byte("]"), depth)...)
		if _, err := Read(text, 0); (err == nil) != good {
			t.Errorf("%d levels: %v", depth, err)
		}
	}
}

// FuzzRead holds Read against encoding/json: what it takes, that takes
// too, and reads the same in it; what only Read refuses, it refuses for one
// of the reasons it is there for.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		`{"query":"{info{version}}","variables":{"a":[1,-2.5e3,null,true]}}`, `{"a":1,"a":2}`, `"\ud83d\ude00\ud83d"`,
		"[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]", "\"\xff\"", "{} x", "01", "1e5", "[1,]", `{"a`, "\x00", `"\u00`, `"\ud800\u`, `"\ud800\udc00`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := Read(text, 20)
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.UseNumber()
		var want any
		theirs := dec.Decode(&want)
		if theirs == nil && len(bytes.TrimLeft(text[dec.InputOffset():], " \t\r\n")) > 0 {
			theirs = errors.New("trailing bytes")
		}
		if err == nil {
			if theirs != nil {
				t.Fatalf("%q is taken, and encoding/json says %v", text, theirs)
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%q is read as %#v, by encoding/json as %#v", text, got, want)
			}
			return
		}
		if theirs == nil && !errors.Is(err, ErrDepth) && !strings.HasSuffix(err.Error(), "is there twice") && err.Error() != "JSON is not UTF-8" {
			t.Fatalf("%q is refused (%v), and encoding/json takes it", text, err)
		}
	})
}

func TestEveryByteThatIsNotPlainIsSeen(t *testing.T) {
	for length := range 20 {
		for at := range length {
			for c := range 256 {
				text := bytes.Repeat([]byte("~"), length)
				text[at] = byte(c)
				if got, want := isPlain(text), c >= ' ' && c < 0x80 && c != '\\'; got != want {
					t.Fatalf("byte %#x at %d of %d: plain %v", c, at, length, got)
				}
			}
		}
	}
}
