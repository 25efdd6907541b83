//go:build !race

package plan

// raceEnabled reports whether the race detector is enabled.
const raceEnabled = false
