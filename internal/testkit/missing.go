package testkit

import (
	"os"
	"testing"
)

// Missing skips a test because this machine lacks something that the test needs, such as a program. If the environment
// variable CI is true, the test fails instead: there, everything must be installed.
func Missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s is missing", what)
	}
	t.Skipf("%s is missing", what)
}
