package chaingql_test

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/chaingql/chaingql"
)

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The snippet in SECURITY.md must be part of a compiled example.
func TestSecuritySnippetIsCompiled(t *testing.T) {
	_, rest, _ := strings.Cut(read(t, "SECURITY.md"), "```go\n")
	snippet, _, found := strings.Cut(rest, "```")
	indented := "\t" + strings.ReplaceAll(strings.TrimSuffix(snippet, "\n"), "\n", "\n\t") + "\n"
	if !found || !strings.Contains(read(t, "example_test.go"), indented) {
		t.Errorf("example_test.go lacks the snippet of SECURITY.md:\n%s", indented)
	}
}

func TestSecurityListsEveryLimit(t *testing.T) {
	text := read(t, "SECURITY.md")
	for _, f := range reflect.VisibleFields(reflect.TypeFor[chaingql.Limits]()) {
		if !strings.Contains(text, fmt.Sprintf("`%s`", f.Name)) {
			t.Errorf("SECURITY.md lacks the limit %s", f.Name)
		}
	}
	known := reflect.TypeFor[chaingql.Limits]()
	for _, row := range regexp.MustCompile("(?m)^\\| .* \\| (`.*`) \\|").FindAllStringSubmatch(text, -1) {
		for name := range strings.SplitSeq(strings.ReplaceAll(row[1], "`", ""), ", ") {
			if _, ok := known.FieldByName(name); !ok {
				t.Errorf("SECURITY.md lists %s, which is not a limit", name)
			}
		}
	}
}
