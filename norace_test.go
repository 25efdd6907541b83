//go:build !race

package chaingql_test

const raceEnabled = false
