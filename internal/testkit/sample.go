package testkit

import (
	"iter"
	"os"
	"strconv"
	"testing"
)

// Sample returns how many of n random cases a test runs, and logs it: a quarter, or an eighth under the race detector,
// which makes each case about ten times slower. If the environment variable CHAINGQL_CASES is "all", as in make models,
// it returns n.
func Sample(t testing.TB, n int) int {
	t.Helper()
	return part(t, n, 4)
}

// RaceSample is like [Sample], but returns n without the race detector. It is for tests whose cases are cheap without.
func RaceSample(t testing.TB, n int) int {
	t.Helper()
	return part(t, n, 1)
}

func part(t testing.TB, n, divisor int) int {
	t.Helper()
	if RaceEnabled {
		divisor = 8
	}
	if os.Getenv("CHAINGQL_CASES") == "all" || divisor == 1 {
		return n
	}
	t.Logf("runs %d of %d random cases; make models runs all", n/divisor, n)
	return n / divisor
}

// Seeds yields the seeds of n random cases: n successive numbers, from the environment variable CHAINGQL_SEED on, or
// from 0. Faults that need a rare order of events are found with seeds that nobody has used: make models SEED=1000.
func Seeds(t testing.TB, n int) iter.Seq[uint64] {
	t.Helper()
	first := uint64(0)
	if text := os.Getenv("CHAINGQL_SEED"); text != "" {
		var err error
		if first, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("CHAINGQL_SEED: %v", err)
		}
	}
	return func(yield func(uint64) bool) {
		for i := range uint64(n) {
			if !yield(first + i) {
				return
			}
		}
	}
}
