// Command compare compares the speed of this source tree with that of an earlier commit.
//
//	make compare BASE=<commit>
//
// The command builds the worker program with both trees. It runs the same work in the two processes
// alternately and reverses their order after each round. For each kind of work, it prints the median of
// the ratios of the rounds and the 95 % confidence interval of this median. The command fails if the
// upper end of an interval is 1.03 or higher, so if this tree may need 3 % more than the earlier commit.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// A work is one kind of work. Each round repeats it as often as times says.
type work struct {
	name, unit string
	times      int
}

var works = []work{
	{"balance", "ns of CPU", 20000},
	{"latest", "ns of CPU", 20000},
	{"last50", "ns of CPU", 4000},
	{"fanout", "ns of CPU per block and subscriber", 150},
	{"memory", "bytes per idle socket", 500},
}

// maxRatio is the ratio that each interval must stay below.
const maxRatio = 1.03

func main() {
	base := flag.String("base", "", "the earlier commit")
	rounds := flag.Int("rounds", 24, "number of rounds, at least 20")
	only := flag.String("only", "", "measure only this kind of work")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *base, *rounds, *only, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, base string, rounds int, only string, out io.Writer) error {
	if base == "" || rounds < 20 {
		return fmt.Errorf("-base is required, and -rounds must be at least 20")
	}
	dir, err := os.MkdirTemp("", "compare")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	root, err := output(ctx, "", "git", "rev-parse", "--show-toplevel")
	if err != nil {
		return err
	}
	earlier := filepath.Join(dir, "earlier")
	if _, err := output(ctx, root, "git", "worktree", "add", "--quiet", "--detach", earlier, base); err != nil {
		return err
	}
	defer func() { // also if ctx is canceled
		_, _ = output(context.WithoutCancel(ctx), root, "git", "worktree", "remove", "--force", earlier)
	}()
	a, err := start(ctx, root, dir, "a", earlier)
	if err != nil {
		return err
	}
	defer a.stop()
	b, err := start(ctx, root, dir, "b", root)
	if err != nil {
		return err
	}
	defer b.stop()

	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "work\tunit\t%s\tnow\tratio\t95 %% interval\n", base)
	var slower []string
	for _, w := range works {
		if only != "" && only != w.name {
			continue
		}
		before, now, ratios, err := measure(ctx, a, b, w, rounds)
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		low, high := interval(ratios)
		fmt.Fprintf(table, "%s\t%s\t%.0f\t%.0f\t%.3f\t%.3f to %.3f\n", w.name, w.unit, median(before), median(now),
			median(ratios), low, high)
		if high >= maxRatio {
			slower = append(slower, w.name)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if len(slower) > 0 {
		return fmt.Errorf("the confidence interval of the ratio reaches %v for %s", maxRatio,
			strings.Join(slower, ", "))
	}
	return nil
}

// measure runs the same work in both processes alternately. It returns the costs of process a, the costs
// of process b and their ratios, each with one element per round.
func measure(ctx context.Context, a, b *process, w work, rounds int) (before, now, ratios []float64, err error) {
	for i := range rounds + 1 {
		var cost [2]float64
		for turn := range 2 {
			which := (turn + i) % 2
			if cost[which], err = []*process{a, b}[which].do(w); err != nil {
				return nil, nil, nil, err
			}
		}
		if err := ctx.Err(); err != nil {
			return nil, nil, nil, err
		}
		if i > 0 { // the first round is a warm-up
			before, now, ratios = append(before, cost[0]), append(now, cost[1]), append(ratios, cost[1]/cost[0])
		}
	}
	return before, now, ratios, nil
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// interval returns the 95 % confidence interval of the median. It uses order statistics, because the
// number of values below the median has a binomial distribution.
func interval(values []float64) (low, high float64) {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	k := 0 // at the end, P(at most k-1 values are below the median) is at most 2.5 %
	for chance := math.Pow(0.5, float64(n)); chance <= 0.025; k++ {
		term := 1.0
		for i := range k + 1 {
			term *= float64(n-i) / float64(i+1)
		}
		chance += term * math.Pow(0.5, float64(n))
	}
	k = max(0, k-1)
	return sorted[k], sorted[n-1-k]
}

// A process is a worker program that was built with one source tree.
type process struct {
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Scanner
}

// start builds and starts the worker. The source of the worker comes from root, and chaingql comes from
// tree.
func start(ctx context.Context, root, dir, name, tree string) (*process, error) {
	module := filepath.Join(dir, name)
	if err := os.Mkdir(module, 0o755); err != nil {
		return nil, err
	}
	text := "module worker\n\ngo 1.25.0\n\nrequire github.com/chaingql/chaingql v0.0.0\n\n" +
		"replace github.com/chaingql/chaingql => " + tree + "\n"
	if err := os.WriteFile(filepath.Join(module, "go.mod"), []byte(text), 0o644); err != nil {
		return nil, err
	}
	for to, from := range map[string]string{
		"go.sum": filepath.Join(tree, "go.sum"), "main.go": filepath.Join(root, "test/bench/compare/worker/main.go"),
	} {
		content, err := os.ReadFile(from)
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(module, to), content, 0o644); err != nil {
			return nil, err
		}
	}
	if _, err := output(ctx, module, "go", "build", "-mod=mod", "-o", "worker"); err != nil {
		return nil, err
	}
	p := &process{command: exec.CommandContext(ctx, filepath.Join(module, "worker"))}
	p.command.Stderr = os.Stderr
	var err error
	if p.in, err = p.command.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewScanner(out)
	return p, p.command.Start()
}

// do runs w in the worker and returns the cost of one repetition.
func (p *process) do(w work) (float64, error) {
	if _, err := fmt.Fprintln(p.in, w.name, w.times); err != nil {
		return 0, err
	}
	if !p.out.Scan() {
		return 0, fmt.Errorf("the worker exited before it replied: %w", p.out.Err())
	}
	return strconv.ParseFloat(p.out.Text(), 64)
}

// stop closes the worker's input and waits until it exits.
func (p *process) stop() {
	_ = p.in.Close()
	_ = p.command.Wait()
}

// output runs a command and returns its output without surrounding white space.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = dir
	text, err := c.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, text)
	}
	return strings.TrimSpace(string(text)), nil
}
