package plan

import (
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
)

// Clients that write an address or a number into their documents send another
// text each time. So a document is known by its shape, too: its text with the
// literals in its fields' arguments lifted out. They are then handed to its plan
// like variables.
//
// A shape is made of what is plain alone: anything unusual (characters past
// ASCII, block strings, escapes) leaves a document to be known by its text.
type shaper struct {
	shape []byte // the text with one byte of a kind instead of each literal
	holes []hole
}

// A hole is where a literal was in its text.
type hole struct {
	start, end int // of what it says: a string's without its quotes
	kind       ast.ValueKind
}

// mostHoles bounds what a plan's holes hold, and take to fill.
const mostHoles = 64

// Bytes of a text: what is not here has no place in a shape.
const (
	plain  = iota + 1 // white space, punctuation
	letter            // of a name
	digit             // or minus
	special
)

var classes = func() (t [256]byte) {
	for _, c := range []byte(" \t\r\n,!&.:=[]|") {
		t[c] = plain
	}
	for c := 'a'; c <= 'z'; c++ {
		t[c], t[c-'a'+'A'] = letter, letter
	}
	t['_'] = letter
	for c := '0'; c <= '9'; c++ {
		t[c] = digit
	}
	t['-'] = digit
	for _, c := range []byte("#\"(){}@$") {
		t[c] = special
	}
	return t
}()

// read makes the shape of a text, which is known to be good or to have a good
// document's shape. It reports false where there is none.
func (s *shaper) read(text []byte) bool {
	s.shape, s.holes = s.shape[:0], s.holes[:0]
	depth, from := 0, 0 // selection sets that are open; what of the text is not in the shape yet
	arguments, directive := false, false
	for i := 0; i < len(text); {
		switch classes[text[i]] {
		case plain:
			i++
		case letter:
			i = name(text, i)
		case digit:
			end, kind := numeral(text, i)
			if end == 0 {
				return false
			}
			if arguments && !directive && depth > 0 {
				s.lift(text[from:i], hole{i, end, kind})
				from = end
			}
			i = end
		case special:
			switch c := text[i]; c {
			case '#':
				for ; i < len(text) && text[i] != '\n' && text[i] != '\r'; i++ {
					if text[i] >= 0x7f || text[i] < ' ' && text[i] != '\t' {
						return false
					}
				}
				continue
			case '"':
				end := plainString(text, i+1)
				if end == 0 {
					return false
				}
				if arguments && !directive && depth > 0 {
					s.lift(text[from:i], hole{i + 1, end, ast.StringValue})
					from = end + 1
				}
				i = end
			case '(':
				arguments = true
			case ')':
				arguments, directive = false, false
			case '@':
				directive = true // up to the next parenthesis: too long does no harm
			case '{':
				if !arguments {
					depth++
					directive = false
				}
			case '}':
				if !arguments {
					depth--
					directive = false
				}
			}
			i++
		default:
			return false
		}
	}
	s.shape = append(s.shape, text[from:]...)
	return len(s.holes) > 0 && len(s.holes) <= mostHoles
}

func (s *shaper) lift(before []byte, h hole) {
	s.shape = append(append(s.shape, before...), byte(h.kind))
	s.holes = append(s.holes, h)
}

// name returns the end of the name that begins at i.
func name(text []byte, i int) int {
	for i++; i < len(text) && (classes[text[i]] == letter || classes[text[i]] == digit && text[i] != '-'); i++ {
	}
	return i
}

// plainString returns the end of a string from behind its quote, zero where it is
// not a plain one.
func plainString(text []byte, i int) int {
	start := i
	for ; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			if i == start && i+1 < len(text) && text[i+1] == '"' {
				return 0 // a block string
			}
			return i
		case c == '\\' || c < ' ' || c >= 0x7f:
			return 0
		}
	}
	return 0
}

// numeral returns the end and the kind of the number that begins at i; the end
// is zero where there is no good one.
func numeral(text []byte, i int) (int, ast.ValueKind) {
	kind := ast.IntValue
	digits := func() bool {
		from := i
		for i < len(text) && text[i] >= '0' && text[i] <= '9' {
			i++
		}
		return i > from
	}
	at := func() byte {
		if i < len(text) {
			return text[i]
		}
		return 0
	}
	if at() == '-' {
		i++
	}
	if at() == '0' {
		i++
	} else if !digits() {
		return 0, 0
	}
	if at() == '.' {
		i++
		if kind = ast.FloatValue; !digits() {
			return 0, 0
		}
	}
	if c := at(); c == 'e' || c == 'E' {
		i++
		if c := at(); c == '+' || c == '-' {
			i++
		}
		if kind = ast.FloatValue; !digits() {
			return 0, 0
		}
	}
	if c := classes[at()]; c == letter || c == digit || at() == '.' {
		return 0, 0
	}
	return i, kind
}

// A lifted literal is what a plan knows of one of its holes.
type lifted struct {
	typ          *ast.Type
	line, column int
	length       int
	value        any // in the document that the plan was made of
}

// lift takes the literals of a document that passed all checks out of its tree:
// variables of the one operation stand there then. It reports false, and leaves
// the tree as it was, where the document cannot be known by its shape.
func (c *Cache) lift(tree *ast.QueryDocument, holes []hole) []lifted {
	if len(holes) == 0 || len(tree.Operations) != 1 {
		return nil
	}
	l := lifting{s: c.schema, at: make(map[int]int, len(holes)), all: make([]lifted, len(holes)), nodes: make([]*ast.Value, len(holes)), holes: holes}
	for i, h := range holes {
		start := h.start
		if h.kind == ast.StringValue {
			start-- // the quote is the token's
		}
		l.at[start] = i
	}
	for sel := range selections(tree, tree.Operations...) {
		if f, ok := sel.(*ast.Field); ok {
			for _, arg := range f.Arguments {
				l.value(f.Definition.Arguments.ForName(arg.Name).Type, arg.Value)
			}
		}
	}
	for _, v := range l.nodes {
		if v == nil {
			return nil
		}
	}
	for i, v := range l.nodes {
		v.Kind, v.Raw, v.Children = ast.Variable, holeName(i), nil
	}
	return l.all
}

// holeName is the name of a hole's variable, which no document can use.
func holeName(i int) string { return "\x00" + string(rune('0'+i)) }

// lifting finds the literals of holes in a tree.
type lifting struct {
	s     *Schema
	at    map[int]int // hole by the start of its token
	holes []hole
	nodes []*ast.Value
	all   []lifted
}

func (l *lifting) value(t *ast.Type, v *ast.Value) {
	switch v.Kind {
	case ast.IntValue, ast.FloatValue, ast.StringValue:
		i, known := l.at[v.Position.Start]
		if !known || l.holes[i].kind != v.Kind || l.holes[i].end-l.holes[i].start != len(v.Raw) {
			return
		}
		value, ok := l.s.coerce(t, v.Kind, strings.Clone(v.Raw))
		if !ok {
			return
		}
		l.nodes[i] = v
		l.all[i] = lifted{typ: t, line: v.Position.Line, column: v.Position.Column, length: len(v.Raw), value: value}
	case ast.ListValue:
		if t.Elem != nil {
			t = t.Elem
		}
		for _, child := range v.Children {
			l.value(t, child.Value)
		}
	case ast.ObjectValue:
		for t.Elem != nil {
			t = t.Elem
		}
		def := l.s.types.Types[t.NamedType]
		for _, child := range v.Children {
			if f := def.Fields.ForName(child.Name); f != nil {
				l.value(f.Type, child.Value)
			}
		}
	}
}

// coerce is what a literal is in the place of a type; not ok is left to
// [Schema.fromLiteral] to explain.
func (s *Schema) coerce(t *ast.Type, kind ast.ValueKind, raw string) (any, bool) {
	if t.Elem != nil {
		item, ok := s.coerce(t.Elem, kind, raw)
		return []any{item}, ok
	}
	if s.types.Types[t.NamedType].Kind != ast.Scalar {
		return nil, false
	}
	return scalarText(t.NamedType, kind, raw)
}
