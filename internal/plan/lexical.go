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

// lexical is what a text's tokens are found to be before the parser reads them
// again: it counts them, says better than the parser what is wrong with one,
// and knows what gqlparser's lexer gets wrong.
type lexical struct {
	text   string
	limits Limits
	hidden bool   // the text's control characters are disguised
	runes  []rune // of the text: positions count in them; made when needed
	blocks map[int]block

	// The line of the last block string begins at lineStart. The text before
	// searched has been searched for line ends: each part once, however many block
	// strings there are.
	lineStart, searched int
}

// A block is a block string as the specification reads it. gqlparser counts
// the first line's indentation among the others', and gives the line where the
// string ends as its place.
type block struct {
	value        string
	line, column int
}

func (l *lexical) read() *Error {
	lex := lexer.New(&ast.Source{Input: l.text})
	escapes := strings.Contains(l.text, `\u`)
	var last lexer.Token
	for n := 0; ; n++ {
		token, err := lex.ReadToken()
		switch {
		case err != nil:
			return l.syntaxError(err)
		case token.Kind == lexer.EOF:
			return nil
		case l.limits.Tokens > 0 && n == l.limits.Tokens:
			return limitError("Tokens", &token.Pos, "The document exceeds the limit of %d tokens.", l.limits.Tokens)
		case token.Kind == lexer.Name && (last.Kind == lexer.Int || last.Kind == lexer.Float) && last.Pos.End == token.Pos.Start:
			return &Error{Message: "Syntax Error: Invalid number, expected digit but got a name.", Code: CodeParse, Locations: at(&token.Pos)}
		case token.Kind == lexer.String && escapes:
			if l.loneSurrogate(&token.Pos) {
				return &Error{Message: "Syntax Error: Invalid Unicode escape sequence.", Code: CodeParse, Locations: at(&token.Pos)}
			}
		case token.Kind == lexer.BlockString:
			if err := l.block(&token.Pos); err != nil {
				return err
			}
		}
		last = token
	}
}

// syntaxError is an error of gqlparser's lexer or parser, without advice. The
// parser marks its own limit, of which no document that is within ours comes
// near, by its words alone.
func (l *lexical) syntaxError(err error) *Error {
	var at *gqlerror.Error
	if !errors.As(err, &at) {
		return &Error{Message: "Syntax Error: " + err.Error(), Code: CodeParse}
	}
	if strings.HasPrefix(at.Message, "exceeded maximum nesting depth") {
		return depthError(nil, l.limits.Depth)
	}
	msg, _, _ := strings.Cut(at.Message, ", did you mean")
	if l.hidden && strings.HasPrefix(msg, "Cannot parse the unexpected character") {
		msg = "Cannot contain an invalid character" // which is not the one that the lexer saw
	}
	return &Error{Message: "Syntax Error: " + strings.TrimSuffix(msg, ".") + ".", Code: CodeParse, Locations: locations(at)}
}

func (l *lexical) at(i int) rune {
	if i < len(l.runes) {
		return l.runes[i]
	}
	return 0
}

// loneSurrogate finds an escaped surrogate that is not half of a pair in a
// string: the lexer makes a replacement character of it.
func (l *lexical) loneSurrogate(pos *ast.Position) bool {
	l.need()
	for i := pos.Start; i < pos.End; i++ {
		if l.at(i) != '\\' {
			continue
		}
		i++
		r, ok := l.escaped(i)
		if !ok || !utf16.IsSurrogate(r) {
			continue
		}
		low, ok := l.escaped(i + 6)
		if !ok || l.at(i+5) != '\\' || utf16.DecodeRune(r, low) == '\uFFFD' {
			return true
		}
		i += 10
	}
	return false
}

// escaped reads a \uXXXX escape from behind its backslash.
func (l *lexical) escaped(i int) (rune, bool) {
	if l.at(i) != 'u' || i+5 > len(l.runes) {
		return 0, false
	}
	n, err := strconv.ParseUint(string(l.runes[i+1:i+5]), 16, 16)
	return rune(n), err == nil
}

func (l *lexical) need() {
	if l.runes == nil {
		l.runes = []rune(l.text)
	}
}

// block reads a block string again.
func (l *lexical) block(pos *ast.Position) *Error {
	l.need()
	var raw strings.Builder
	quotes := func(i int) bool { return l.at(i) == '"' && l.at(i+1) == '"' && l.at(i+2) == '"' }
	i := pos.Start + 3
	for ; i < len(l.runes) && !quotes(i); i++ {
		switch {
		case l.at(i) == '\\' && quotes(i+1):
			raw.WriteString(`"""`)
			i += 3
		case l.at(i) == '\r':
			raw.WriteByte('\n')
			if l.at(i+1) == '\n' {
				i++
			}
		default:
			raw.WriteRune(l.at(i))
		}
	}
	lines := strings.Split(raw.String(), "\n")
	for ; l.searched < pos.Start; l.searched++ {
		if r := l.at(l.searched); r == '\n' || r == '\r' {
			l.lineStart = l.searched + 1
		}
	}
	b := block{value: dedent(lines), line: pos.Line - len(lines) + 1, column: pos.Start - l.lineStart + 1}
	if l.at(i+3) == '"' { // the lexer takes it into the string
		return &Error{Message: "Syntax Error: Unterminated string.", Code: CodeParse, Locations: []Location{{b.line, b.column}}}
	}
	if l.blocks == nil {
		l.blocks = map[int]block{}
	}
	l.blocks[pos.Start] = b
	return nil
}

// dedent takes what indents every line but the first from all of them, and the
// blank lines from both ends.
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
