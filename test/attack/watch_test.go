package attack

import (
	"testing"
	"time"
)

func TestBlockIsLateByWhatTheServerDoesMeanwhile(t *testing.T) {
	for name, row := range map[string]struct {
		gap, effort time.Duration
		late        bool
	}{
		"it is busy with something else":    {3 * time.Second, 3 * time.Second, true},
		"others have the processors":        {9 * time.Second, time.Second, false},
		"it has many processors":            {100 * time.Millisecond, 6 * time.Second, false},
		"nobody knows what it is doing":     {11 * time.Second, 0, true},
		"it has many, and is busy for long": {3 * time.Second, 40 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			var w watcher
			w.waited(row.gap, row.effort)
			w.waited(time.Millisecond, time.Millisecond)
			if err := w.verdict(); (err != nil) != row.late {
				t.Errorf("it says %v", err)
			}
		})
	}
}
