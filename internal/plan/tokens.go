package plan

import (
	"errors"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"github.com/vektah/gqlparser/v2/lexer"
)

// A tokenChecker reads the tokens of a text before the parser does. It limits their number, improves error messages
// and finds errors that gqlparser's lexer misses. It also computes the values of block strings, because the lexer
// computes wrong ones.
type tokenChecker struct {
	text        string
	limits      Limits
	substituted bool          // control characters in text are substituted
	runes       []rune        // the characters of text, because positions count characters; nil until needed
	blocks      map[int]block // the block strings by their start

	// lineStart is the beginning of the line on which the last block string starts. The text before searched has
	// already been searched for line ends. So all searches together are linear in the text, for any number of block
	// strings.
	lineStart, searched int
}

// A block has the value and the location of a block string as the specification defines them. gqlparser includes
// the first line in the common indentation, and locates the string at its last line.
type block struct {
	value        string
	line, column int
}

// check reads all tokens and returns the first error.
func (l *tokenChecker) check() *Error {
	lex := lexer.New(&ast.Source{Input: l.text})
	escapes := strings.Contains(l.text, `\u`)
	var last lexer.Token
	for n := 0; ; n++ {
		token, err := lex.ReadToken()
		switch {
		case err != nil:
			return l.parserError(err)
		case token.Kind == lexer.EOF:
			return nil
		case l.limits.Tokens > 0 && n == l.limits.Tokens:
			return limitError("Tokens", &token.Pos, "The document exceeds the limit of %d tokens.", l.limits.Tokens)
		case token.Kind == lexer.Name && (last.Kind == lexer.Int || last.Kind == lexer.Float) &&
			last.Pos.End == token.Pos.Start:
			return syntaxError("Invalid number, expected digit but got a name.", locationsOf(&token.Pos))
		case token.Kind == lexer.String && escapes:
			if l.loneSurrogate(&token.Pos) {
				return syntaxError("Invalid Unicode escape sequence.", locationsOf(&token.Pos))
			}
		case token.Kind == lexer.BlockString:
			if err := l.block(&token.Pos); err != nil {
				return err
			}
		}
		last = token
	}
}

// parserError converts an error of gqlparser's lexer or parser and removes its suggestions. Only the text of the
// error shows that it is about the parser's own limit on nesting. The document then exceeds Limits.Depth, too.
func (l *tokenChecker) parserError(err error) *Error {
	var at *gqlerror.Error
	if !errors.As(err, &at) {
		return syntaxError(err.Error(), nil)
	}
	if strings.HasPrefix(at.Message, "exceeded maximum nesting depth") {
		return depthError(nil, l.limits.Depth)
	}
	msg, _, _ := strings.Cut(at.Message, ", did you mean")
	if l.substituted && strings.HasPrefix(msg, "Cannot parse the unexpected character") {
		msg = "Cannot contain an invalid character" // the lexer's message names the substitute
	}
	return syntaxError(strings.TrimSuffix(msg, ".")+".", gqlerrorLocations(at))
}

func (l *tokenChecker) runeAt(i int) rune {
	if i < len(l.runes) {
		return l.runes[i]
	}
	return 0
}

// loneSurrogate reports whether a string has an escaped surrogate that is not part of a pair. gqlparser's lexer
// reads such a surrogate as U+FFFD.
func (l *tokenChecker) loneSurrogate(pos *ast.Position) bool {
	l.decodeRunes()
	for i := pos.Start; i < pos.End; i++ {
		if l.runeAt(i) != '\\' {
			continue
		}
		i++
		r, ok := l.escaped(i)
		if !ok || !utf16.IsSurrogate(r) {
			continue
		}
		low, ok := l.escaped(i + 6)
		if !ok || l.runeAt(i+5) != '\\' || utf16.DecodeRune(r, low) == '\uFFFD' {
			return true
		}
		i += 10
	}
	return false
}

// escaped reads the escape \uXXXX whose u is at i and reports whether it is valid.
func (l *tokenChecker) escaped(i int) (rune, bool) {
	if l.runeAt(i) != 'u' || i+5 > len(l.runes) {
		return 0, false
	}
	n, err := strconv.ParseUint(string(l.runes[i+1:i+5]), 16, 16)
	return rune(n), err == nil
}

func (l *tokenChecker) decodeRunes() {
	if l.runes == nil {
		l.runes = []rune(l.text)
	}
}

// block stores the value and the location of a block string.
func (l *tokenChecker) block(pos *ast.Position) *Error {
	l.decodeRunes()
	var raw strings.Builder
	quotes := func(i int) bool { return l.runeAt(i) == '"' && l.runeAt(i+1) == '"' && l.runeAt(i+2) == '"' }
	i := pos.Start + 3
	for ; i < len(l.runes) && !quotes(i); i++ {
		switch {
		case l.runeAt(i) == '\\' && quotes(i+1):
			raw.WriteString(`"""`)
			i += 3
		case l.runeAt(i) == '\r':
			raw.WriteByte('\n')
			if l.runeAt(i+1) == '\n' {
				i++
			}
		default:
			raw.WriteRune(l.runeAt(i))
		}
	}
	lines := strings.Split(raw.String(), "\n")
	for ; l.searched < pos.Start; l.searched++ {
		if r := l.runeAt(l.searched); r == '\n' || r == '\r' {
			l.lineStart = l.searched + 1
		}
	}
	b := block{value: dedent(lines), line: pos.Line - len(lines) + 1, column: pos.Start - l.lineStart + 1}
	if l.runeAt(i+3) == '"' { // the lexer includes a fourth quote in the string
		return syntaxError("Unterminated string.", []Location{{b.line, b.column}})
	}
	if l.blocks == nil {
		l.blocks = map[int]block{}
	}
	l.blocks[pos.Start] = b
	return nil
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
