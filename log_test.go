package chaingql_test

import (
	"context"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// A ledger is a slog.Handler that keeps what lines are made of.
type ledger struct {
	mu    sync.Mutex
	lines []ledgerLine
}

type ledgerLine struct {
	message, level string
	keys           []string
}

func (l *ledger) Enabled(context.Context, slog.Level) bool { return true }

func (l *ledger) Handle(_ context.Context, r slog.Record) error {
	line := ledgerLine{message: r.Message, level: r.Level.String()}
	r.Attrs(func(a slog.Attr) bool {
		if !a.Equal(slog.Attr{}) { // which handlers leave out
			line.keys = append(line.keys, a.Key)
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

func (l *ledger) WithAttrs([]slog.Attr) slog.Handler { panic("no line has attributes of others") }
func (l *ledger) WithGroup(string) slog.Handler      { panic("no line is in a group") }

const panicIn = "gqlws: panic in "

// A promise is what the documentation says of a line.
type promise struct {
	levels           []string
	always, at_times []string
}

// promises reads the table in docs/observability.md.
func promises(t *testing.T) map[string]promise {
	t.Helper()
	text, err := os.ReadFile("docs/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]promise{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		if !strings.HasPrefix(line, "| `") || len(cells) != 4 {
			continue
		}
		p := promise{levels: strings.Split(cells[1], ", ")}
		for _, name := range strings.Fields(cells[2]) {
			if key, optional := strings.CutPrefix(name, "["); optional {
				p.at_times = append(p.at_times, strings.Trim(key, "`]"))
			} else {
				p.always = append(p.always, strings.Trim(key, "`"))
			}
		}
		all[strings.Trim(cells[0], "| `")] = p
	}
	return all
}

func TestEachLineOfTheLogIsAsDocumented(t *testing.T) {
	for message, p := range promises(t) {
		drive := lineDrivers[message]
		if drive == nil {
			t.Errorf("nothing makes the line %q", message)
			continue
		}
		t.Run(message, func(t *testing.T) {
			var l ledger
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
				for _, key := range p.always {
					if !slices.Contains(line.keys, key) {
						t.Errorf("a line has %v, without %s", line.keys, key)
					}
				}
			}
			for what, of := range map[string][2][]string{"levels": {levels, p.levels}, "attributes": {seen, slices.Concat(p.always, p.at_times)}} {
				got, want := of[0], slices.Clone(of[1])
				slices.Sort(got)
				slices.Sort(want)
				if got = slices.Compact(got); !slices.Equal(got, want) {
					t.Errorf("%s %v, want %v", what, got, want)
				}
			}
		})
	}
}

// What the sources write is in the table, and nothing else is.
func TestNoLineOfTheLogIsUndocumented(t *testing.T) {
	known, written := promises(t), map[string]bool{}
	for _, files := range goFiles(t) {
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") || strings.HasPrefix(file, "examples") || strings.HasPrefix(file, "soak") || strings.HasPrefix(file, "chaos") {
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
						t.Errorf("%s writes %q, which docs/observability.md does not have", file, message)
					}
				}
				return true
			})
		}
	}
	for message := range known {
		if !written[message] {
			t.Errorf("docs/observability.md has %q, which nothing writes", message)
		}
	}
}

// messageAt is which argument of a call is the message.
var messageAt = map[string]int{
	"Debug": 0, "Info": 0, "Warn": 0, "Error": 0, "DebugContext": 1, "InfoContext": 1, "WarnContext": 1, "ErrorContext": 1,
	"Log": 2, "LogAttrs": 2, "say": 1, "logPanic": 0,
}

// messageOf is what a call writes into the log, where it is a text.
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
