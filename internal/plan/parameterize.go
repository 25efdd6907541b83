package plan

import (
	"strings"

	"github.com/vektah/gqlparser/v2/ast"
)

// A parameterizer computes the fingerprint of a document: its text with a placeholder for each literal in a field's
// arguments. Clients that write an address or a number into their documents send a different text each time. All
// documents with the same fingerprint share one plan, which takes the literals as parameters, like variables.
//
// A document with an unusual character or literal (non-ASCII text, block strings, escapes) has no fingerprint and
// is cached only by its text.
type parameterizer struct {
	fingerprint  []byte // each placeholder in it is one byte, the kind of the literal
	placeholders []placeholder
}

// A placeholder is the position of a literal in the text of a document.
type placeholder struct {
	start, end int // for a string, without its quotes
	kind       ast.ValueKind
}

// maxPlaceholders is the maximum number of placeholders in a document. It limits the memory of a plan's parameters
// and the time to bind them.
const maxPlaceholders = 64

// These are the classes of bytes. A text that contains a byte without a class has no fingerprint.
const (
	classPlain   = iota + 1 // white space and most punctuation
	classLetter             // a letter or an underscore
	classDigit              // a digit or a minus
	classSpecial            // a byte that parameterize has to look at
)

var byteClasses = func() (t [256]byte) {
	for _, c := range []byte(" \t\r\n,!&.:=[]|") {
		t[c] = classPlain
	}
	for c := 'a'; c <= 'z'; c++ {
		t[c], t[c-'a'+'A'] = classLetter, classLetter
	}
	t['_'] = classLetter
	for c := '0'; c <= '9'; c++ {
		t[c] = classDigit
	}
	t['-'] = classDigit
	for _, c := range []byte("#\"(){}@$") {
		t[c] = classSpecial
	}
	return t
}()

// parameterize computes the fingerprint and the placeholders of a text. It reports false if the text has no
// fingerprint. The fingerprint is only meaningful if text is a valid document or a valid document has the same
// fingerprint.
func (s *parameterizer) parameterize(text []byte) bool {
	s.fingerprint, s.placeholders = s.fingerprint[:0], s.placeholders[:0]
	depth, from := 0, 0 // number of open selection sets; start of the text that is not in the fingerprint yet
	arguments, directive := false, false
	for i := 0; i < len(text); {
		switch byteClasses[text[i]] {
		case classPlain:
			i++
		case classLetter:
			i = scanName(text, i)
		case classDigit:
			end, kind := scanNumber(text, i)
			if end == 0 {
				return false
			}
			if arguments && !directive && depth > 0 {
				s.addPlaceholder(text[from:i], placeholder{i, end, kind})
				from = end
			}
			i = end
		case classSpecial:
			switch c := text[i]; c {
			case '#':
				for ; i < len(text) && text[i] != '\n' && text[i] != '\r'; i++ {
					if text[i] >= 0x7f || text[i] < ' ' && text[i] != '\t' {
						return false
					}
				}
				continue
			case '"':
				end := scanString(text, i+1)
				if end == 0 {
					return false
				}
				if arguments && !directive && depth > 0 {
					s.addPlaceholder(text[from:i], placeholder{i + 1, end, ast.StringValue})
					from = end + 1
				}
				i = end
			case '(':
				arguments = true
			case ')':
				arguments, directive = false, false
			case '@':
				directive = true // until the next ')' or brace; this may be too late, but is harmless
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
	s.fingerprint = append(s.fingerprint, text[from:]...)
	return len(s.placeholders) > 0 && len(s.placeholders) <= maxPlaceholders
}

func (s *parameterizer) addPlaceholder(before []byte, h placeholder) {
	s.fingerprint = append(append(s.fingerprint, before...), byte(h.kind))
	s.placeholders = append(s.placeholders, h)
}

// scanName returns the end of the name that starts at i.
func scanName(text []byte, i int) int {
	for i++; i < len(text) && text[i] != '-'; i++ {
		if c := byteClasses[text[i]]; c != classLetter && c != classDigit {
			break
		}
	}
	return i
}

// scanString returns the end of the string whose first character is at i. It returns 0 for a block string and for a
// string with an escape or an unusual character.
func scanString(text []byte, i int) int {
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

// scanNumber returns the end and the kind of the number that starts at i. If the number is malformed, the end is 0.
func scanNumber(text []byte, i int) (int, ast.ValueKind) {
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
	if c := byteClasses[at()]; c == classLetter || c == classDigit || at() == '.' {
		return 0, 0
	}
	return i, kind
}

// A parameter is an additional variable of a compiled document, which stands for the literal at a placeholder.
type parameter struct {
	typ          *ast.Type
	line, column int // position of the literal in the text that was compiled
	length       int // length of this literal
	value        any // value of this literal
}

// replaceLiterals replaces the literals at the placeholders with variables in the tree of a valid document, and
// returns the parameters for these variables. If a literal cannot be a parameter, replaceLiterals returns nil and
// leaves the tree unchanged.
func (c *Cache) replaceLiterals(tree *ast.QueryDocument, placeholders []placeholder) []parameter {
	if len(placeholders) == 0 || len(tree.Operations) != 1 {
		return nil
	}
	n := len(placeholders)
	l := literalFinder{s: c.schema, index: make(map[int]int, n), placeholders: placeholders,
		literals: make([]*ast.Value, n), parameters: make([]parameter, n)}
	for i, p := range placeholders {
		start := p.start
		if p.kind == ast.StringValue {
			start-- // the token begins with the quote
		}
		l.index[start] = i
	}
	for sel := range selections(tree, tree.Operations...) {
		if f, ok := sel.(*ast.Field); ok {
			for _, arg := range f.Arguments {
				l.find(f.Definition.Arguments.ForName(arg.Name).Type, arg.Value)
			}
		}
	}
	for _, v := range l.literals {
		if v == nil {
			return nil
		}
	}
	for i, v := range l.literals {
		v.Kind, v.Raw, v.Children = ast.Variable, parameterName(i), nil
	}
	return l.parameters
}

// parameterName returns the name of a parameter's variable. No document can contain this name.
func parameterName(i int) string { return "\x00" + string(rune('0'+i)) }

// A literalFinder finds, in a syntax tree, the literals that placeholders stand for.
type literalFinder struct {
	s            *Schema
	index        map[int]int // index of a placeholder by the start of its token
	placeholders []placeholder
	literals     []*ast.Value
	parameters   []parameter
}

func (l *literalFinder) find(t *ast.Type, v *ast.Value) {
	switch v.Kind {
	case ast.IntValue, ast.FloatValue, ast.StringValue:
		i, known := l.index[v.Position.Start]
		if !known || l.placeholders[i].kind != v.Kind || l.placeholders[i].end-l.placeholders[i].start != len(v.Raw) {
			return
		}
		value, ok := l.s.coerceText(t, v.Kind, strings.Clone(v.Raw))
		if !ok {
			return
		}
		l.literals[i] = v
		l.parameters[i] = parameter{
			typ: t, line: v.Position.Line, column: v.Position.Column, length: len(v.Raw), value: value}
	case ast.ListValue:
		if t.Elem != nil {
			t = t.Elem
		}
		for _, child := range v.Children {
			l.find(t, child.Value)
		}
	case ast.ObjectValue:
		for t.Elem != nil {
			t = t.Elem
		}
		def := l.s.types.Types[t.NamedType]
		for _, child := range v.Children {
			if f := def.Fields.ForName(child.Name); f != nil {
				l.find(f.Type, child.Value)
			}
		}
	}
}

// coerceText coerces the text of a scalar literal to the type t and reports whether it is valid. If it is invalid,
// [Schema.fromLiteral] returns the error.
func (s *Schema) coerceText(t *ast.Type, kind ast.ValueKind, raw string) (any, bool) {
	if t.Elem != nil {
		item, ok := s.coerceText(t.Elem, kind, raw)
		return []any{item}, ok
	}
	if s.types.Types[t.NamedType].Kind != ast.Scalar {
		return nil, false
	}
	return scalarText(t.NamedType, kind, raw)
}
