// Package strictjson reads JSON from untrusted clients. It is stricter than encoding/json: it rejects invalid UTF-8,
// repeated keys in an object, values that are nested too deep, and any text after the value. Numbers keep their text.
//
// encoding/json cannot replace it, because it reports neither repeated keys nor depth. A [Reader] also finds the parts
// of a request without allocating memory for them (see BenchmarkScan in the root package).
package strictjson

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// ErrDepth is returned if a value has more levels of nested objects and arrays than allowed.
var ErrDepth = errors.New("nested too deep")

var errNotUTF8 = errors.New("JSON is not UTF-8")

// MaxDepth is the maximum number of nested levels if the caller sets no limit. A limit is always needed, because the
// Reader calls itself for each level.
const MaxDepth = 10_000

// A Reader reads a JSON text step by step. Call Reset before use.
type Reader struct {
	text []byte
	// at is the index of the next byte.
	at int
	// depth is the number of nested levels that are still allowed.
	depth int
	// room has the decoded strings that could not be returned as a part of text, one after the other.
	room []byte
}

// Read returns the value in text, which must contain nothing else. It allows at most depth levels of nested objects
// and arrays, or MaxDepth levels if depth is not positive. The value is nil or a bool, string, json.Number, []any or
// map[string]any.
func Read(text []byte, depth int) (any, error) {
	var r Reader
	if depth <= 0 {
		depth = MaxDepth
	}
	r.Reset(text, depth)
	v, err := r.Value()
	if err == nil && !r.End() {
		err = r.unexpected()
	}
	return v, err
}

// Reset makes r read text from its beginning and allows depth levels of nested objects and arrays.
func (r *Reader) Reset(text []byte, depth int) {
	r.text, r.at, r.depth, r.room = text, 0, depth, r.room[:0]
}

// Buffered returns the memory in bytes that r keeps for decoded strings.
func (r *Reader) Buffered() int { return cap(r.room) }

// End reports whether only white space is left.
func (r *Reader) End() bool { return r.peek() == 0 }

// Is skips white space and reads the next byte if it is c. It reports whether it has read c.
func (r *Reader) Is(c byte) bool {
	if r.peek() != c {
		return false
	}
	r.at++
	return true
}

// IsText skips white space and reports whether a string comes next.
func (r *Reader) IsText() bool { return r.peek() == '"' }

// IsNested reports whether the next value is an object or an array.
func (r *Reader) IsNested() bool { c := r.peek(); return c == '{' || c == '[' }

// Null skips white space and reads null if it comes next. It reports whether it has read null.
func (r *Reader) Null() bool { return r.peek() == 'n' && r.word("null") }

// peek skips white space and returns the next byte without reading it. It returns 0 at the end.
func (r *Reader) peek() byte {
	for r.at < len(r.text) {
		switch c := r.text[r.at]; c {
		case ' ', '\t', '\n', '\r':
			r.at++
		case 0:
			return 0xff // a NUL in the text is invalid, but it is not the end
		default:
			return c
		}
	}
	return 0
}

func (r *Reader) unexpected() error {
	if r.at >= len(r.text) {
		return errors.New("unexpected end of JSON")
	}
	return fmt.Errorf("unexpected %q at byte %d of JSON", rune(r.text[r.at]), r.at)
}

// word reads w if the text continues with it, and reports whether it does.
func (r *Reader) word(w string) bool {
	if !bytes.HasPrefix(r.text[r.at:], []byte(w)) {
		return false
	}
	r.at += len(w)
	return true
}

// Value reads the next value.
func (r *Reader) Value() (any, error) {
	switch c := r.peek(); {
	case c == '{':
		return r.object()
	case c == '[':
		return r.array()
	case c == '"':
		s, err := r.Text()
		return string(s), err
	case c == '-' || c >= '0' && c <= '9':
		start := r.at
		err := r.number()
		return json.Number(r.text[start:r.at]), err
	case r.word("null"):
		return nil, nil
	case r.word("true"):
		return true, nil
	case r.word("false"):
		return false, nil
	}
	return nil, r.unexpected()
}

// nest reads an object or array up to its closing byte. It calls item to read each of the items, which are separated
// by commas.
func (r *Reader) nest(closing byte, item func() error) error {
	if r.depth--; r.depth < 0 {
		return ErrDepth
	}
	r.at++
	for first := true; !r.Is(closing); first = false {
		if !first && !r.Is(',') {
			return r.unexpected()
		}
		if err := item(); err != nil {
			return err
		}
	}
	r.depth++
	return nil
}

func (r *Reader) object() (any, error) {
	object := map[string]any{}
	err := r.nest('}', func() error {
		text, err := r.Text()
		if err != nil {
			return err
		}
		key := string(text)
		if _, twice := object[key]; twice {
			return fmt.Errorf("duplicate key %.40q", key)
		}
		if !r.Is(':') {
			return r.unexpected()
		}
		object[key], err = r.Value()
		return err
	})
	return object, err
}

func (r *Reader) array() (any, error) {
	array := []any{}
	err := r.nest(']', func() error {
		v, err := r.Value()
		array = append(array, v)
		return err
	})
	return array, err
}

func (r *Reader) number() error {
	digits := func() bool {
		from := r.at
		for r.at < len(r.text) && r.text[r.at] >= '0' && r.text[r.at] <= '9' {
			r.at++
		}
		return r.at > from
	}
	is := func(set string) bool {
		for i := range len(set) {
			if r.at < len(r.text) && r.text[r.at] == set[i] {
				r.at++
				return true
			}
		}
		return false
	}
	is("-")
	if !is("0") && !digits() {
		return r.unexpected()
	}
	if is(".") && !digits() {
		return r.unexpected()
	}
	if is("eE") {
		is("+-")
		if !digits() {
			return r.unexpected()
		}
	}
	return nil
}

// Text reads a string. The result is a part of the text, or of a buffer that is overwritten after the next Reset.
func (r *Reader) Text() ([]byte, error) { return r.readText(true) }

// readText is like Text. If decode is false, it needs no memory, and the result has escape sequences as in the text.
func (r *Reader) readText(decode bool) ([]byte, error) {
	if r.peek() != '"' {
		return nil, r.unexpected()
	}
	r.at++
	before, start, ascii := len(r.room), r.at, true
	for {
		n, plain := indexSpecial(r.text[r.at:])
		ascii = ascii && plain
		if r.at += n; r.at == len(r.text) {
			return nil, r.unexpected()
		}
		switch r.text[r.at] {
		case '"':
			text := r.text[start:r.at:r.at]
			r.at++
			if len(r.room) > before { // an escape sequence was decoded
				r.room = append(r.room, text...)
				text = r.room[before:len(r.room):len(r.room)]
			}
			if !ascii && !utf8.Valid(text) {
				return nil, errNotUTF8
			}
			return text, nil
		case '\\':
			end := r.at
			c, err := r.escape()
			if err != nil {
				return nil, err
			}
			if decode {
				r.room = utf8.AppendRune(append(r.room, r.text[start:end]...), c)
				start = r.at
			}
		default: // a control character
			return nil, r.unexpected()
		}
	}
}

// escape reads one escape sequence, or two if they are a surrogate pair. It returns a lone surrogate as it is:
// AppendRune turns it into the replacement character.
func (r *Reader) escape() (rune, error) {
	r.at++
	if r.at >= len(r.text) {
		return 0, r.unexpected()
	}
	c := rune(r.text[r.at])
	switch c {
	case '"', '\\', '/':
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		first, ok := r.hex4(r.at + 1)
		if !ok {
			return 0, r.unexpected()
		}
		c = first
		r.at += 4
		if bytes.HasPrefix(r.text[r.at+1:], []byte(`\u`)) && utf16.IsSurrogate(c) {
			if second, ok := r.hex4(r.at + 3); ok && utf16.DecodeRune(c, second) != utf8.RuneError {
				c = utf16.DecodeRune(c, second)
				r.at += 6
			}
		}
	default:
		return 0, r.unexpected()
	}
	r.at++
	return c, nil
}

func (r *Reader) hex4(at int) (rune, bool) {
	if at+4 > len(r.text) {
		return 0, false
	}
	n, err := strconv.ParseUint(string(r.text[at:at+4]), 16, 16)
	return rune(n), err == nil
}

// Constants for functions that check eight bytes at a time. A product of each and a byte has this byte eight times, and
// high is the highest bit of each byte.
const each, high = 0x0101010101010101, 0x8080808080808080

// indexSpecial returns the index of the first quote, backslash or control character, or the length of the text if it
// has none. ascii reports whether all bytes before it are ASCII.
func indexSpecial(text []byte) (at int, ascii bool) {
	seen := uint64(0)
	for ; len(text)-at >= 8; at += 8 {
		n := binary.LittleEndian.Uint64(text[at:])
		// With one bit flipped, the quote comes directly after the control characters. A subtraction borrows only from
		// bytes after a special one, so the first byte that is found is special.
		found := ((n ^ ('"'^' ')*each - (' '+1)*each) | (n ^ '\\'*each - each)) &^ n & high
		if found != 0 {
			before := found&-found - 1 // without the highest bit of the special byte
			return at + bits.TrailingZeros64(found)/8, (seen|n&before)&high == 0
		}
		seen |= n
	}
	for ; at < len(text); at++ {
		c := text[at]
		if c < ' ' || c == '"' || c == '\\' {
			break
		}
		seen |= uint64(c)
	}
	return at, seen&high == 0
}
