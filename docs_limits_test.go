package chaingql_test

import (
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
)

func TestDocumentedDefaultsMatchTheCode(t *testing.T) {
	in := chaingql.Defaults()
	want := map[string]int64{
		"KeepAliveInterval":  int64(in.KeepAliveInterval),
		"WindowSize":         int64(in.WindowSize),
		"StallTimeout":       int64(in.StallTimeout),
		"RetryInterval":      int64(in.RetryInterval),
		"OutageTimeout":      int64(in.OutageTimeout),
		"ConnectionLifetime": int64(in.ConnectionLifetime),
		"WindowDuration":     int64(in.WindowDuration),
	}
	limits := reflect.ValueOf(in.Limits)
	for _, f := range reflect.VisibleFields(limits.Type()) {
		want[f.Name] = limits.FieldByIndex(f.Index).Int()
	}
	text := read(t, "docs/limits.md")
	documented := map[string]bool{}
	defaults := regexp.MustCompile("(?m)^\\| `(\\w+)` \\| [^|]+ \\| ([^|]+) \\|")
	for _, row := range defaults.FindAllStringSubmatch(text, -1) {
		name, value := row[1], amount(t, row[2])
		if def, known := want[name]; !known {
			t.Errorf("docs/limits.md lists %s, which is not a limit", name)
		} else if value != def {
			t.Errorf("docs/limits.md has the default %s for %s, but it is %d", row[2], name, def)
		}
		if documented[name] {
			t.Errorf("docs/limits.md lists %s twice", name)
		}
		documented[name] = true
	}
	for name := range want {
		if !documented[name] {
			t.Errorf("docs/limits.md lacks %s", name)
		}
	}
	_, fixed, _ := strings.Cut(text, "## What cannot be changed")
	rows := regexp.MustCompile(`(?m)^\| for .* \| (\d+ s) \|$`).FindAllStringSubmatch(fixed, -1)
	if len(rows) != len(chaingql.Fixed) {
		t.Fatalf("docs/limits.md lists %d fixed timeouts, but there are %d", len(rows), len(chaingql.Fixed))
	}
	for i, row := range rows {
		equal(t, row[0], time.Duration(amount(t, row[1])), chaingql.Fixed[i])
	}
}

// amount parses a documented number with its unit.
func amount(t *testing.T, text string) int64 {
	t.Helper()
	number, unit, _ := strings.Cut(text, " ")
	n, err := strconv.ParseInt(strings.ReplaceAll(number, ",", ""), 10, 64)
	if err != nil {
		t.Errorf("%q is not a number", text)
	}
	units := map[string]int64{"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "s": int64(time.Second)}
	if units[unit] == 0 {
		t.Errorf("%q has an unknown unit", text)
	}
	return n * units[unit]
}

// The parts of the documented worst-case memory follow from the default limits.
func TestDocumentedWorstCaseMemoryIsTheSumOfItsParts(t *testing.T) {
	l := chaingql.Defaults().Limits
	text := read(t, "docs/limits.md")
	_, text, _ = strings.Cut(text, "## Worst-case memory")
	text, _, _ = strings.Cut(text, "\n## ")
	stated := regexp.MustCompile(`at most ([\d,]+ MiB)`).FindStringSubmatch(text)
	rows := regexp.MustCompile(`(?m)^\| (.*) \| (\d+ MiB) \|$`).FindAllStringSubmatch(text, -1)
	want := worstCase(l)
	if len(stated) != 2 || len(rows) != len(want) {
		t.Fatalf("docs/limits.md has the sum %q with %d parts, want %d parts", stated, len(rows), len(want))
	}
	sum := int64(0)
	for i, row := range rows {
		part := amount(t, row[2])
		equal(t, row[1], part>>20, int64(want[i]+1<<20-1)>>20)
		sum += part
	}
	equal(t, "sum", sum, amount(t, stated[1]))
}
