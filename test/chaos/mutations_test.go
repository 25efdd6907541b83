package chaos_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEveryMutationCanBeApplied checks that mutate.sh can apply each line of mutations.txt: the old text
// must occur exactly once in the file. If you rename or move the text, update the line.
func TestEveryMutationCanBeApplied(t *testing.T) {
	list, err := os.ReadFile("mutations.txt")
	if err != nil {
		t.Fatal(err)
	}
	unescape := strings.NewReplacer(`\n`, "\n", `\t`, "\t")
	for i, line := range strings.Split(strings.TrimSuffix(string(list), "\n"), "\n") {
		fields := strings.Split(line, "\t")
		if len(fields) != 4 {
			t.Errorf("line %d of mutations.txt has %d fields, want 4: file, old text, new text, description", i+1,
				len(fields))
			continue
		}
		source, err := os.ReadFile(filepath.Join("..", "..", fields[0]))
		if err != nil {
			t.Errorf("line %d of mutations.txt: %v", i+1, err)
			continue
		}
		if n := strings.Count(string(source), unescape.Replace(fields[1])); n != 1 {
			t.Errorf("line %d of mutations.txt: %s contains %q %d times, want once", i+1, fields[0], fields[1], n)
		}
	}
}
