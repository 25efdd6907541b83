package chaingql_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

const module = "github.com/chaingql/chaingql"

// goFiles returns the Go files of the core module by directory.
func goFiles(t *testing.T) map[string][]string {
	t.Helper()
	files := map[string][]string{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != ".":

			name := d.Name()
			_, err := os.Stat(filepath.Join(path, "go.mod"))
			if err == nil || name == "testdata" || name == "node_modules" || strings.HasPrefix(name, ".") {
				return filepath.SkipDir // not part of the module
			}
		case strings.HasSuffix(path, ".go"):
			dir := filepath.ToSlash(filepath.Dir(path))
			files[dir] = append(files[dir], path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files["."]) == 0 || len(files["internal/plan"]) == 0 {
		t.Fatalf("the repository has only the files %v", files)
	}
	return files
}

func TestPackagesImportOnlyAllowedPackages(t *testing.T) {
	for dir, files := range goFiles(t) {
		for _, file := range files {
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, spec := range parsed.Imports {
				path, _ := strconv.Unquote(spec.Path.Value)
				imported, ours := strings.CutPrefix(path+"/", module+"/")
				if imported = strings.TrimSuffix(imported, "/"); !ours || imported == dir {
					continue
				}
				test := strings.HasSuffix(file, "_test.go")
				switch {
				case test && imported == "internal/testkit":
				case strings.HasPrefix(dir, "internal/"):
					if !slices.Contains([]string{"internal/xsync", "internal/strictjson", "internal/guard"}, imported) {
						t.Errorf("%s imports %s: it may import only xsync, strictjson and guard", file, path)
					}
				case !test && imported == "internal/testkit":
					t.Errorf("%s imports %s: only tests may import testkit", file, path)
				case dir == "." && !strings.HasPrefix(imported, "internal/") && !test:
					t.Errorf("%s imports %s: the root may import only internal packages", file, path)
				case dir != "." && strings.HasPrefix(imported, "internal/"):
					t.Errorf("%s imports %s: only the root may import internal packages", file, path)
				case dir == "chaingqltest" && imported == "memchain":
				case dir != "." && imported != "" && !strings.HasPrefix(dir, "examples/") && !test:
					t.Errorf("%s imports %s: public packages may import only the root", file, path)
				}
			}
		}
	}
}

// handwritten returns the text of each Go file of all modules, except the generated ones.
func handwritten(t *testing.T) map[string]string {
	t.Helper()
	generated := regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)
	texts := map[string]string{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == "node_modules":
			return filepath.SkipDir
		case strings.HasSuffix(path, ".go"):
			if text := read(t, path); !generated.MatchString(text) {
				texts[path] = text
			}
		}
		return nil
	})
	if err != nil || len(texts) < 500 {
		t.Fatalf("read %d files, %v", len(texts), err)
	}
	return texts
}

func TestFilesHaveAtMost350LinesOf120Columns(t *testing.T) {
	for file, text := range handwritten(t) {
		if lines := strings.Count(text, "\n"); lines > 350 {
			t.Errorf("%s has %d lines, more than 350", file, lines)
		}
		for line := range strings.Lines(text) {
			columns := utf8.RuneCountInString(strings.ReplaceAll(strings.TrimSuffix(line, "\n"), "\t", "    "))
			if columns > 120 {
				t.Errorf("%s has a line of %d columns, more than 120: %s", file, columns, line)
			}
		}
	}
}

func TestExportedStructFieldsHaveACommentAboveThem(t *testing.T) {
	files := goFiles(t)
	for _, file := range slices.Concat(files["."], files["memchain"], files["backendtest"], files["explorer"]) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		positions := token.NewFileSet()
		parsed, err := parser.ParseFile(positions, file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			def, ok := n.(*ast.TypeSpec)
			if !ok || !def.Name.IsExported() {
				return true
			}
			if body, ok := def.Type.(*ast.StructType); ok {
				for _, f := range body.Fields.List {
					if len(f.Names) > 0 && f.Names[0].IsExported() && f.Doc == nil {
						t.Errorf("%s: %s.%s has no comment above it", positions.Position(f.Pos()), def.Name, f.Names[0])
					}
				}
			}
			return false
		})
	}
}

// testkit.Missing names what is missing, and fails in CI. With t.Skip, a test could be skipped there unnoticed.
func TestOnlyTestkitMaySkipTests(t *testing.T) {
	skip := regexp.MustCompile(`\b[tbf]\.(Skip|Skipf|SkipNow)\(`)
	for path, text := range handwritten(t) {
		if found := skip.FindString(text); found != "" && strings.HasSuffix(path, "_test.go") {
			t.Errorf("%s calls %s: call testkit.Missing, or log the reason and return", path, found)
		}
	}
}

// A test file of the root begins with the name of the file that it tests, so that it is listed next to it.
func TestRootTestFilesAreNamedAfterTheFileThatTheyTest(t *testing.T) {
	named := []string{"architecture", "docs", "example", "export", "helpers", "main", "norace", "race", "release"}
	files := goFiles(t)["."]
	for _, file := range files {
		if source, test := strings.CutSuffix(file, ".go"); !strings.HasSuffix(source, "_test") && test {
			named = append(named, source)
		}
	}
	for _, file := range files {
		name, test := strings.CutSuffix(file, "_test.go")
		subject, _, _ := strings.Cut(name, "_")
		if test && !slices.Contains(named, subject) {
			t.Errorf("%s is named after %s.go, which does not exist", file, subject)
		}
	}
}

func TestCoreModuleDependsOnlyOnFourLibraries(t *testing.T) {
	text, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	var direct []string
	language := ""
	block := false
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || strings.HasPrefix(words[0], "//"):
			continue
		case words[0] == "go":
			language = words[1]
			continue
		case words[0] == "replace" || words[0] == "toolchain" || words[0] == "tool":
			t.Errorf("go.mod has a %s directive", words[0])
			continue
		case words[0] == ")":
			block = false
			continue
		case words[0] == "require" && words[1] == "(":
			block = true
			continue
		case words[0] == "require":
			words = words[1:]
		case !block:
			continue
		}
		if !strings.HasSuffix(strings.TrimSpace(line), "// indirect") {
			direct = append(direct, words[0])
		}
	}
	slices.Sort(direct)
	equal(t, "direct dependencies", strings.Join(direct, " "),
		"github.com/coder/websocket github.com/graphql-go/graphql "+
			"github.com/graphql-go/handler github.com/vektah/gqlparser/v2")
	equal(t, "go directive", language, "1.25")
	if _, err := os.Stat("go.work"); err == nil {
		t.Error("go.work exists: a module in it that needs a newer Go would break the core's tests")
	}
}
