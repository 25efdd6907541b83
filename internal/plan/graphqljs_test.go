package plan

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The recordings in testdata have the answers of graphql-js 17. `make record` makes them again; it is necessary after a
// change of the tests' schema.

// recorded reads the lines of a recording.
func recorded[T any](t *testing.T, name string) (lines []T) {
	t.Helper()
	f, err := os.Open("testdata/" + name)
	must(t, err)
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	must(t, err)
	scanner := bufio.NewScanner(unzipped)
	for scanner.Buffer(nil, 1<<20); scanner.Scan(); {
		var line T
		must(t, json.Unmarshal(scanner.Bytes(), &line))
		lines = append(lines, line)
	}
	must(t, scanner.Err())
	return lines
}

// A recordedError is an error of graphql-js with its locations as pairs of line and column.
type recordedError struct {
	Message string
	At      [][2]int
}

func (e recordedError) locations() (at []Location) {
	for _, l := range e.At {
		at = append(at, Location{l[0], l[1]})
	}
	return at
}

func TestTokensMatchGraphqlJs(t *testing.T) {
	lines := recorded[struct {
		Text   string
		Tokens [][4]any
		Error  *recordedError
	}](t, "graphql-js-tokens.jsonl.gz")
	for _, want := range lines {
		var wantTokens, got []string
		for _, w := range want.Tokens {
			if w[0] != "Comment" {
				wantTokens = append(wantTokens, fmt.Sprintf("%v %q %v:%v", w[:]...))
			}
		}
		if want.Error != nil {
			message := strings.ReplaceAll(want.Error.Message, "\ufffd", "") // half of a character in UTF-16
			message = suggestion.ReplaceAllString(message, ".")
			wantTokens = append(wantTokens, fmt.Sprintf("%s %v", message, want.Error.locations()))
		}
		tokens, err := tokensOf(want.Text)
		for _, token := range tokens {
			got = append(got, fmt.Sprintf("%s %q %d:%d", string(token.kind), token.value, token.at.Line,
				token.at.Column))
		}
		if err != nil {
			got = append(got, fmt.Sprintf("%s %v", err.Message, err.Locations))
		}
		if !slices.Equal(got, wantTokens) {
			t.Errorf("%q\ngot  %q\nwant %q", want.Text, got, wantTokens)
		}
	}
	t.Logf("%d token streams", len(lines))
}

// tokensOf returns the tokens of a text, up to an error.
func tokensOf(text string) (tokens []token, err *Error) {
	defer recoverSyntaxError(&err)
	l := lexer{text: text}
	for {
		tokens = append(tokens, l.next())
		if tokens[len(tokens)-1].kind == tokenEOF {
			return tokens, nil
		}
	}
}

// The errors must be equal as sets, with these exceptions:
//   - Conflicting fields are only reported if there is no other error, and not for each pair of fields.
//   - Definitions of types are a syntax error. graphql-js parses them.
//   - Of two fragments with one name, spreads refer to the first one, and errors in the other are not reported. In
//     graphql-js, spreads refer to the last one.
//
// Messages have no suggestions. The part that repeats a literal may differ.
func TestErrorsMatchGraphqlJs(t *testing.T) {
	limits := Limits{CacheBytes: 1 << 20}
	c := testCache(t, limits)
	lines := recorded[struct {
		Text   string
		Errors []recordedError
	}](t, "graphql-js-errors.jsonl.gz")
	compared, skipped := 0, 0
	for _, line := range lines {
		var got, want []string
		conflicts := 0
		other := false
		for _, e := range line.Errors {
			switch {
			case strings.HasPrefix(e.Message, "Fields ") && strings.Contains(e.Message, " conflict because "):
				conflicts++
				continue
			case strings.HasSuffix(e.Message, " definition is not executable."),
				strings.HasPrefix(e.Message, "There can be only one fragment named "):
				other = true
			}
			want = append(want, comparedParts(e.Message, e.locations()))
		}
		tree, _, errs := c.parse(line.Text)
		if (errs != nil) != (len(line.Errors) > 0) {
			t.Errorf("%q\ngot  %v\nwant %v", line.Text, errs, line.Errors)
			continue
		}
		if other || len(errs) == maxErrors {
			skipped++
			continue
		}
		for _, e := range errs {
			got = append(got, comparedParts(e.Message, e.Locations))
		}
		if len(want) == 0 && conflicts > 0 {
			if tree != nil || !strings.Contains(got[0], " conflict because ") {
				t.Errorf("%q\ngot  %q\nwant a conflict", line.Text, got)
			}
			continue
		}
		slices.Sort(got)
		slices.Sort(want)
		if got, want = slices.Compact(got), slices.Compact(want); !slices.Equal(got, want) {
			t.Errorf("%q\ngot  %q\nwant %q", line.Text, got, want)
		}
		compared += len(want)
	}
	t.Logf("%d documents, %d equal errors, %d documents without comparison", len(lines), compared, skipped)
}

// suggestion matches the end of a message that has a suggestion.
var suggestion = regexp.MustCompile(`(?s)(, did you mean |\. Did you mean ).*`)

// metaField matches the name of a field that each type has. graphql-js has "<meta>" instead of the type.
var metaField = regexp.MustCompile(`"[^".]+\.__`)

// comparedParts returns the parts of an error that must be equal to those of graphql-js.
func comparedParts(message string, at []Location) string {
	message = suggestion.ReplaceAllString(message, ".")
	message = metaField.ReplaceAllString(message, `"__`)
	for _, repeats := range []string{"found: ", "value: "} {
		if i := strings.Index(message, repeats); i >= 0 && !strings.HasPrefix(message, "Syntax Error") {
			message = message[:i]
		}
	}
	return fmt.Sprint(message, at)
}
