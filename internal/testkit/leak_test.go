package testkit

import (
	"strings"
	"testing"
	"time"
)

func TestGoroutinesLeftBehindAreReported(t *testing.T) {
	stay := make(chan struct{})
	ended := make(chan struct{})
	go func() { defer close(ended); <-stay }()
	const own = "testkit.TestGoroutinesLeftBehindAreReported.func"
	var said strings.Builder
	if code := CheckLeaks(0, &said, 0, "nobody", own); code != 1 || !strings.Contains(said.String(), own) {
		t.Errorf("code %d, said %s", code, &said)
	}
	said.Reset()
	if code := CheckLeaks(0, &said, 0, "nobody"); code != 0 || said.Len() > 0 {
		t.Errorf("of others: code %d, said %s", code, &said)
	}
	if code := CheckLeaks(3, &said, 0, own); code != 3 || said.Len() > 0 {
		t.Errorf("after a failure: code %d, said %s", code, &said)
	}
	time.AfterFunc(30*time.Millisecond, func() { close(stay) })
	if code := CheckLeaks(0, &said, 10*time.Second, own); code != 0 {
		t.Errorf("while one is on its way out: code %d, said %s", code, &said)
	}
	<-ended
}
