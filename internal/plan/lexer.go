package plan

import (
	"fmt"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// A tokenKind is the name of a kind of token in error messages. The kind of a punctuator is its text.
type tokenKind string

// These are the kinds of tokens that are not punctuators.
const (
	tokenEOF    tokenKind = "<EOF>"
	tokenName   tokenKind = "Name"
	tokenInt    tokenKind = "Int"
	tokenFloat  tokenKind = "Float"
	tokenString tokenKind = "String"
	tokenBlock  tokenKind = "BlockString"
)

// A token is a lexical token. Start and end are byte offsets in the text.
type token struct {
	kind       tokenKind
	value      string // the text of a name or number, or the value of a string
	start, end int
	at         Location
}

// String describes the kind in error messages.
func (k tokenKind) String() string {
	switch k {
	case tokenEOF, tokenName, tokenInt, tokenFloat, tokenString, tokenBlock:
		return string(k)
	}
	return `"` + string(k) + `"`
}

// String describes the token in error messages.
func (t token) String() string {
	text := t.kind.String()
	if t.value != "" || t.kind == tokenString || t.kind == tokenBlock {
		text += ` "` + t.value + `"`
	}
	return text
}

// A lexer splits a text in UTF-8 into tokens as the specification of September 2025 defines them. Its errors are those
// of graphql-js 17, without suggestions. It reads each character a constant number of times.
type lexer struct {
	text string
	pos  int // start of the text that has not been read
	line int // number of lines before pos

	comments int // number of comments before pos

	// lineStart is the position at which the line would start if each of its characters before pos took as many bytes
	// as it has UTF-16 code units, which is the unit of columns.
	lineStart int
}

// at returns the location of the character at pos. All characters before it must have been read.
func (l *lexer) at(pos int) Location { return Location{l.line + 1, pos - l.lineStart + 1} }

// byteAt returns the byte at a position, or 0 after the end.
func (l *lexer) byteAt(pos int) byte {
	if pos < len(l.text) {
		return l.text[pos]
	}
	return 0
}

// failAt panics with a syntax error at pos. The parser recovers it.
func (l *lexer) failAt(pos int, format string, args ...any) {
	panic(syntaxError(fmt.Sprintf(format, args...), []Location{l.at(pos)}))
}

// skipRune reads one character that is not a line end.
func (l *lexer) skipRune() {
	if l.text[l.pos] < utf8.RuneSelf {
		l.pos++
		return
	}
	r, size := utf8.DecodeRuneInString(l.text[l.pos:])
	l.pos += size
	l.lineStart += size - utf16.RuneLen(r)
}

// skipLineEnd reads a line end: LF, CR or CR LF.
func (l *lexer) skipLineEnd() {
	if l.pos++; l.text[l.pos-1] == '\r' && l.byteAt(l.pos) == '\n' {
		l.pos++
	}
	l.line++
	l.lineStart = l.pos
}

// next reads the next token.
func (l *lexer) next() token {
	for l.pos < len(l.text) {
		switch c := l.text[l.pos]; c {
		case ' ', '\t', ',':
			l.pos++
		case '\n', '\r':
			l.skipLineEnd()
		case '#':
			l.comments++
			for l.pos < len(l.text) && l.text[l.pos] != '\n' && l.text[l.pos] != '\r' {
				l.skipRune()
			}
		case '!', '$', '&', '(', ')', ':', '=', '@', '[', ']', '{', '|', '}':
			l.pos++
			return l.token(tokenKind(l.text[l.pos-1:l.pos]), l.pos-1)
		case '.':
			l.dots()
			return l.token("...", l.pos-3)
		case '"':
			if strings.HasPrefix(l.text[l.pos:], `"""`) {
				return l.blockString()
			}
			return l.string()
		default:
			switch {
			case isDigit(c) || c == '-':
				return l.number()
			case isNameStart(c):
				start := l.pos
				for l.pos++; isNameStart(l.byteAt(l.pos)) || isDigit(l.byteAt(l.pos)); {
					l.pos++
				}
				return l.token(tokenName, start)
			case strings.HasPrefix(l.text[l.pos:], "\ufeff"):
				l.skipRune()
			case c == '\'':
				l.failAt(l.pos, "Unexpected single quote character (').")
			default:
				l.failAt(l.pos, "Unexpected character: %s.", l.describe(l.pos))
			}
		}
	}
	return l.token(tokenEOF, l.pos)
}

// token returns the token that starts at start and ends at l.pos, on the current line.
func (l *lexer) token(kind tokenKind, start int) token {
	t := token{kind: kind, start: start, end: l.pos, at: l.at(start)}
	switch kind {
	case tokenName, tokenInt, tokenFloat:
		t.value = l.text[start:l.pos]
	}
	return t
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isNameStart(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' }

// describe returns the character at a position for an error message.
func (l *lexer) describe(pos int) string {
	if pos >= len(l.text) {
		return string(tokenEOF)
	}
	r, _ := utf8.DecodeRuneInString(l.text[pos:])
	switch {
	case r == '"':
		return `'"'`
	case ' ' <= r && r <= '~':
		return `"` + string(r) + `"`
	}
	return fmt.Sprintf("U+%04X", r)
}

// dots reads a spread: three dots.
func (l *lexer) dots() {
	switch rest := l.text[l.pos:]; {
	case strings.HasPrefix(rest, "..."):
		l.pos += 3
	case strings.HasPrefix(rest, ".."):
		l.failAt(l.pos, `Unexpected "..".`)
	case isDigit(l.byteAt(l.pos + 1)):
		l.failAt(l.pos, `Invalid number, expected digit before ".".`)
	default:
		l.failAt(l.pos, "Unexpected character: %s.", l.describe(l.pos))
	}
}

func (l *lexer) number() token {
	start, pos, kind := l.pos, l.pos, tokenInt
	if l.text[pos] == '-' {
		pos++
	}
	if l.byteAt(pos) != '0' {
		pos = l.digits(pos)
	} else if pos++; isDigit(l.byteAt(pos)) {
		l.failAt(pos, "Invalid number, unexpected digit after 0: %s.", l.describe(pos))
	}
	if l.byteAt(pos) == '.' {
		kind, pos = tokenFloat, l.digits(pos+1)
	}
	if c := l.byteAt(pos); c == 'e' || c == 'E' {
		pos++
		if c := l.byteAt(pos); c == '+' || c == '-' {
			pos++
		}
		kind, pos = tokenFloat, l.digits(pos)
	}
	if c := l.byteAt(pos); c == '.' || isNameStart(c) {
		l.failAt(pos, "Invalid number, expected digit but got: %s.", l.describe(pos))
	}
	l.pos = pos
	return l.token(kind, start)
}

// digits returns the end of the digits that start at a position. There must be at least one.
func (l *lexer) digits(pos int) int {
	if !isDigit(l.byteAt(pos)) {
		l.failAt(pos, "Invalid number, expected digit but got: %s.", l.describe(pos))
	}
	for isDigit(l.byteAt(pos)) {
		pos++
	}
	return pos
}
