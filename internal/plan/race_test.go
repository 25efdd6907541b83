//go:build race

package plan

// raceEnabled reports whether the race detector is enabled. If it is, a sync.Pool drops values at random.
const raceEnabled = true
