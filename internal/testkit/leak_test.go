package testkit

import (
	"strings"
	"testing"
	"time"
)

func TestLeakedGoroutinesAreReported(t *testing.T) {
	stay := make(chan struct{})
	ended := make(chan struct{})
	go func() { defer close(ended); <-stay }()
	const own = "testkit.TestLeakedGoroutinesAreReported.func"
	var report strings.Builder
	if code := CheckLeaks(0, &report, 0, "no such text", own); code != 1 || !strings.Contains(report.String(), own) {
		t.Errorf("with a leaked goroutine: got exit code %d, want 1, and report %q", code, &report)
	}
	report.Reset()
	if code := CheckLeaks(0, &report, 0, "no such text"); code != 0 || report.Len() > 0 {
		t.Errorf("with a leaked goroutine that does not count: got exit code %d, want 0, and report %q", code, &report)
	}
	if code := CheckLeaks(3, &report, 0, own); code != 3 || report.Len() > 0 {
		t.Errorf("after failed tests: got exit code %d, want 3, and report %q", code, &report)
	}
	time.AfterFunc(30*time.Millisecond, func() { close(stay) })
	if code := CheckLeaks(0, &report, 10*time.Second, own); code != 0 {
		t.Errorf("with a goroutine that is about to end: got exit code %d, want 0, and report %q", code, &report)
	}
	<-ended
}
