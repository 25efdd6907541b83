package chaingql_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/chaingql/chaingql"
)

// A fence is a block of code in a document.
type fence struct {
	at       string // file and line
	language string
	source   string // the file that the comment above it names: <!-- path -->
	text     string
}

var named = regexp.MustCompile(`^<!-- (\S+) -->$`)

// documents are README.md, SECURITY.md and what is in docs.
func documents(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("docs/*.md")
	if err != nil || len(files) < 4 {
		t.Fatalf("docs has %v, %v", files, err)
	}
	return append(files, "README.md", "SECURITY.md")
}

// fences are the blocks of code of a document. In one that is strict, code must be
// in one.
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
			t.Errorf("%s:%d: code without a fence, which nothing checks", file, i+1)
		}
		above = trimmed
	}
	if open != nil {
		t.Errorf("%s: a fence that does not end", open.at)
	}
	return all
}

// What documents show is taken from files that are compiled or run, or is run
// here.
func TestWhatDocumentsShowWorks(t *testing.T) {
	for _, file := range documents(t) {
		for _, f := range fences(t, file, true) {
			if f.isProgram() {
				continue // TestFirstProgramOfTheReadmeServes
			}
			switch f.language {
			case "go", "nginx", "caddy", "haproxy", "yaml":
				f.isPartOfItsSource(t)
			case "graphql":
				f.isValid(t)
			case "sh":
				f.canBeTyped(t)
			case "transcript": // TestTranscriptsOfDocumentsAreTrue
			default:
				t.Errorf("%s: nothing checks the language %q", f.at, f.language)
			}
		}
	}
}

func TestCodeThatModulesShowIsCompiled(t *testing.T) {
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

// isPartOfItsSource looks for the snippet, line for line, in the file it names.
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
	t.Errorf("%s: %s has no such lines:\n%s", f.at, f.source, f.text)
}

// same compares lines that may all be indented by the same.
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
			t.Errorf("%s: %v\n%s", f.at, err, f.text)
			return
		}
		stop()
	} else if r := parse(t, query(h, f.text, nil)); r.code() != "" {
		t.Errorf("%s: %+v\n%s", f.at, r.Errors, f.text)
	}
}

var typed = []struct {
	line  *regexp.Regexp
	known func(t *testing.T, what string) bool
}{
	{regexp.MustCompile(`^go run (\./\S+)`), func(_ *testing.T, dir string) bool { return there(filepath.Join(dir, "main.go")) }},
	{regexp.MustCompile(`^go test (?:-race )?(\./\S*)$`), func(_ *testing.T, dir string) bool { return there(strings.TrimSuffix(dir, "...")) }},
	{regexp.MustCompile(`^make (\w+)`), func(t *testing.T, target string) bool { return strings.Contains(read(t, "Makefile"), "\n"+target+":") }},
	{regexp.MustCompile(`^(curl http://127\S+) `), func(t *testing.T, line string) bool {
		_, known := firstProgram(t)
		return strings.HasPrefix(known, line)
	}},
	{regexp.MustCompile(`^go get (\S+)$`), func(_ *testing.T, path string) bool { return path == module }},
}

func there(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// canBeTyped knows programs, packages and targets that are there.
func (f fence) canBeTyped(t *testing.T) {
	t.Helper()
lines:
	for line := range strings.Lines(f.text) {
		for _, known := range typed {
			if found := known.line.FindStringSubmatch(strings.TrimSpace(line)); found != nil && known.known(t, found[1]) {
				continue lines
			}
		}
		t.Errorf("%s: nothing checks %s", f.at, line)
	}
}

var link = regexp.MustCompile(`\]\(([^)#]*)(#[^)]*)?\)`)

func TestLinksOfDocumentsLeadSomewhere(t *testing.T) {
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
			if !there(target) {
				t.Errorf("%s: %s is not there", file, to)
			} else if anchor != "" && !strings.Contains(anchors(read(t, target)), "#"+anchor+"\n") {
				t.Errorf("%s: %s has no heading for #%s", file, target, anchor)
			}
		}
	}
}

// anchors are those that a document's headings have, as GitHub makes them.
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

func TestTargetsThatDocumentsNameAreThere(t *testing.T) {
	makefile := read(t, "Makefile")
	for _, file := range append(documents(t), "CONTRIBUTING.md") {
		for _, found := range target.FindAllStringSubmatch(read(t, file), -1) {
			if !strings.Contains(makefile, "\n"+found[1]+":") {
				t.Errorf("%s: make %s is not there", file, found[1])
			}
		}
	}
}

// The README's comparison is that of the last measured run, and leaves out no
// target that was missed.
func TestComparisonIsWhatWasMeasured(t *testing.T) {
	_, shown, _ := strings.Cut(read(t, "README.md"), "## How it compares")
	shown, _, _ = strings.Cut(shown, "\n## ")
	measured := read(t, "test/bench/RESULTS.md")
	rows := 0
	for line := range strings.Lines(shown) {
		if strings.HasPrefix(line, "| ") {
			rows++
			if !strings.Contains(measured, line) {
				t.Errorf("not measured: %s", line)
			}
		}
	}
	for line := range strings.Lines(measured) {
		if strings.Contains(line, "**missed**") && !strings.Contains(shown, line) {
			t.Errorf("missed, and not told: %s", line)
		}
	}
	if rows < 10 {
		t.Errorf("only %d rows are shown", rows)
	}
}

// The clients that the README names are those that conformance installs.
func TestVersionsOfClientsAreThoseThatPassed(t *testing.T) {
	_, table, _ := strings.Cut(read(t, "README.md"), "| client | version |")
	table, _, _ = strings.Cut(table, "\n\n")
	installed := read(t, "test/conformance/package.json")
	versions := regexp.MustCompile(`\d+\.\d+\.\d+`).FindAllString(table, -1)
	for _, version := range versions {
		if !strings.Contains(installed, version+`"`) {
			t.Errorf("conformance has no %s", version)
		}
	}
	if len(versions) < 15 {
		t.Errorf("found only %v", versions)
	}
}

var large = regexp.MustCompile(`\d{1,3}(?:,\d{3})+`)

// Large figures of the README's text stand in a file of results.
func TestFiguresOfTheReadmeWereMeasured(t *testing.T) {
	var results string
	for _, file := range []string{"test/chaos/RESULTS.md", "test/soak/RESULTS.md", "test/attack/RESULTS.md", "test/bench/RESULTS.md"} {
		results += read(t, file)
	}
	results = strings.ReplaceAll(results, ",", "")
	figures := 0
	for line := range strings.Lines(read(t, "README.md")) {
		if strings.HasPrefix(line, "|") {
			continue // of limits, rows and versions, which have tests of their own
		}
		for _, figure := range large.FindAllString(line, -1) {
			figures++
			if !regexp.MustCompile(`\b` + strings.ReplaceAll(figure, ",", "") + `\b`).MatchString(results) {
				t.Errorf("%s is in no file of results: %s", figure, line)
			}
		}
	}
	if figures < 5 {
		t.Errorf("only %d figures were found", figures)
	}
}
