package chaingql_test

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// firstProgram returns the README's first program and its curl line.
func firstProgram(t *testing.T) (program, curl string) {
	t.Helper()
	for _, f := range fences(t, "README.md", true) {
		switch {
		case f.isProgram() && program == "":
			program = f.text
		case f.language == "sh" && strings.HasPrefix(f.text, "curl ") && curl == "":
			curl = strings.TrimSpace(f.text)
		}
	}
	if program == "" || curl == "" {
		t.Fatalf("README.md must have a program and a curl line; it has %q and %q", program, curl)
	}
	return program, curl
}

// A reader should need at most one minute for the README.
func TestReadmeIsShort(t *testing.T) {
	program, _ := firstProgram(t)
	if lines := strings.Count(read(t, "README.md"), "\n"); lines > 120 {
		t.Errorf("README.md has %d lines, more than 120", lines)
	}
	if lines := strings.Count(program, "\n"); lines >= 25 {
		t.Errorf("the program has %d lines, not fewer than 25", lines)
	}
}

// The test builds the program in an empty module and runs the curl line against it. It uses another port, because that
// of the README may be in use.
func TestReadmeProgramServes(t *testing.T) {
	realTime(t, "the program is another process")
	if raceEnabled {
		t.Log("not run: the race detector would not watch the other process")
		return
	}
	const shown = "127.0.0.1:8080"
	program, curl := firstProgram(t)
	if strings.Count(program, shown) != 1 || strings.Count(curl, shown) != 1 {
		t.Fatalf("the program and the curl line do not both have the address %s:\n%s\n%s", shown, program, curl)
	}
	addr := freeAddress(t)
	binary := buildElsewhere(t, strings.Replace(program, shown, addr, 1))

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	server := exec.CommandContext(ctx, binary)
	server.Env = []string{} // the program needs no environment
	var output strings.Builder
	server.Stdout, server.Stderr = &output, &output
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	for c, err := net.Dial("tcp", addr); ; c, err = net.Dial("tcp", addr) {
		if err == nil {
			_ = c.Close()
			break
		}
		select {
		case err := <-ended:
			t.Fatalf("the program ended before it was reachable: %v\n%s", err, &output)
		case <-time.After(10 * time.Millisecond):
		}
	}
	line := strings.NewReplacer("curl ", "curl -sS --noproxy '*' ", shown, addr).Replace(curl)
	response, err := exec.CommandContext(ctx, "sh", "-c", line).CombinedOutput()
	cancel() // kills the program
	<-ended
	if err != nil || !strings.Contains(read(t, "README.md"), "`"+string(response)+"`") {
		t.Errorf("the README lacks the response %s (error %v)", response, err)
	}
}

// freeAddress returns an unused address.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// buildElsewhere builds a program in a new module that uses this checkout of the library, and downloads nothing. In a
// rehearsal of a release (tools/rehearse.sh) the module is empty, and go get downloads the version README_VERSION.
func buildElsewhere(t *testing.T, program string) (binary string) {
	t.Helper()
	dir := t.TempDir()
	checkout, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(env, arguments []string) {
		command := exec.CommandContext(t.Context(), "go", arguments...)
		command.Dir = dir
		command.Env = append(os.Environ(), env...)
		if output, err := command.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(arguments, " "), err, output)
		}
	}
	write("main.go", program)
	const empty = "module example\n\ngo 1.25\n"
	binary = filepath.Join(dir, "example")
	if version := os.Getenv("README_VERSION"); version != "" {
		write("go.mod", empty)
		run(nil, []string{"get", module + "@" + version})
		run(nil, []string{"build", "-o", binary, "."})
		return binary
	}
	_, needed, _ := strings.Cut(read(t, "go.mod"), "\nrequire (")
	write("go.mod", empty+fmt.Sprintf("\nrequire %[1]s v0.0.0\n\nreplace %[1]s => %[2]s\n\nrequire (%[3]s",
		module, checkout, needed))
	write("go.sum", read(t, "go.sum"))
	run([]string{"GOPROXY=off", "GOWORK=off"}, []string{"build", "-mod=mod", "-o", binary, "."})
	return binary
}

// Servers in documents and examples must set all limits, because readers copy them.
func TestExampleHTTPServersSetAllLimits(t *testing.T) {
	shown := 0
	check := func(file string, source any) {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if literal, ok := n.(*ast.CompositeLit); ok && isSelector(literal.Type, "http", "Server") {
				shown++
				if missing := unbounded(literal); missing != nil {
					t.Errorf("%s: the http.Server lacks the limits %v", file, missing)
				}
			}
			return true
		})
	}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		slashed := "/" + filepath.ToSlash(path)
		example := strings.Contains(slashed, "/example/") || strings.Contains(slashed, "/examples/")
		program := example && strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go")
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "node_modules":
			return filepath.SkipDir
		case program || path == "example_test.go":
			check(path, nil)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	program, _ := firstProgram(t)
	check("README.md", program)
	if shown < 9 {
		t.Errorf("found only %d servers", shown)
	}
}

// unbounded returns the limits that a server literal does not set.
func unbounded(server *ast.CompositeLit) (missing []string) {
	set := map[string]bool{}
	ast.Inspect(server, func(n ast.Node) bool {
		if pair, ok := n.(*ast.KeyValueExpr); ok {
			if key, ok := pair.Key.(*ast.Ident); ok {
				set[key.Name] = true
			}
		}
		return true
	})
	for _, limit := range []string{
		"ReadHeaderTimeout", "ReadTimeout", "IdleTimeout", "MaxHeaderBytes", "MaxConcurrentStreams", "WriteByteTimeout",
	} {
		if !set[limit] {
			missing = append(missing, limit)
		}
	}
	return missing
}

func isSelector(e ast.Expr, pkg, name string) bool {
	s, ok := e.(*ast.SelectorExpr)
	if !ok || s.Sel.Name != name {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == pkg
}

// The comparison in docs/benchmarks.md must match the last measured run and include every missed target.
func TestDocumentedBenchmarkComparisonMatchesLastRun(t *testing.T) {
	shown, _, _ := strings.Cut(read(t, "docs/benchmarks.md"), "\n## ")
	measured := read(t, "test/bench/RESULTS.md")
	rows := 0
	for line := range strings.Lines(shown) {
		if strings.HasPrefix(line, "| ") {
			rows++
			if !strings.Contains(measured, line) {
				t.Errorf("test/bench/RESULTS.md lacks this line of docs/benchmarks.md: %s", line)
			}
		}
	}
	for line := range strings.Lines(measured) {
		if strings.Contains(line, "**missed**") && !strings.Contains(shown, line) {
			t.Errorf("docs/benchmarks.md lacks the missed target: %s", line)
		}
	}
	if rows < 10 {
		t.Errorf("docs/benchmarks.md shows only %d rows", rows)
	}
}

// The client versions in docs/clients.md must be those that the conformance tests install.
func TestDocumentedClientVersionsAreTested(t *testing.T) {
	_, table, _ := strings.Cut(read(t, "docs/clients.md"), "| client | version |")
	table, _, _ = strings.Cut(table, "\n\n")
	installed := read(t, "test/conformance/package.json")
	versions := regexp.MustCompile(`\d+\.\d+\.\d+`).FindAllString(table, -1)
	for _, version := range versions {
		if !strings.Contains(installed, version+`"`) {
			t.Errorf("the conformance tests do not install version %s", version)
		}
	}
	if len(versions) < 15 {
		t.Errorf("docs/clients.md lists only the versions %v", versions)
	}
}

var large = regexp.MustCompile(`\d{1,3}(?:,\d{3})+`)

// Large figures in the text of docs/benchmarks.md must be in a file of results.
func TestDocumentedBenchmarkFiguresWereMeasured(t *testing.T) {
	var results string
	for _, file := range []string{
		"test/chaos/RESULTS.md", "test/soak/RESULTS.md", "test/attack/RESULTS.md", "test/bench/RESULTS.md",
	} {
		results += read(t, file)
	}
	results = strings.ReplaceAll(results, ",", "")
	figures := 0
	for line := range strings.Lines(read(t, "docs/benchmarks.md")) {
		if strings.HasPrefix(line, "|") {
			continue // tables have their own tests
		}
		for _, figure := range large.FindAllString(line, -1) {
			figures++
			if !regexp.MustCompile(`\b` + strings.ReplaceAll(figure, ",", "") + `\b`).MatchString(results) {
				t.Errorf("no RESULTS.md contains the figure %s of this line: %s", figure, line)
			}
		}
	}
	if figures < 5 {
		t.Errorf("docs/benchmarks.md has only %d figures", figures)
	}
}
