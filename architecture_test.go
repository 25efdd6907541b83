package chaingql_test

import (
	"bytes"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/chaingql/chaingql"

// goFiles are the files of the core module, by their directories.
func goFiles(t *testing.T) map[string][]string {
	t.Helper()
	files := map[string][]string{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != ".":
			name := d.Name()
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil || name == "testdata" || name == "node_modules" || strings.HasPrefix(name, ".") {
				return filepath.SkipDir // no part of the module
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
		t.Fatalf("found only %v", files)
	}
	return files
}

func TestImportsRunOneWay(t *testing.T) {
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
				case test && (imported == "internal/leak" || imported == "internal/relay"): // are for tests alone
				case strings.HasPrefix(dir, "internal/"):
					if imported != "internal/xsync" {
						t.Errorf("%s imports %s: internal packages import neither the root nor each other", file, path)
					}
				case !test && (imported == "internal/leak" || imported == "internal/relay"):
					t.Errorf("%s imports %s: only tests may", file, path)
				case dir == "." && !strings.HasPrefix(imported, "internal/") && !test:
					t.Errorf("%s imports %s: the root imports internal packages alone", file, path)
				case dir != "." && strings.HasPrefix(imported, "internal/"):
					t.Errorf("%s imports %s: only the root imports internal packages", file, path)
				case dir != "." && imported != "" && !strings.HasPrefix(dir, "examples/") && !test:
					t.Errorf("%s imports %s: public packages import the root alone", file, path)
				}
			}
		}
	}
}

func TestFilesAreShort(t *testing.T) {
	for _, files := range goFiles(t) {
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if lines := bytes.Count(text, []byte("\n")); lines > 350 {
				t.Errorf("%s has %d lines, more than 350", file, lines)
			}
		}
	}
}

func TestCoreDependsOnFourLibraries(t *testing.T) {
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
		"github.com/coder/websocket github.com/graphql-go/graphql github.com/graphql-go/handler github.com/vektah/gqlparser/v2")
	equal(t, "go directive", language, "1.25")
	if _, err := os.Stat("go.work"); err == nil {
		t.Error("there is a go.work: modules of a newer Go in it stop the core's own tests")
	}
}
