package main

import (
	"context"
	"runtime"
	"slices"
	"syscall"
	"time"
)

// A contender is one of those that take turns.
type contender struct {
	name  string
	slice func() (float64, error) // what one turn measured
}

// costs are what each contender's turns measured, round by round.
type costs map[string][]float64

// inTurns gives each contender one turn a round, so that whatever slows the
// machine down meets all of them.
func inTurns(ctx context.Context, rounds int, contenders []contender) (costs, error) {
	all := costs{}
	for range rounds {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for _, c := range contenders {
			v, err := c.slice()
			if err != nil {
				return nil, err
			}
			all[c.name] = append(all[c.name], v)
		}
	}
	return all, nil
}

// median is a contender's.
func (c costs) median(name string) float64 { return median(c[name]) }

// ratio is how often b's cost is in a's: the median of the rounds' ratios.
func (c costs) ratio(a, b string) float64 {
	var all []float64
	for i, v := range c[a] {
		all = append(all, v/c[b][i])
	}
	return median(all)
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// cpu is the time that the processors have spent on this process.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // it knows no errors for oneself
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// spent is the processor time of one of n calls, garbage collection included,
// in microseconds.
func spent(n int, f func(i int)) float64 {
	runtime.GC() // of what the contender before has left
	before := cpu()
	for i := range n {
		f(i)
	}
	return float64((cpu() - before).Nanoseconds()) / 1e3 / float64(n)
}

// calls is how many calls of f fill a time.
func calls(d time.Duration, f func(i int)) int {
	for n := 16; ; n *= 2 {
		start := time.Now()
		for i := range n {
			f(i)
		}
		if took := time.Since(start); took > d/8 || n > 1<<24 {
			return max(1, int(float64(n)*float64(d)/float64(took)))
		}
	}
}
