package chaingql

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonReader reads the JSON of strangers strictly, where encoding/json is
// lenient: UTF-8 only, no key twice in an object, no deeper than asked for, and
// nothing behind the value. Numbers stay as they are written.
type jsonReader struct {
	text  []byte
	at    int
	depth int // levels left
}

var errTooDeep = errors.New("nested too deep")

// mostDepth bounds the depth where that is off: what is read by recursion must
// not be as deep as a stranger likes.
const mostDepth = 10_000

// readJSON reads one value and nothing behind it, with at most depth levels of
// objects and arrays; zero or less is mostDepth.
func readJSON(text []byte, depth int) (any, error) {
	if depth <= 0 {
		depth = mostDepth
	}
	r := jsonReader{text: text, depth: depth}
	v, err := r.value()
	if err == nil && r.peek() != 0 {
		err = r.unexpected()
	}
	return v, err
}

// peek skips white space and returns the next byte, 0 at the end.
func (r *jsonReader) peek() byte {
	for r.at < len(r.text) {
		switch c := r.text[r.at]; c {
		case ' ', '\t', '\n', '\r':
			r.at++
		case 0:
			return 0xff // never good, and not the end
		default:
			return c
		}
	}
	return 0
}

func (r *jsonReader) unexpected() error {
	if r.at >= len(r.text) {
		return errors.New("unexpected end of JSON")
	}
	return fmt.Errorf("unexpected %q at byte %d of JSON", rune(r.text[r.at]), r.at)
}

// take reads a byte that must come next.
func (r *jsonReader) take(c byte) error {
	if r.peek() != c {
		return r.unexpected()
	}
	r.at++
	return nil
}

func (r *jsonReader) value() (any, error) {
	switch c := r.peek(); {
	case c == '{':
		return r.object()
	case c == '[':
		return r.array()
	case c == '"':
		return r.string()
	case c == '-' || c >= '0' && c <= '9':
		return r.number()
	}
	switch rest := r.text[r.at:]; {
	case bytes.HasPrefix(rest, []byte("null")):
		r.at += len("null")
		return nil, nil
	case bytes.HasPrefix(rest, []byte("true")):
		r.at += len("true")
		return true, nil
	case bytes.HasPrefix(rest, []byte("false")):
		r.at += len("false")
		return false, nil
	}
	return nil, r.unexpected()
}

// nest reads the inside of an object or array: items with commas between, up to
// the closing byte.
func (r *jsonReader) nest(closing byte, item func() error) error {
	if r.depth--; r.depth < 0 {
		return errTooDeep
	}
	r.at++
	if r.peek() == closing {
		r.at++
		r.depth++
		return nil
	}
	for {
		if err := item(); err != nil {
			return err
		}
		if r.peek() == closing {
			r.at++
			r.depth++
			return nil
		}
		if err := r.take(','); err != nil {
			return err
		}
	}
}

func (r *jsonReader) object() (any, error) {
	object := map[string]any{}
	err := r.nest('}', func() error {
		if r.peek() != '"' {
			return r.unexpected()
		}
		key, err := r.string()
		if err != nil {
			return err
		}
		if _, twice := object[key]; twice {
			return fmt.Errorf("key %.40q is there twice", key)
		}
		if err := r.take(':'); err != nil {
			return err
		}
		object[key], err = r.value()
		return err
	})
	return object, err
}

func (r *jsonReader) array() (any, error) {
	array := []any{}
	err := r.nest(']', func() error {
		v, err := r.value()
		array = append(array, v)
		return err
	})
	return array, err
}

func (r *jsonReader) number() (any, error) {
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

func (r *jsonReader) string() (string, error) {
	r.at++
	start := r.at
	for r.at < len(r.text) {
		switch c := r.text[r.at]; {
		case c == '"':
			s := string(r.text[start:r.at])
			r.at++
			if !utf8.ValidString(s) {
				return "", errors.New("JSON is not UTF-8")
			}
			return s, nil
		case c == '\\':
			return r.escaped(start)
		case c < ' ':
			return "", r.unexpected()
		}
		r.at++
	}
	return "", r.unexpected()
}

// escaped reads on in a string that has an escape.
func (r *jsonReader) escaped(start int) (string, error) {
	s := append([]byte(nil), r.text[start:r.at]...)
	for r.at < len(r.text) {
		c := r.text[r.at]
		switch {
		case c == '"':
			r.at++
			if !utf8.Valid(s) {
				return "", errors.New("JSON is not UTF-8")
			}
			return string(s), nil
		case c < ' ':
			return "", r.unexpected()
		case c != '\\':
			s = append(s, c)
			r.at++
			continue
		}
		r.at++
		if r.at >= len(r.text) {
			break
		}
		switch c := r.text[r.at]; c {
		case '"', '\\', '/':
			s = append(s, c)
		case 'b':
			s = append(s, '\b')
		case 'f':
			s = append(s, '\f')
		case 'n':
			s = append(s, '\n')
		case 'r':
			s = append(s, '\r')
		case 't':
			s = append(s, '\t')
		case 'u':
			first, ok := r.hex4(r.at + 1)
			if !ok {
				return "", r.unexpected()
			}
			r.at += 4
			if second, ok := r.hex4(r.at + 3); ok && utf16.IsSurrogate(first) && r.text[r.at+1] == '\\' && r.text[r.at+2] == 'u' {
				if pair := utf16.DecodeRune(first, second); pair != utf8.RuneError {
					first = pair
					r.at += 6
				}
			}
			s = utf8.AppendRune(s, first) // half a pair becomes the replacement character
		default:
			return "", r.unexpected()
		}
		r.at++
	}
	return "", r.unexpected()
}

func (r *jsonReader) hex4(at int) (rune, bool) {
	if at+4 > len(r.text) {
		return 0, false
	}
	n, err := strconv.ParseUint(string(r.text[at:at+4]), 16, 16)
	return rune(n), err == nil
}
