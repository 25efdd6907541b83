package main

import (
	"fmt"
	"io"
	"strings"
)

// A report holds tables of results, and the targets with the values reached.
type report struct {
	tables  []*table
	targets table
	log     io.Writer // progress output
	missed  int
}

func newReport(log io.Writer) *report {
	return &report{log: log, targets: table{title: "Targets", header: []string{"measure", "measured", "target", ""}}}
}

// A table is a Markdown table.
type table struct {
	title  string
	header []string
	rows   [][]string
	notes  []string
}

func (r *report) table(title string, header ...string) *table {
	t := &table{title: title, header: header}
	r.tables = append(r.tables, t)
	fmt.Fprintln(r.log, "== "+title)
	return t
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }
func (t *table) note(text string)    { t.notes = append(t.notes, text) }

// atLeast records a value that should reach its target.
func (r *report) atLeast(measure string, got, target float64) {
	r.target(measure, got, fmt.Sprintf("≥ %g", target), got >= target)
}

// atMost records a value that should not exceed its target.
func (r *report) atMost(measure string, got, target float64) {
	r.target(measure, got, fmt.Sprintf("≤ %g", target), got <= target)
}

func (r *report) target(measure string, got float64, target string, met bool) {
	verdict := "met"
	if !met {
		verdict = "**missed**"
		r.missed++
	}
	r.targets.add(measure, figure(got), target, verdict)
	fmt.Fprintf(r.log, "%-75s %10s  %-8s %s\n", measure, figure(got), target, verdict)
}

// figure formats a number with about three digits.
func figure(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// write writes the whole report, targets first.
func (r *report) write(w io.Writer, facts [][2]string) error {
	var b strings.Builder
	b.WriteString("# Measured\n\n" + preamble + "\n")
	for _, f := range facts {
		fmt.Fprintf(&b, "- %s: %s\n", f[0], f[1])
	}
	for _, t := range append([]*table{&r.targets}, r.tables...) {
		t.write(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

const preamble = `Costs are processor time (getrusage), garbage collection included, of the process that serves. Contenders take
turns in one run and medians are shown; a ratio is the median of the turns' ratios. The machine's speed drifts, the
ratios hardly do.
`

func (t *table) write(b *strings.Builder) {
	if len(t.rows) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## %s\n\n| %s |\n|%s\n", t.title, strings.Join(t.header, " | "), strings.Repeat("---|", len(t.header)))
	for _, row := range t.rows {
		fmt.Fprintf(b, "| %s |\n", strings.Join(row, " | "))
	}
	for _, note := range t.notes {
		fmt.Fprintf(b, "\n%s\n", note)
	}
}
