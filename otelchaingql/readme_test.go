package otelchaingql_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/chaingql/chaingql/otelchaingql"
)

// TestReadmeListsAllMetrics compares the table in the README with the metrics: names, kinds, units and attributes. The
// table shows optional attributes in brackets.
func TestReadmeListsAllMetrics(t *testing.T) {
	plain, all := metered(t, otelchaingql.Options{}), metered(t,
		otelchaingql.Options{Projects: true, OperationNames: []string{"Mine"}})
	plain.everything()
	all.everything()
	always := map[string][]attribute.Key{}
	for _, metric := range plain.collect() {
		_, always[metric.Name] = kindOf(t, metric.Data)
	}
	var want []string
	for _, metric := range all.collect() {
		kind, keys := kindOf(t, metric.Data)
		names := []string{}
		for _, key := range keys {
			name := "`" + string(key) + "`"
			if !slices.Contains(always[metric.Name], key) {
				name = "[" + name + "]"
			}
			names = append(names, name)
		}
		want = append(want, fmt.Sprintf("| `%s` | %s | `%s` | %s |", metric.Name, kind, metric.Unit,
			strings.Join(names, " ")))
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(readme)) {
		if cells := strings.Split(line, " | "); strings.HasPrefix(line, "| `chaingql.") && len(cells) == 5 {
			got = append(got, strings.Join(cells[:4], " | ")+" |")
		}
	}
	slices.Sort(want)
	if !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("README.md lists these metrics:\n%s\nwant, sorted by name:\n%s",
			strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// kindOf returns the kind of a metric and the attribute keys of its measurements.
func kindOf(t *testing.T, data metricdata.Aggregation) (kind string, keys []attribute.Key) {
	t.Helper()
	add := func(set attribute.Set) {
		for _, a := range set.ToSlice() {
			if !slices.Contains(keys, a.Key) {
				keys = append(keys, a.Key)
			}
		}
	}
	switch data := data.(type) {
	case metricdata.Sum[int64]:
		kind = map[bool]string{true: "counter", false: "up-down counter"}[data.IsMonotonic]
		for _, p := range data.DataPoints {
			add(p.Attributes)
		}
	case metricdata.Gauge[int64]:
		kind = "gauge"
		for _, p := range data.DataPoints {
			add(p.Attributes)
		}
	case metricdata.Gauge[float64]:
		kind = "gauge"
		for _, p := range data.DataPoints {
			add(p.Attributes)
		}
	case metricdata.Histogram[float64]:
		kind = "histogram"
		for _, p := range data.DataPoints {
			add(p.Attributes)
		}
	default:
		t.Errorf("unexpected type %T of metric data", data)
	}
	slices.Sort(keys)
	return kind, keys
}
