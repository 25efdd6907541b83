package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestReadAcceptsOnlyStrictJSON(t *testing.T) {
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, c := range []struct {
		text string
		want any    // the value, if the text is valid
		err  string // the error, if the text is invalid
	}{
		{text: `{"a":1,"b":[true,false,null,"x"]}`, want: map[string]any{"a": json.Number("1"),
			"b": []any{true, false, nil, "x"}}},
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
		{text: `{"a":1,"a":2}`, err: `duplicate key "a"`},
		{text: `{"a":1,"\u0061":2}`, err: `duplicate key "a"`},
		{text: `{"x":[{"a":{"b":1,"b":1}}]}`, err: `duplicate key "b"`},
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
				t.Errorf("%.60q: got error %v, want %s", c.text, err, c.err)
			}
		case err != nil || !reflect.DeepEqual(got, c.want):
			t.Errorf("%.60q: got %#v and error %v, want %#v", c.text, got, err, c.want)
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

func TestReadWithoutDepthLimitAllowsMaxDepth(t *testing.T) {
	for depth, good := range map[int]bool{MaxDepth: true, MaxDepth + 1: false} {
		text := bytes.Repeat([]byte("["), depth)
		text = append(text, bytes.Repeat([]byte("]"), depth)...)
		if _, err := Read(text, 0); (err == nil) != good {
			t.Errorf("%d levels: got error %v, want valid: %v", depth, err, good)
		}
	}
}

// FuzzRead compares Read with encoding/json. If Read accepts a text, encoding/json must accept it, too, and return the
// same value. If only Read rejects it, the reason must be the depth, a repeated key or invalid UTF-8.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		`{"query":"{info{version}}","variables":{"a":[1,-2.5e3,null,true]}}`, `{"a":1,"a":2}`, `"\ud83d\ude00\ud83d"`,
		"[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]", "\"\xff\"", "{} x", "01", "1e5", "[1,]", `{"a`, "\x00", `"\u00`,
		`"\ud800\u`, `"\ud800\udc00`,
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
				t.Fatalf("Read accepts %q, but encoding/json returns the error %v", text, theirs)
			}
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("Read decodes %q to %#v, but encoding/json to %#v", text, got, want)
			}
			return
		}
		repeated := strings.HasPrefix(err.Error(), "duplicate key")
		if theirs == nil && !repeated && !errors.Is(err, ErrDepth) && !errors.Is(err, errNotUTF8) {
			t.Fatalf("Read rejects %q (%v), but encoding/json accepts it", text, err)
		}
	})
}

func TestIndexSpecialFindsTheFirstSpecialByte(t *testing.T) {
	for length := range 20 {
		for at := range length {
			for c := range 256 {
				text := bytes.Repeat([]byte("~"), length)
				text[at] = byte(c)
				want := length
				if c < ' ' || c == '"' || c == '\\' {
					want = at
				}
				if at+1 < length {
					text[at+1] = '!' // a borrow in the subtraction must not move the index
				}
				got, ascii := indexSpecial(text)
				if got != want {
					t.Fatalf("byte %#x at index %d of %d bytes: indexSpecial returns %d, want %d",
						c, at, length, got, want)
				}
				if ascii != (c < 0x80) {
					t.Fatalf("byte %#x at index %d of %d bytes: ascii is %v", c, at, length, ascii)
				}
				text = append(text[:got], "\"\xff\xff\xff\xff\xff\xff\xff"...)
				if got, ascii = indexSpecial(text); ascii != (c < 0x80) {
					t.Fatalf("byte %#x at index %d of %d bytes: ascii is %v because of bytes after index %d",
						c, at, length, ascii, got)
				}
			}
		}
	}
}
