package main

import (
	"context"
	"runtime"
	"slices"
	"syscall"
	"time"
)

// A contender is measured alternately with others.
type contender struct {
	name  string
	slice func() (float64, error) // returns the cost measured in one round
}

// costs maps each contender to its cost per round.
type costs map[string][]float64

// inTurns runs every contender once per round, so that a slow machine affects all of them.
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

// median returns the median cost of a contender.
func (c costs) median(name string) float64 { return median(c[name]) }

// ratio returns the median over the rounds of a's cost divided by b's.
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

// cpu returns the CPU time of this process.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // RUSAGE_SELF does not fail
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// spent returns the CPU time of one of n calls in microseconds, including garbage collection.
func spent(n int, f func(i int)) float64 {
	runtime.GC() // collects garbage of the previous contender
	before := cpu()
	for i := range n {
		f(i)
	}
	return float64((cpu() - before).Nanoseconds()) / 1e3 / float64(n)
}

// calls returns the number of calls of f that take d.
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
