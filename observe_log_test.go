package chaingql_test

import (
	"bytes"
	"context"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// A lineRecorder is a slog.Handler that records the message, the level and the attributes of each line.
type lineRecorder struct {
	mu    sync.Mutex
	lines []logLine
}

type logLine struct {
	message, level string
	keys           []string
	types          map[string]string // JSON types by key
}

func (l *lineRecorder) Enabled(context.Context, slog.Level) bool { return true }

func (l *lineRecorder) Handle(_ context.Context, r slog.Record) error {
	line := logLine{message: r.Message, level: r.Level.String(), types: map[string]string{}}
	var text bytes.Buffer
	if err := slog.NewJSONHandler(&text, nil).Handle(context.Background(), r); err != nil {
		return err
	}
	var values map[string]any
	if err := json.Unmarshal(text.Bytes(), &values); err != nil {
		return err
	}
	r.Attrs(func(a slog.Attr) bool {
		if !a.Equal(slog.Attr{}) { // handlers omit empty attributes
			line.keys = append(line.keys, a.Key)
			line.types[a.Key] = jsonTypes[reflect.TypeOf(values[a.Key])]
		}
		return true
	})
	if strings.HasPrefix(line.message, panicIn) {
		line.message = panicIn + "…"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	return nil
}

var jsonTypes = map[reflect.Type]string{
	reflect.TypeFor[string](): "string", reflect.TypeFor[float64](): "number", reflect.TypeFor[bool](): "boolean",
}

func (l *lineRecorder) WithAttrs([]slog.Attr) slog.Handler { panic("WithAttrs is not used") }
func (l *lineRecorder) WithGroup(string) slog.Handler      { panic("WithGroup is not used") }

const panicIn = "gqlws: internal error because of a panic in "

// A documentedLine contains the levels and attributes of a message according to the documentation.
type documentedLine struct {
	levels           []string
	always, optional []string
}

// documentedLines reads the table in docs/observability.md.
func documentedLines(t *testing.T) map[string]documentedLine {
	t.Helper()
	text, err := os.ReadFile("docs/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]documentedLine{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if !strings.HasPrefix(line, "| `") || len(cells) != 4 {
			continue
		}
		p := documentedLine{levels: strings.Split(cells[1], ", ")}
		for _, name := range strings.Fields(cells[2]) {
			if key, optional := strings.CutPrefix(name, "["); optional {
				p.optional = append(p.optional, strings.Trim(key, "`]"))
			} else {
				p.always = append(p.always, strings.Trim(key, "`"))
			}
		}
		all[strings.Trim(cells[0], "| `")] = p
	}
	return all
}

// documentedTypes reads the table of attributes in docs/observability.md.
func documentedTypes(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("docs/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(line, "| \n"), " |")
		if !strings.HasPrefix(line, "| `") || strings.Count(line, " | ") != 2 {
			continue
		}
		for _, key := range strings.Fields(cells[0]) {
			all[strings.Trim(key, "`")] = strings.TrimSpace(cells[1])
		}
	}
	return all
}

func TestLogLinesMatchTheDocumentation(t *testing.T) {
	types := documentedTypes(t)
	for message, p := range documentedLines(t) {
		drive := lineDrivers[message]
		if drive == nil {
			t.Errorf("lineDrivers lacks the message %q", message)
			continue
		}
		t.Run(message, func(t *testing.T) {
			var l lineRecorder
			synctest.Test(t, func(t *testing.T) { drive(t, slog.New(&l)) })
			l.mu.Lock()
			defer l.mu.Unlock()
			var levels, seen []string
			for _, line := range l.lines {
				if line.message != message {
					continue
				}
				levels = append(levels, line.level)
				seen = append(seen, line.keys...)
				for key, got := range line.types {
					if got != types[key] || got == "" {
						t.Errorf("the attribute %s has the JSON type %q, want %q", key, got, types[key])
					}
				}
				for _, key := range p.always {
					if !slices.Contains(line.keys, key) {
						t.Errorf("a line has the attributes %v, but lacks %s", line.keys, key)
					}
				}
			}
			for what, of := range map[string][2][]string{
				"levels":     {levels, p.levels},
				"attributes": {seen, slices.Concat(p.always, p.optional)},
			} {
				got, want := of[0], slices.Clone(of[1])
				slices.Sort(got)
				slices.Sort(want)
				if got = slices.Compact(got); !slices.Equal(got, want) {
					t.Errorf("the %s are %v, want %v", what, got, want)
				}
			}
		})
	}
}

// The table in docs/observability.md must have the same messages as the source files.
func TestLogLinesAreDocumented(t *testing.T) {
	known, written := documentedLines(t), map[string]bool{}
	for _, files := range goFiles(t) {
		for _, file := range files {
			other := strings.HasPrefix(file, "soak") || strings.HasPrefix(file, "chaos")
			if other || strings.HasSuffix(file, "_test.go") || strings.HasPrefix(file, "examples") {
				continue
			}
			tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(tree, func(n ast.Node) bool {
				if message, ok := messageOf(n); ok {
					written[message] = true
					if _, ok := known[message]; !ok {
						t.Errorf("%s logs %q, which docs/observability.md lacks", file, message)
					}
				}
				return true
			})
		}
	}
	for message := range known {
		if !written[message] {
			t.Errorf("docs/observability.md has %q, which is never logged", message)
		}
	}
}

// messageAt maps the name of a log function to the index of its message argument.
var messageAt = map[string]int{
	"Debug": 0, "Info": 0, "Warn": 0, "Error": 0,
	"DebugContext": 1, "InfoContext": 1, "WarnContext": 1, "ErrorContext": 1,
	"Log": 2, "LogAttrs": 2, "logLine": 1, "logPanic": 0, "Add": 2, "Report": 1,
}

// messageOf returns the message of a log call if it is a literal.
func messageOf(n ast.Node) (string, bool) {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return "", false
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", false
	}
	at, ok := messageAt[f.Sel.Name]
	if !ok || at >= len(call.Args) {
		return "", false
	}
	arg, tail := call.Args[at], ""
	if sum, ok := arg.(*ast.BinaryExpr); ok {
		arg, tail = sum.X, "…"
	}
	text, ok := arg.(*ast.BasicLit)
	if !ok || text.Kind != token.STRING {
		return "", false
	}
	message, err := strconv.Unquote(text.Value)
	return message + tail, err == nil
}
