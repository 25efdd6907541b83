//go:build race

package testkit

// RaceEnabled reports whether the race detector is enabled.
const RaceEnabled = true
