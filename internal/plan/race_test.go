//go:build race

package plan

// Pools are emptied at random under the race detector.
const raceEnabled = true
