package main

import (
	"fmt"
	"io"
	"strings"
)

// A report consists of tables with results, and of a table that compares some results with targets.
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

// atLeast records a value that should be at least as high as its target.
func (r *report) atLeast(measure string, got, target float64) {
	r.target(measure, got, fmt.Sprintf("≥ %g", target), got >= target)
}

// atMost records a value that should be at most as high as its target.
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

// figure formats a number with about three significant digits.
func figure(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// write writes the report in Markdown: the facts about the run, the targets and then all tables.
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

const preamble = "Costs are the CPU time of the server process (getrusage), including garbage collection. " +
	`One run measures all servers
alternately, in rounds. Each figure is the median of the rounds, and each ratio is the median of the ratios of the
rounds: the speed of the machine changes over time, but the ratios hardly do.
`

func (t *table) write(b *strings.Builder) {
	if len(t.rows) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## %s\n\n| %s |\n|%s\n", t.title, strings.Join(t.header, " | "),
		strings.Repeat("---|", len(t.header)))
	for _, row := range t.rows {
		fmt.Fprintf(b, "| %s |\n", strings.Join(row, " | "))
	}
	for _, note := range t.notes {
		fmt.Fprintf(b, "\n%s\n", note)
	}
}
