// Package strictjson reads JSON from clients, and is strict where encoding/json is lenient: it accepts only UTF-8, no
// key twice in an object, a limited depth, and nothing after the value. Numbers keep their text. It is our own because
// encoding/json reports neither repeated keys nor depth, and because a [Reader] finds the parts of a request without
// allocating them (BenchmarkScan in the root).
package strictjson

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// ErrDepth is returned if a value has more levels of objects and arrays than allowed.
var ErrDepth = errors.New("nested too deep")

var errNotUTF8 = errors.New("JSON is not UTF-8")

// MaxDepth is the number of levels that are allowed if there is no other limit: the Reader calls itself for each.
const MaxDepth = 10_000

// A Reader reads a text step by step. Reset it before use.
type Reader struct {
	text  []byte
	at    int    // what is read next
	depth int    // levels left
	room  []byte // strings that had escapes, one after the other
}

// Read returns the only value of a text, with at most depth levels of objects and arrays. If depth is not positive, it
// is MaxDepth. Values are nil, bool, string, json.Number, []any and map[string]any.
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

// Reset starts at the beginning of a text, with depth levels allowed in its values.
func (r *Reader) Reset(text []byte, depth int) {
	r.text, r.at, r.depth, r.room = text, 0, depth, r.room[:0]
}

// Buffered returns the memory in bytes that r keeps for strings that had escapes.
func (r *Reader) Buffered() int { return cap(r.room) }

// End reports whether nothing is left but white space.
func (r *Reader) End() bool { return r.peek() == 0 }

// Is reads c if it comes next.
func (r *Reader) Is(c byte) bool {
	if r.peek() != c {
		return false
	}
	r.at++
	return true
}

// Null reads null if it comes next.
func (r *Reader) Null() bool { return r.peek() == 'n' && r.word("null") }

// peek skips white space and returns the next byte, 0 at the end.
func (r *Reader) peek() byte {
	for r.at < len(r.text) {
		switch c := r.text[r.at]; c {
		case ' ', '\t', '\n', '\r':
			r.at++
		case 0:
			return 0xff // never valid, and not the end
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

// word reads a word if it comes next.
func (r *Reader) word(w string) bool {
	if !bytes.HasPrefix(r.text[r.at:], []byte(w)) {
		return false
	}
	r.at += len(w)
	return true
}

// Value reads a value.
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
		return r.number()
	case r.word("null"):
		return nil, nil
	case r.word("true"):
		return true, nil
	case r.word("false"):
		return false, nil
	}
	return nil, r.unexpected()
}

// nest reads the inside of an object or array: items with commas between, up to
// the closing byte.
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
			return fmt.Errorf("key %.40q is there twice", key)
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

func (r *Reader) number() (any, error) {
	start := r.at
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
		return nil, r.unexpected()
	}
	if is(".") && !digits() {
		return nil, r.unexpected()
	}
	if is("eE") {
		is("+-")
		if !digits() {
			return nil, r.unexpected()
		}
	}
	return json.Number(r.text[start:r.at]), nil
}

// Text reads a string. The result is part of the input, or is valid until the next Reset.
func (r *Reader) Text() ([]byte, error) {
	if r.peek() != '"' {
		return nil, r.unexpected()
	}
	r.at++
	rest := r.text[r.at:]
	if end := bytes.IndexByte(rest, '"'); end >= 0 && isPlain(rest[:end]) {
		r.at += end + 1
		return rest[:end:end], nil
	}
	before := len(r.room)
	start := r.at
	for r.at < len(r.text) {
		switch c := r.text[r.at]; {
		case c == '"':
			r.room = append(r.room, r.text[start:r.at]...)
			r.at++
			text := r.room[before:len(r.room):len(r.room)]
			if !utf8.Valid(text) {
				return nil, errNotUTF8
			}
			return text, nil
		case c < ' ':
			return nil, r.unexpected()
		case c == '\\':
			r.room = append(r.room, r.text[start:r.at]...)
			if err := r.escape(); err != nil {
				return nil, err
			}
			start = r.at
		default:
			r.at++
		}
	}
	return nil, r.unexpected()
}

// escape reads one escape, which for a character outside the basic plane is a pair.
func (r *Reader) escape() error {
	r.at++
	if r.at >= len(r.text) {
		return r.unexpected()
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
			return r.unexpected()
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
		return r.unexpected()
	}
	r.at++
	r.room = utf8.AppendRune(r.room, c) // half a pair becomes the replacement character
	return nil
}

func (r *Reader) hex4(at int) (rune, bool) {
	if at+4 > len(r.text) {
		return 0, false
	}
	n, err := strconv.ParseUint(string(r.text[at:at+4]), 16, 16)
	return rune(n), err == nil
}

// isPlain reports whether a text is ASCII without controls and backslashes. It
// looks at eight bytes at a time.
func isPlain(text []byte) bool {
	const each, high = 0x0101010101010101, 0x8080808080808080
	odd := uint64(0)
	for ; len(text) >= 8; text = text[8:] {
		n := binary.LittleEndian.Uint64(text)
		controls, backslash := n-' '*each, n^'\\'*each
		odd |= n | controls&^n | (backslash-each)&^backslash
	}
	for _, c := range text {
		if c < ' ' || c == '\\' {
			odd = high
		}
		odd |= uint64(c)
	}
	return odd&high == 0
}
