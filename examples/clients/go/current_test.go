package chain_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/Khan/genqlient/generate"
)

func TestSchemaFileMatchesService(t *testing.T) {
	same(t, "../schema.graphql", []byte(serve(t).handler.Load().SDL()))
}

func TestGeneratedCodeIsCurrent(t *testing.T) {
	config, err := generate.ReadAndValidateConfig("genqlient.yaml")
	if err != nil {
		t.Fatal(err)
	}
	files, err := generate.Generate(config)
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range files {
		same(t, filepath.Base(path), content)
	}
}

func TestReadmeSnippetsAreInPrograms(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, shown := range []struct{ fence, program string }{
		{"```ts\n", "../typescript/src/follow.ts"}, {"```go\n", "follow/main.go"},
	} {
		program, err := os.ReadFile(shown.program)
		if err != nil {
			t.Fatal(err)
		}
		_, snippet, _ := strings.Cut(string(readme), shown.fence)
		snippet, _, found := strings.Cut(snippet, "```")
		if !found || snippet == "" {
			t.Errorf("the README does not show %s", shown.program)
		}
		for line := range strings.Lines(snippet) {
			if !strings.Contains(string(program), line) {
				t.Errorf("%s does not contain %q", shown.program, line)
			}
		}
	}
}

func same(t *testing.T, path string, want []byte) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is outdated, run go generate ./... (%v)", path, err)
	}
}
