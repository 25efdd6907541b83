//go:build race

package chaingql_test

const raceEnabled = true
