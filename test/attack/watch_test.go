package attack

import (
	"testing"
	"time"
)

func TestVerdictIgnoresWaitsCausedByOtherPrograms(t *testing.T) {
	for name, row := range map[string]struct {
		gap, cpu time.Duration
		late     bool
	}{
		"busy longer than the limit":   {3 * time.Second, 3 * time.Second, true},
		"other programs use the cores": {9 * time.Second, time.Second, false},
		"many cores in a short gap":    {100 * time.Millisecond, 6 * time.Second, false},
		"idle longer than the limit":   {11 * time.Second, 0, true},
		"many cores in a long gap":     {3 * time.Second, 40 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			var w watcher
			w.waited(row.gap, row.cpu)
			w.waited(time.Millisecond, time.Millisecond)
			if err := w.verdict(); (err != nil) != row.late {
				t.Errorf("verdict %v, want late: %t", err, row.late)
			}
		})
	}
}
