package plan

import (
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// string reads a string, which ends on the line on which it starts.
func (l *lexer) string() token {
	t := token{kind: tokenString, start: l.pos, at: l.at(l.pos)}
	l.pos++
	chunk := l.pos // start of the text that is not in unescaped
	var unescaped []byte
	for l.pos < len(l.text) {
		switch l.text[l.pos] {
		case '"':
			t.value = l.text[chunk:l.pos]
			if unescaped != nil {
				t.value = string(append(unescaped, t.value...))
			}
			l.pos++
			t.end = l.pos
			return t
		case '\\':
			unescaped = append(unescaped, l.text[chunk:l.pos]...)
			r, size := l.escape()
			unescaped = utf8.AppendRune(unescaped, r)
			l.pos += size
			chunk = l.pos
		case '\n', '\r':
			l.failAt(l.pos, "Unterminated string.")
		default:
			l.skipRune()
		}
	}
	l.failAt(l.pos, "Unterminated string.")
	return t
}

// simpleEscapes maps the character after a backslash to the escaped character.
var simpleEscapes = map[byte]rune{
	'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t',
}

// escape returns the character that the escape sequence at l.pos stands for, and the length of the sequence.
func (l *lexer) escape() (r rune, size int) {
	switch c := l.byteAt(l.pos + 1); {
	case c == 'u' && l.byteAt(l.pos+2) == '{':
		return l.bracedEscape()
	case c == 'u':
		r := l.hex(l.pos+2, 4)
		if !utf16.IsSurrogate(r) && r >= 0 {
			return r, 6
		}
		if r >= 0 && strings.HasPrefix(l.text[l.pos+6:], `\u`) {
			if r = utf16.DecodeRune(r, l.hex(l.pos+8, 4)); r != utf8.RuneError {
				return r, 12
			}
		}
		l.failEscape("Invalid Unicode escape sequence", 6)
	default:
		if r, ok := simpleEscapes[c]; ok {
			return r, 2
		}
		l.failEscape("Invalid character escape sequence", 2)
	}
	return 0, 0
}

// bracedEscape reads a code point in braces, which has at most eight digits.
func (l *lexer) bracedEscape() (rune, int) {
	const start = len(`\u{`)
	size, point := start, rune(0)
	for size < start+9 && point >= 0 {
		c := l.byteAt(l.pos + size)
		size++
		if c == '}' {
			if size > start+1 && utf8.ValidRune(point) {
				return point, size
			}
			break
		}
		if digit := l.hex(l.pos+size-1, 1); digit < 0 {
			break
		} else {
			point = point<<4 | digit // eight digits may make it negative
		}
	}
	l.failEscape("Invalid Unicode escape sequence", size)
	return 0, 0
}

// hex returns the value of n hexadecimal digits at a position, or -1 if they are not digits.
func (l *lexer) hex(pos, n int) rune {
	if pos+n > len(l.text) {
		return -1
	}
	for i := range n {
		if c := l.text[pos+i] | 0x20; !isDigit(l.text[pos+i]) && (c < 'a' || c > 'f') {
			return -1
		}
	}
	v, _ := strconv.ParseUint(l.text[pos:pos+n], 16, 32)
	return rune(v)
}

// failEscape reports an invalid escape sequence of up to n UTF-16 code units at l.pos.
func (l *lexer) failEscape(message string, n int) {
	end := l.pos
	for _, r := range l.text[l.pos:] {
		if n -= utf16.RuneLen(r); n < 0 {
			break
		}
		end += utf8.RuneLen(r)
	}
	l.failAt(l.pos, `%s: "%s".`, message, l.text[l.pos:end])
}

// blockString reads a block string and computes its value.
func (l *lexer) blockString() token {
	t := token{kind: tokenBlock, start: l.pos, at: l.at(l.pos)}
	l.pos += 3
	var lines []string
	var line []byte // the current line up to chunk
	chunk := l.pos
	for l.pos < len(l.text) {
		switch c := l.text[l.pos]; {
		case c == '"' && strings.HasPrefix(l.text[l.pos:], `"""`):
			lines = append(lines, string(append(line, l.text[chunk:l.pos]...)))
			l.pos += 3
			t.end, t.value = l.pos, dedent(lines)
			return t
		case c == '\\' && strings.HasPrefix(l.text[l.pos:], `\"""`):
			line = append(line, l.text[chunk:l.pos]...)
			chunk = l.pos + 1
			l.pos += 4
		case c == '\n' || c == '\r':
			lines = append(lines, string(append(line, l.text[chunk:l.pos]...)))
			l.skipLineEnd()
			line, chunk = line[:0], l.pos
		default:
			l.skipRune()
		}
	}
	l.failAt(l.pos, "Unterminated string.")
	return t
}

// dedent joins the lines of a block string. It removes the common indentation of all lines except the first, and
// blank lines at both ends.
func dedent(lines []string) string {
	const space = " \t"
	common := -1
	for _, line := range lines[1:] {
		if rest := strings.TrimLeft(line, space); rest != "" && (common < 0 || len(line)-len(rest) < common) {
			common = len(line) - len(rest)
		}
	}
	first, end := -1, 0
	for i, line := range lines {
		if i > 0 && common > 0 {
			lines[i] = line[min(common, len(line)):]
		}
		if strings.Trim(line, space) != "" {
			if end = i + 1; first < 0 {
				first = i
			}
		}
	}
	return strings.Join(lines[max(first, 0):end], "\n")
}
