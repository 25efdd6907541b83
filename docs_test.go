package chaingql_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/chaingql/chaingql"
)

// A fence is a fenced code block in a document.
type fence struct {
	at       string // file and line
	language string
	source   string // the file that the comment above it names: <!-- path -->
	text     string
}

var named = regexp.MustCompile(`^<!-- (\S+) -->$`)

// documents returns README.md, SECURITY.md, SUPPORT.md and the files in docs.
func documents(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("docs/*.md")
	if err != nil || len(files) < 4 {
		t.Fatalf("docs contains only %v, %v", files, err)
	}
	return append(files, "README.md", "SECURITY.md", "SUPPORT.md")
}

// fences returns the code blocks of a document. If strict is true, indented code without a fence is an error.
func fences(t *testing.T, file string, strict bool) (all []fence) {
	t.Helper()
	var open *fence
	var above string
	for i, line := range strings.Split(read(t, file), "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case open == nil && strings.HasPrefix(trimmed, "```"):
			open = &fence{at: file + ":" + strconv.Itoa(i+1), language: strings.TrimPrefix(trimmed, "```")}
			if found := named.FindStringSubmatch(above); found != nil {
				open.source = found[1]
			}
		case open != nil && trimmed == "```":
			all = append(all, *open)
			open = nil
		case open != nil:
			open.text += line + "\n"
		case strict && strings.HasPrefix(line, "    "):
			t.Errorf("%s:%d: code without a fence is not checked", file, i+1)
		}
		above = trimmed
	}
	if open != nil {
		t.Errorf("%s: the fence is not closed", open.at)
	}
	return all
}

// Code in documents must be part of a file that is compiled or run elsewhere, or this test runs it.
func TestDocumentCodeBlocksWork(t *testing.T) {
	for _, file := range documents(t) {
		for _, f := range fences(t, file, true) {
			if f.isProgram() {
				continue // TestReadmeProgramServes
			}
			switch f.language {
			case "go", "nginx", "caddy", "haproxy", "yaml", "ini":
				f.isPartOfItsSource(t)
			case "graphql":
				f.isValid(t)
			case "sh":
				f.canBeTyped(t)
			case "transcript": // TestDocumentedTranscriptsMatchTheHandler
			default:
				t.Errorf("%s: code in the language %q cannot be checked", f.at, f.language)
			}
		}
	}
}

func TestModuleReadmeCodeIsCompiled(t *testing.T) {
	for _, module := range []string{"postgres", "nats", "tonlite", "otelchaingql", "examples/clients"} {
		shown := 0
		for _, f := range fences(t, module+"/README.md", false) {
			if f.language == "go" || f.language == "ts" {
				f.isPartOfItsSource(t)
				shown++
			}
		}
		if shown == 0 {
			t.Errorf("%s/README.md shows no code", module)
		}
	}
}

// isProgram reports whether the code is a whole program.
func (f fence) isProgram() bool {
	return f.language == "go" && strings.HasPrefix(f.text, "package main\n")
}

// isPartOfItsSource checks that the named file contains the lines of the snippet.
func (f fence) isPartOfItsSource(t *testing.T) {
	t.Helper()
	if f.source == "" {
		t.Errorf("%s: <!-- file --> is missing above the code", f.at)
		return
	}
	text, err := os.ReadFile(f.source)
	if err != nil {
		t.Errorf("%s: %v", f.at, err)
		return
	}
	want, lines := strings.Split(strings.TrimSuffix(f.text, "\n"), "\n"), strings.Split(string(text), "\n")
	for i := range lines {
		if i+len(want) <= len(lines) && same(lines[i:i+len(want)], want) {
			return
		}
	}
	t.Errorf("%s: %s does not contain this code:\n%s", f.at, f.source, f.text)
}

// same compares lines that may have a common indentation.
func same(lines, want []string) bool {
	indent := strings.TrimSuffix(lines[0], strings.TrimLeft(lines[0], "\t "))
	for i, line := range lines {
		if line != "" {
			line = strings.TrimPrefix(line, indent)
		}
		if line != want[i] {
			return false
		}
	}
	return true
}

func (f fence) isValid(t *testing.T) {
	t.Helper()
	h, _ := newHandler(t, referenceChain(t), chaingql.Options{})
	if strings.HasPrefix(f.text, "subscription") {
		stop, err := h.Subscribe(f.text, nil)
		if err != nil {
			t.Errorf("%s: the subscription is invalid: %v\n%s", f.at, err, f.text)
			return
		}
		stop()
	} else if r := parse(t, query(h, f.text, nil)); r.code() != "" {
		t.Errorf("%s: the query is invalid: %+v\n%s", f.at, r.Errors, f.text)
	}
}

var commands = []struct {
	line   *regexp.Regexp
	exists func(t *testing.T, argument string) bool
}{
	{regexp.MustCompile(`^go run (\./\S+)`), func(_ *testing.T, dir string) bool {
		return exists(filepath.Join(dir, "main.go"))
	}},
	{regexp.MustCompile(`^go test (?:-race )?(\./\S*)$`), func(_ *testing.T, dir string) bool {
		return exists(strings.TrimSuffix(dir, "..."))
	}},
	{regexp.MustCompile(`^make (\w+)`), func(t *testing.T, target string) bool {
		return strings.Contains(read(t, "Makefile"), "\n"+target+":")
	}},
	{regexp.MustCompile(`^(curl http://127\S+) `), func(t *testing.T, line string) bool {
		_, known := firstProgram(t)
		return strings.HasPrefix(known, line)
	}},
	{regexp.MustCompile(`^go get (\S+)$`), func(_ *testing.T, path string) bool { return path == module }},
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// canBeTyped checks that the programs, packages and make targets in commands exist.
func (f fence) canBeTyped(t *testing.T) {
	t.Helper()
lines:
	for line := range strings.Lines(f.text) {
		for _, c := range commands {
			found := c.line.FindStringSubmatch(strings.TrimSpace(line))
			if found != nil && c.exists(t, found[1]) {
				continue lines
			}
		}
		t.Errorf("%s: this command cannot be checked: %s", f.at, line)
	}
}

var link = regexp.MustCompile(`\]\(([^)#]*)(#[^)]*)?\)`)

func TestDocumentLinksResolve(t *testing.T) {
	for _, file := range append(documents(t), "CONTRIBUTING.md", "CHANGELOG.md") {
		for _, found := range link.FindAllStringSubmatch(read(t, file), -1) {
			to, anchor := found[1], strings.TrimPrefix(found[2], "#")
			if strings.Contains(to, "://") {
				continue
			}
			target := filepath.Join(filepath.Dir(file), to)
			if to == "" {
				target = file
			}
			if !exists(target) {
				t.Errorf("%s: %s does not exist", file, to)
			} else if anchor != "" && !strings.Contains(anchors(read(t, target)), "#"+anchor+"\n") {
				t.Errorf("%s: %s has no heading for #%s", file, target, anchor)
			}
		}
	}
}

// anchors returns the anchors that GitHub generates for the headings of a document.
func anchors(text string) (all string) {
	for line := range strings.Lines(text) {
		if heading, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && line[0] == '#' {
			heading = regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
			all += "#" + strings.ReplaceAll(heading, " ", "-") + "\n"
		}
	}
	return all
}

var target = regexp.MustCompile("`make (\\w+)")

func TestDocumentedMakeTargetsExist(t *testing.T) {
	makefile := read(t, "Makefile")
	for _, file := range append(documents(t), "CONTRIBUTING.md") {
		for _, found := range target.FindAllStringSubmatch(read(t, file), -1) {
			if !strings.Contains(makefile, "\n"+found[1]+":") {
				t.Errorf("%s: make %s does not exist", file, found[1])
			}
		}
	}
}

var (
	runFlag      = regexp.MustCompile(`-(?:run|bench) (?:'([^']+)'|([\w/|]+))`)
	testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark)\w+)`)
)

// A -run pattern that matches no test succeeds without running anything.
func TestDocumentedTestsExist(t *testing.T) {
	var names []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "node_modules" {
			return filepath.SkipDir
		}
		if err == nil && strings.HasSuffix(path, "_test.go") {
			for _, found := range testFunction.FindAllStringSubmatch(read(t, path), -1) {
				names = append(names, found[1])
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, file := range append(documents(t), "CONTRIBUTING.md", "Makefile", "test/chaos/mutate.sh") {
		for _, found := range runFlag.FindAllStringSubmatch(read(t, file), -1) {
			for pattern := range strings.SplitSeq(found[1]+found[2], "|") {
				pattern, _, _ = strings.Cut(pattern, "/")
				if pattern == "." || pattern == "^$" || pattern == "^$$" {
					continue
				}
				seen++
				matches := regexp.MustCompile(pattern).MatchString
				if !slices.ContainsFunc(names, matches) {
					t.Errorf("%s: no test matches %s", file, pattern)
				}
			}
		}
	}
	if seen < 8 {
		t.Errorf("found only %d patterns of -run", seen)
	}
}
