package soak_test

import (
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A histogram counts durations from one microsecond up, in steps of 5 %.
type histogram [400]atomic.Int64

func (h *histogram) add(d time.Duration) {
	step := int(math.Log(max(1, float64(d)/1e3)) / math.Log(1.05))
	h[min(step, len(h)-1)].Add(1)
}

// below returns the duration that a share of the samples does not exceed.
func (h *histogram) below(share float64) time.Duration {
	var all, sum int64
	for i := range h {
		all += h[i].Load()
	}
	for i := range h {
		if sum += h[i].Load(); all > 0 && float64(sum) >= share*float64(all) {
			return time.Duration(1e3 * math.Pow(1.05, float64(i+1))).Round(10 * time.Microsecond)
		}
	}
	return 0
}

func (h *histogram) String() string {
	return fmt.Sprintf("p50 %v, p99 %v", h.below(0.5), h.below(0.99))
}

// counts counts events by name.
type counts struct {
	mu sync.Mutex
	of map[string]int
}

func (c *counts) add(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[string]int{}
	}
	c.of[what]++
}

func (c *counts) sum() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.of {
		n += m
	}
	return n
}

func (c *counts) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []string
	for _, what := range slices.Sorted(maps.Keys(c.of)) {
		all = append(all, fmt.Sprintf("%s: %d", what, c.of[what]))
	}
	return strings.Join(all, ", ")
}

// A meter measures the CPU time of two processes and of the machine.
type meter struct {
	pids          [2]int
	own           [2]float64
	machine, busy float64
}

// A share is the used part of the machine's CPU time: by both processes, by the service alone, and
// by other processes without a positive nice value.
type share struct{ both, service, others float64 }

// since returns the share since the previous call.
func (m *meter) since() (share, error) {
	before := *m
	for i, pid := range m.pids {
		fields, err := stat(fmt.Sprintf("/proc/%d/stat", pid), ") ")
		if err != nil {
			return share{}, err
		}
		m.own[i] = fields[11] + fields[12]
	}
	fields, err := stat("/proc/stat", "cpu ")
	if err != nil {
		return share{}, err
	}
	m.machine = 0
	for _, ticks := range fields[:8] {
		m.machine += ticks
	}
	m.busy = m.machine - fields[1] - fields[3] - fields[4] // without nice, idle and iowait time
	all := max(1, m.machine-before.machine)
	service := (m.own[1] - before.own[1]) / all
	both := service + (m.own[0]-before.own[0])/all
	return share{both, service, max(0, (m.busy-before.busy)/all-both)}, nil
}

// mean returns the mean of n shares with mean s and one more.
func (s share) mean(n float64, next share) share {
	of := func(a, b float64) float64 { return (a*n + b) / (n + 1) }
	return share{of(s.both, next.both), of(s.service, next.service), of(s.others, next.others)}
}

func (s share) String() string {
	return fmt.Sprintf("%.0f %% busy (the service %.0f %%, others %.0f %%)", 100*s.both, 100*s.service, 100*s.others)
}

// stat reads the numbers after mark in the first line of a file.
func stat(path, mark string) (fields []float64, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	_, rest, _ := strings.Cut(line, mark)
	for word := range strings.FieldsSeq(rest) {
		n, _ := strconv.ParseFloat(word, 64) // fields that are not numbers count as 0
		fields = append(fields, n)
	}
	if len(fields) < 13 && mark == ") " || len(fields) < 8 {
		return nil, fmt.Errorf("%s: unexpected line %q", path, line)
	}
	return fields, nil
}
