package main

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

// A contender is one of several alternatives with costs to compare.
type contender struct {
	name    string
	measure func() (float64, error) // measures the cost once
}

// costs maps the name of each contender to its costs, one for each round.
type costs map[string][]float64

// alternate measures every contender once per round. If the machine becomes slower or faster during the
// run, this therefore affects all contenders.
func alternate(ctx context.Context, rounds int, contenders []contender) (costs, error) {
	all := costs{}
	for range rounds {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for _, c := range contenders {
			v, err := c.measure()
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

// ratio divides the cost of contender a by that of b in each round, and returns the median of these
// ratios.
func (c costs) ratio(a, b string) float64 {
	var all []float64
	for i, v := range c[a] {
		all = append(all, v/c[b][i])
	}
	return median(all)
}

// median returns the median of the values, or 0 if there are none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// cpu returns the CPU time that this process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // RUSAGE_SELF does not fail
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// cpuPerCall calls f n times. It returns the CPU time per call in microseconds, which includes garbage
// collection.
func cpuPerCall(n int, f func(i int)) float64 {
	runtime.GC() // collects the garbage of the previous contender, so that it does not count
	before := cpu()
	for i := range n {
		f(i)
	}
	return float64((cpu() - before).Nanoseconds()) / 1e3 / float64(n)
}

// cpuPerCallOf is like cpuPerCall, but divides the n calls among concurrent workers. It passes the number of
// the worker to f.
func cpuPerCallOf(workers, n int, f func(worker int)) float64 {
	each := max(1, n/workers)
	runtime.GC()
	before := cpu()
	var all sync.WaitGroup
	for worker := range workers - 1 {
		all.Go(func() {
			for range each {
				f(worker + 1)
			}
		})
	}
	for range each {
		f(0)
	}
	all.Wait()
	return float64((cpu() - before).Nanoseconds()) / 1e3 / float64(workers*each)
}

// callsIn returns how often f can be called within the duration d.
func callsIn(d time.Duration, f func(i int)) int {
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
