package attack

import (
	"testing"
	"time"
)

func TestWatcherIgnoresDelaysCausedByOtherPrograms(t *testing.T) {
	for name, row := range map[string]struct {
		gap, cpu time.Duration
		late     bool
	}{
		"server busy longer than the limit":        {3 * time.Second, 3 * time.Second, true},
		"other programs busy":                      {9 * time.Second, time.Second, false},
		"server busy on many cores in a short gap": {100 * time.Millisecond, 6 * time.Second, false},
		"server idle longer than the limit":        {11 * time.Second, 0, true},
		"server busy on many cores in a long gap":  {3 * time.Second, 40 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			var w watcher
			w.waited(row.gap, row.cpu)
			w.waited(time.Millisecond, time.Millisecond)
			if err := w.verdict(); (err != nil) != row.late {
				t.Errorf("verdict is %v, want an error: %t", err, row.late)
			}
		})
	}
}
