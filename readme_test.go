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
		t.Fatalf("README.md has the program %q and the line %q", program, curl)
	}
	return program, curl
}

// A reader pastes the program into an empty module and sends the line of curl to
// it. Only its port is the test's, because the README's may be taken.
func TestFirstProgramOfTheReadmeServes(t *testing.T) {
	const shown = "127.0.0.1:8080"
	program, curl := firstProgram(t)
	if strings.Count(program, shown) != 1 || strings.Count(curl, shown) != 1 {
		t.Fatalf("%s is not in both:\n%s\n%s", shown, program, curl)
	}
	addr := freeAddress(t)
	binary := buildElsewhere(t, strings.Replace(program, shown, addr, 1))

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	server := exec.CommandContext(ctx, binary)
	server.Env = []string{} // it needs none
	var said strings.Builder
	server.Stdout, server.Stderr = &said, &said
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
			t.Fatalf("the program ended: %v\n%s", err, &said)
		case <-time.After(10 * time.Millisecond):
		}
	}
	line := strings.NewReplacer("curl ", "curl -sS --noproxy '*' ", shown, addr).Replace(curl)
	answer, err := exec.CommandContext(ctx, "sh", "-c", line).CombinedOutput()
	cancel() // kills the program
	<-ended
	if err != nil || !strings.Contains(read(t, "README.md"), "`"+string(answer)+"`") {
		t.Errorf("the README does not have the answer %s, %v", answer, err)
	}
}

// freeAddress returns an address that nobody listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// buildElsewhere builds a program in a module that has nothing else. The library
// is this checkout, and nothing is downloaded.
func buildElsewhere(t *testing.T, program string) (binary string) {
	t.Helper()
	dir := t.TempDir()
	checkout, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	_, needed, _ := strings.Cut(read(t, "go.mod"), "\nrequire (")
	mod := fmt.Sprintf("module example\n\ngo 1.25\n\nrequire %[1]s v0.0.0\n\nreplace %[1]s => %[2]s\n\nrequire (%[3]s",
		module, checkout, needed)
	for name, text := range map[string]string{"main.go": program, "go.mod": mod, "go.sum": read(t, "go.sum")} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	binary = filepath.Join(dir, "example")
	build := exec.CommandContext(t.Context(), "go", "build", "-mod=mod", "-o", binary, ".")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOPROXY=off", "GOWORK=off")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("the program does not build: %v\n%s", err, said)
	}
	return binary
}

// Servers that documents and examples show are copied to the open internet.
func TestServersToCopyAreBounded(t *testing.T) {
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
					t.Errorf("%s: http.Server without %v", file, missing)
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
		t.Errorf("only %d servers were found", shown)
	}
}

// unbounded returns the limits that a server does not set.
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
