package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

// A panel is a Grafana panel: its title, its nested panels, and its Prometheus queries.
type panel struct {
	Title   string
	Panels  []panel
	Targets []struct{ Expr, LegendFormat string }
}

type dashboard struct {
	Panels     []panel
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
}

// An inventory maps the name of each series to the labels of the series and their values.
type inventory map[string]map[string][]string

// inventory returns the series in the registry, including the labels that Prometheus adds.
func (tr *trial) inventory() inventory {
	tr.t.Helper()
	families, err := tr.tel.registry.Gather()
	if err != nil {
		tr.t.Fatal(err)
	}
	all := inventory{}
	for _, family := range families {
		names := []string{family.GetName()}
		for _, m := range family.GetMetric() {
			known := map[string][]string{"job": {"any"}, "instance": {"any"}}
			for _, l := range m.GetLabel() {
				known[l.GetName()] = []string{l.GetValue()}
			}
			if m.GetHistogram() != nil {
				names = []string{family.GetName() + "_bucket", family.GetName() + "_sum", family.GetName() + "_count"}
			}
			for _, name := range names {
				if all[name] == nil {
					all[name] = map[string][]string{}
				}
				for label, values := range known {
					all[name][label] = append(all[name][label], values...)
				}
				if strings.HasSuffix(name, "_bucket") {
					all[name]["le"] = []string{"any"}
				}
			}
		}
	}
	return all
}

// check returns in wrong the series and labels that expr uses although they do not exist. It returns in by the labels
// of the result.
func (all inventory) check(expr string) (by []string, wrong []string) {
	replaced := strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h").Replace(expr)
	tree, err := parser.NewParser(parser.Options{}).ParseExpr(replaced)
	if err != nil {
		return nil, []string{err.Error()}
	}
	parser.Inspect(tree, func(node parser.Node, path []parser.Node) error {
		v, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		known := all[v.Name]
		if known == nil {
			wrong = append(wrong, "unknown series "+v.Name)
			return nil
		}
		for _, m := range v.LabelMatchers {
			if m.Name == "__name__" {
				continue
			}
			values := known[m.Name]
			if values == nil {
				wrong = append(wrong, fmt.Sprintf("%s has no label %s", v.Name, m.Name))
			} else if !strings.Contains(m.Value, "$") && !slices.ContainsFunc(values, m.Matches) {
				wrong = append(wrong, fmt.Sprintf("%s is never %s", v.Name, m))
			}
		}
		for _, above := range path {
			sum, ok := above.(*parser.AggregateExpr)
			if !ok {
				continue
			}
			if sum.Without {
				wrong = append(wrong, "the check does not support without")
			}
			by = append(by, sum.Grouping...)
			for _, label := range sum.Grouping {
				if known[label] == nil {
					wrong = append(wrong, fmt.Sprintf("%s has no label %s", v.Name, label))
				}
			}
		}
		return nil
	})
	return by, wrong
}

func TestDashboardUsesExistingSeries(t *testing.T) {
	tr := start(t)
	tr.everything()
	all := tr.inventory()
	text, err := os.ReadFile("../dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	var walk func([]panel)
	walk = func(panels []panel) {
		for _, p := range panels {
			walk(p.Panels)
			for _, target := range p.Targets {
				by, wrong := all.check(target.Expr)
				for _, w := range wrong {
					t.Errorf("panel %q: %s, in %s", p.Title, w, target.Expr)
				}
				for _, label := range legend.FindAllStringSubmatch(target.LegendFormat, -1) {
					if !slices.Contains(by, label[1]) {
						t.Errorf("panel %q: the legend uses the label %s, which is not in the result of %s", p.Title,
							label[1], target.Expr)
					}
				}
				for name := range all {
					if regexp.MustCompile(`\b` + name + `\b`).MatchString(target.Expr) {
						shown[strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"),
							"_count")] = true
					}
				}
			}
		}
	}
	walk(d.Panels)
	for name := range all {
		base := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
		if strings.HasPrefix(name, "chaingql_") && !shown[base] {
			t.Errorf("no panel shows %s", base)
		}
	}
	for _, v := range d.Templating.List {
		asked := question.FindStringSubmatch(v.Definition)
		if v.Type != "query" {
			continue
		}
		if asked == nil {
			t.Errorf("variable %s has the definition %q", v.Name, v.Definition)
			continue
		}
		if _, wrong := all.check("sum by (" + asked[2] + ") (" + asked[1] + ")"); wrong != nil {
			t.Errorf("variable %s: %v", v.Name, wrong)
		}
	}
}

var (
	legend   = regexp.MustCompile(`{{(\w+)}}`)
	question = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)
)

// TestDashboardCheckFindsErrors shows that the check of TestDashboardUsesExistingSeries can fail.
func TestDashboardCheckFindsErrors(t *testing.T) {
	all := inventory{"a_total": {"b": {"x"}, "job": {"any"}}}
	for expr, want := range map[string]string{
		`sum by (b) (rate(a_total{b="x", job=~"$job"}[$__rate_interval]))`: "",
		`a_total{b="y"}`:            "never",
		`a_total{c="x"}`:            "no label c",
		`a_total{b!="x"}`:           "never",
		`sum by (c) (a_total)`:      "no label c",
		`rate(b_total[5m])`:         "unknown series b_total",
		`rate(a_total`:              "parse error",
		`sum without (b) (a_total)`: "does not support without",
	} {
		_, wrong := all.check(expr)
		if got := fmt.Sprint(wrong); want == "" && wrong != nil || !strings.Contains(got, want) {
			t.Errorf("check of %s found %v, want %q", expr, got, want)
		}
	}
}
