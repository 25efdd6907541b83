package chaingql_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// constructorTypes contains the JSON types of the attributes that functions of slog and guard return. slog.Any may be
// used only for errors.
var constructorTypes = map[string]string{
	"slog.String": "string", "slog.Bool": "boolean", "slog.Any": "string",
	"slog.Int": "number", "slog.Int64": "number", "slog.Uint64": "number", "slog.Float64": "number",
	"slog.Duration": "number in nanoseconds", "slog.Time": "time", "slog.Group": "object",
	"guard.Milliseconds": "number", "guard.Error": "string", "guard.Stack": "string",
}

// sources returns the Go files of all modules, without tests and programs for tests.
func sources(t *testing.T) (files []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		skipped := path == "test" || path == "tools" || strings.HasPrefix(d.Name(), ".") && path != "." ||
			d.Name() == "testdata" || d.Name() == "node_modules"
		switch {
		case err != nil:
			return err
		case d.IsDir() && skipped:
			return filepath.SkipDir
		case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
			files = append(files, filepath.ToSlash(path))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// attributeOf returns the name and the JSON type of the attribute that n creates. The name is empty if it is not a
// literal.
func attributeOf(n ast.Node) (name, jsonType string, ok bool) {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return "", "", false
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return "", "", false
	}
	pkg, _ := f.X.(*ast.Ident)
	if pkg == nil {
		return "", "", false
	}
	jsonType, ok = constructorTypes[pkg.Name+"."+f.Sel.Name]
	switch pkg.Name + "." + f.Sel.Name {
	case "guard.Error":
		return "error", jsonType, ok
	case "guard.Stack":
		return "stack", jsonType, ok
	}
	if ok {
		name, _ = stringOf(call.Args[0])
	}
	return name, jsonType, ok
}

func stringOf(n ast.Expr) (string, bool) {
	text, ok := n.(*ast.BasicLit)
	if !ok || text.Kind != token.STRING {
		return "", false
	}
	value, err := strconv.Unquote(text.Value)
	return value, err == nil
}

// Log stores reject a line if an attribute has another type than in the lines before. The core and the modules write to
// one log.
func TestLogAttributesHaveOneTypeInAllModules(t *testing.T) {
	types, used, modules := documentedTypes(t), map[string]bool{}, map[string]bool{}
	for _, file := range sources(t) {
		set := token.NewFileSet()
		tree, err := parser.ParseFile(set, file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			if n == nil {
				return false
			}
			at := set.Position(n.Pos())
			if name, got, ok := attributeOf(n); ok && file != "internal/guard/guard.go" {
				used[name] = true
				modules[strings.Split(file, "/")[0]] = true
				if want := types[name]; got != want {
					t.Errorf("%v: the attribute %q is a %s, but docs/observability.md says %q", at, name, got, want)
				}
				if n.(*ast.CallExpr).Fun.(*ast.SelectorExpr).Sel.Name == "Any" && name != "error" {
					t.Errorf("%v: slog.Any has no type: use another function for %s", at, name)
				}
			}
			if _, ok := messageOf(n); ok {
				call := n.(*ast.CallExpr)
				method := call.Fun.(*ast.SelectorExpr).Sel.Name
				if slices.Contains([]string{"logPanic", "open", "Report"}, method) {
					return true // their arguments are not attributes
				}
				for _, arg := range call.Args[messageAt[method]+1:] {
					if name, ok := stringOf(arg); ok {
						t.Errorf("%v: the attribute %s has no type: use a function of slog", at, name)
					}
				}
			}
			return true
		})
	}
	for name := range types {
		if !used[name] {
			t.Errorf("docs/observability.md has the attribute %s, which is never logged", name)
		}
	}
	for _, module := range []string{"nats", "postgres", "tonlite"} {
		if !modules[module] {
			t.Errorf("no attribute of the module %s was found", module)
		}
	}
}
