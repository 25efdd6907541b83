package chaingql_test

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chaingql/chaingql"
)

// filesNamed returns the slash-separated paths of all files of this repository with the given name.
func filesNamed(t *testing.T, name string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "node_modules" {
			return filepath.SkipDir
		}
		if err == nil && d.Name() == name {
			paths = append(paths, filepath.ToSlash(path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

var (
	ownRequirement = regexp.MustCompile(`(?m)^(?:require)?\s*(` + module + `\S*) (v\S+)`)
	heading        = regexp.MustCompile(`(?m)^## (.*)$`)
	releaseHeading = regexp.MustCompile(`^(\d+\.\d+\.\d+) - \d{4}-\d{2}-\d{2}$`)
)

// Users do not see the replace directives of a module, only the version that it requires.
func TestModulesRequireTheVersionOfThisRepository(t *testing.T) {
	modules := 0
	for _, file := range filesNamed(t, "go.mod") {
		for _, found := range ownRequirement.FindAllStringSubmatch(read(t, file), -1) {
			modules++
			equal(t, file+": "+found[1], found[2], "v"+chaingql.Version)
		}
	}
	if modules < 13 {
		t.Errorf("the go.mod files have only %d requirements of this repository's modules", modules)
	}
}

// Version is that of the last release until the commit that prepares the next release.
func TestVersionMatchesTheNewestChangelogEntry(t *testing.T) {
	headings := heading.FindAllStringSubmatch(read(t, "CHANGELOG.md"), -1)
	if len(headings) == 0 {
		t.Fatal("CHANGELOG.md has no headings")
	}
	if headings[0][1] == "Unreleased" {
		headings = headings[1:]
	}
	for i, found := range headings {
		version := releaseHeading.FindStringSubmatch(found[1])
		if version == nil {
			t.Errorf("the heading %q is neither Unreleased, at the top, nor a version with a date", found[1])
		} else if i == 0 {
			equal(t, "newest version in CHANGELOG.md", version[1], chaingql.Version)
		}
	}
	h, _ := newHandler(t, referenceChain(t), chaingql.Options{})
	equal(t, "info.version", query(h, "{info{version}}", nil),
		`{"data":{"info":{"version":"`+chaingql.Version+`"}}}`)
}

// A module of its own must be released, unless it is an example, a test or a tool.
func TestEveryModuleIsReleasedOrExempt(t *testing.T) {
	var modules []string
	for _, file := range filesNamed(t, "go.mod") {
		dir, _, found := strings.Cut(file, "/go.mod")
		if found && dir != "tools" && !strings.HasPrefix(dir, "test/") && !strings.Contains(dir, "example") {
			modules = append(modules, dir)
		}
	}
	_, released, _ := strings.Cut(read(t, "Makefile"), "\nRELEASED = ")
	released, _, _ = strings.Cut(released, "\n")
	slices.Sort(modules)
	want := strings.Fields(released)
	slices.Sort(want)
	equal(t, "modules", strings.Join(modules, " "), strings.Join(want, " "))
}

// SUPPORT.md must name the Go versions of the go.mod files.
func TestDocumentedGoVersionsMatchTheModules(t *testing.T) {
	rows := regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (\\d+\\.\\d+)").FindAllStringSubmatch(read(t, "SUPPORT.md"), -1)
	for _, row := range rows {
		file := strings.TrimPrefix(row[1]+"/go.mod", "chaingql/")
		if !regexp.MustCompile(`\ngo ` + row[2] + `(\.0)?\n`).MatchString(read(t, file)) {
			t.Errorf("SUPPORT.md has Go %[2]s for %[1]s, which has another version", file, row[2])
		}
	}
	if len(rows) < 5 {
		t.Errorf("SUPPORT.md lists only %v", rows)
	}
}
