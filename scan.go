package chaingql

import (
	"bytes"
	"errors"

	"github.com/chaingql/chaingql/internal/plan"
	"github.com/chaingql/chaingql/internal/strictjson"
)

// A scan finds the parts of a body without allocating memory for them, because a query whose plan is in the cache needs
// nothing else. It accepts only bodies of the usual form; all others must be read by decodeRequest. It accepts no body
// that decodeRequest would refuse or read differently. Its results are valid until the next read.
type scan struct {
	query     []byte
	last      strictjson.Repeated // most queries repeat the last one
	operation string
	given     []plan.Variable
	short     bool        // the body is so short that variables may refer to it
	quick     bool        // the body is so short that variables may be lists and objects
	texts     []plan.Text // with a capacity of maxScanned, because the variables have pointers to them
	strictjson.Reader
}

// maxScanned is the maximum number of variables in a body that a scan accepts. It is small because a scan compares each
// key with all others to find repeated keys.
const maxScanned = 16

// quickBytes is the maximum size of a request that takes only microseconds to decode, whatever it contains.
const quickBytes = 1 << 10

// maxText is the maximum length of a string variable that is not copied at once. It is copied for most fields that use
// it.
const maxText = 128

// read scans a body. It returns false if decodeRequest must read it.
func (s *scan) read(body []byte, depth int) bool {
	if depth <= 0 {
		depth = strictjson.MaxDepth
	}
	s.query, s.operation, s.given, s.texts, s.short = nil, "", s.given[:0], s.texts[:0], len(body) <= reservedBytes
	s.quick = len(body) <= quickBytes
	s.Reset(body, depth-2) // depth-2 levels are left for the value of a variable
	if depth < 2 || !s.Is('{') {
		return false
	}
	const query, variables, operation, extensions = 1, 2, 4, 8
	for seen := 0; ; {
		name, ok := s.key()
		key := 0
		switch string(name) {
		case "query":
			key = query
			var err error
			s.query, err = s.Repeated(&s.last)
			ok = err == nil
		case "variables":
			key = variables
			ok = s.Null() || s.variables()
		case "operationName":
			key = operation
			if ok = s.Null(); !ok {
				name, ok = s.text()
				s.operation = string(name)
			}
		case "extensions":
			key = extensions
			ok = s.Null()
		}
		if !ok || key == 0 || seen&key != 0 {
			return false
		}
		seen |= key
		if s.Is('}') {
			return s.End() && len(s.query) > 0
		}
		if !s.Is(',') {
			return false
		}
	}
}

// variables reads the object of variables.
func (s *scan) variables() bool {
	if !s.Is('{') {
		return false
	}
	if s.Is('}') {
		return true
	}
	for len(s.given) < maxScanned {
		name, ok := s.key()
		for i := range s.given {
			ok = ok && !bytes.Equal(s.given[i].Name, name)
		}
		if !ok {
			return false
		}
		value, err := s.value()
		if err != nil {
			return false
		}
		s.given = append(s.given, plan.Variable{Name: name, Value: value})
		if s.Is('}') {
			return true
		}
		if !s.Is(',') {
			return false
		}
	}
	return false
}

// errSlow is the error of a variable that may take long to decode.
var errSlow = errors.New("chaingql: list or object in a long body")

// value reads the value of a variable. It does not copy a short string.
func (s *scan) value() (any, error) {
	if !s.quick && s.IsNested() {
		return nil, errSlow
	}
	if !s.short || !s.IsText() {
		return s.Value()
	}
	text, err := s.Text()
	if len(text) > maxText {
		return string(text), err
	}
	if s.texts == nil {
		s.texts = make([]plan.Text, 0, maxScanned)
	}
	s.texts = append(s.texts, text)
	return &s.texts[len(s.texts)-1], err
}

// key reads a key and the colon after it.
func (s *scan) key() ([]byte, bool) {
	name, err := s.Text()
	if err != nil || !s.Is(':') {
		return nil, false
	}
	return name, true
}

func (s *scan) text() ([]byte, bool) {
	text, err := s.Text()
	return text, err == nil
}

// release drops the variables and the operation name that read found. It keeps the query, which is part of the body.
func (s *scan) release() {
	clear(s.given)
	s.given, s.operation = s.given[:0], ""
}
