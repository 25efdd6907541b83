//go:build race

package liteservertest_test

const raceEnabled = true
