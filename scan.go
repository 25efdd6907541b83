package chaingql

import (
	"bytes"
	"encoding/binary"
	"unicode/utf8"

	"github.com/chaingql/chaingql/internal/plan"
)

// A scan finds in a body what nearly all of them have (a query, variables that
// are strings and numbers) without making a tree of it. What it finds lies in
// the body, or in room of its own, and is good for as long as they are.
//
// It is no judge: it takes nothing that decodeRequest would not take or would
// read otherwise, and leaves everything that is not plain to it.
type scan struct {
	query     []byte
	operation string
	given     []plan.Given
	room      []byte // a query that had escapes
	jsonReader
}

// mostGiven bounds what is compared with each other to find a key that is there
// twice.
const mostGiven = 16

// The keys of a body. It must have the first, and may have each once.
const (
	keyQuery = iota
	keyVariables
	keyOperation
	keyExtensions
	keyNone
)

func keyOf(name []byte) int {
	switch string(name) {
	case "query":
		return keyQuery
	case "variables":
		return keyVariables
	case "operationName":
		return keyOperation
	case "extensions":
		return keyExtensions
	}
	return keyNone
}

// read scans a body. It reports false where decodeRequest is to read it.
func (s *scan) read(body []byte, depth int) bool {
	if depth <= 0 {
		depth = mostDepth
	}
	s.query, s.operation, s.given = nil, "", s.given[:0]
	s.jsonReader = jsonReader{text: body, depth: depth - 1}
	var seen [keyNone]bool
	if depth < 2 || !s.is('{') {
		return false
	}
	for {
		name, ok := s.key()
		key := keyOf(name)
		if !ok || key == keyNone || seen[key] {
			return false
		}
		seen[key] = true
		switch key {
		case keyQuery:
			s.query, ok = s.text()
		case keyVariables:
			ok = s.null() || s.variables()
		case keyOperation:
			var name []byte
			if ok = s.null(); !ok {
				name, ok = s.plain()
				s.operation = string(name)
			}
		case keyExtensions:
			ok = s.null()
		}
		if !ok {
			return false
		}
		if s.is('}') {
			return s.peek() == 0 && len(s.query) > 0
		}
		if !s.is(',') {
			return false
		}
	}
}

// variables reads an object of them.
func (s *scan) variables() bool {
	if !s.is('{') {
		return false
	}
	if s.is('}') {
		return true
	}
	s.depth--
	for {
		name, ok := s.key()
		if !ok || len(s.given) == mostGiven {
			return false
		}
		for i := range s.given {
			if bytes.Equal(s.given[i].Name, name) {
				return false
			}
		}
		var v any
		if text, ok := s.plain(); ok {
			v = string(text)
		} else if other, err := s.value(); err == nil {
			v = other
		} else {
			return false
		}
		s.given = append(s.given, plan.Given{Name: name, Value: v})
		if s.is('}') {
			s.depth++
			return true
		}
		if !s.is(',') {
			return false
		}
	}
}

// is takes a byte, if it comes next.
func (s *scan) is(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.at++
	return true
}

func (s *scan) null() bool {
	if s.peek() != 'n' || !bytes.HasPrefix(s.jsonReader.text[s.at:], []byte("null")) {
		return false
	}
	s.at += len("null")
	return true
}

// key reads a plain key and the colon behind it.
func (s *scan) key() ([]byte, bool) {
	name, ok := s.plain()
	return name, ok && s.is(':')
}

// plain reads a string without escapes, in ASCII.
func (s *scan) plain() ([]byte, bool) {
	if s.peek() != '"' {
		return nil, false
	}
	text := s.jsonReader.text[s.at+1:]
	end := bytes.IndexByte(text, '"')
	if end < 0 || !isPlain(text[:end]) {
		return nil, false
	}
	s.at += end + 2
	return text[:end], true
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

// text reads a string that may have the escapes that documents bring: of line
// ends, tabs and quotes.
func (s *scan) text() ([]byte, bool) {
	if s.peek() != '"' {
		return nil, false
	}
	start := s.at
	if plain, ok := s.plain(); ok {
		return plain, true
	}
	text := s.jsonReader.text
	s.room = s.room[:0]
	from := start + 1
	for i := from; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '"':
			s.room = append(s.room, text[from:i]...)
			s.at = i + 1
			return s.room, true
		case c < ' ' || c >= utf8.RuneSelf:
			return nil, false
		case c != '\\':
			continue
		}
		s.room = append(s.room, text[from:i]...)
		if i++; i == len(text) {
			return nil, false
		}
		switch text[i] {
		case 'n':
			c = '\n'
		case 't':
			c = '\t'
		case 'r':
			c = '\r'
		case '"', '\\', '/':
			c = text[i]
		default:
			return nil, false
		}
		s.room = append(s.room, c)
		from = i + 1
	}
	return nil, false
}

// request is what was found, for those who keep it.
func (s *scan) request() *request {
	r := &request{}
	r.Query, r.OperationName = string(s.query), s.operation
	if len(s.given) > 0 {
		r.Variables = make(map[string]any, len(s.given))
	}
	for _, v := range s.given {
		r.Variables[string(v.Name)] = v.Value
	}
	return r
}

// release lets go of the values that were found, but for what lies in the body.
func (s *scan) release() {
	clear(s.given)
	s.given, s.operation = s.given[:0], ""
}
