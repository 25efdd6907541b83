package guard

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A slowHandler is a slog.Handler that takes ten milliseconds for each line.
type slowHandler struct {
	slog.Handler
	lines *atomic.Int64
}

func (slowHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h slowHandler) Handle(context.Context, slog.Record) error {
	time.Sleep(10 * time.Millisecond)
	h.lines.Add(1)
	return nil
}

// Failures that come while Shutdown writes the held lines must not make it wait for their own line.
func TestFlushWaitsOnlyForLinesThatAreBeingWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines atomic.Int64
		l := NewFailureLog(slog.New(slowHandler{lines: &lines}))
		fail := func() { l.Report(t.Context(), "failed", errors.New("down")) }
		for range linesPerSecond + 1 {
			fail()
		}
		begun := time.Now()
		for range 2 {
			go func() {
				l.Flush()
				if took := time.Since(begun); took != 10*time.Millisecond || lines.Load() != linesPerSecond+1 {
					t.Errorf("Flush returned after %v and %d lines, want 10ms and %d lines",
						took, lines.Load(), linesPerSecond+1)
				}
			}()
		}
		synctest.Wait()
		fail()
		time.Sleep(time.Second)
		synctest.Wait()
		if n := lines.Load(); n != linesPerSecond+2 {
			t.Errorf("%d lines were written, want %d", n, linesPerSecond+2)
		}
	})
}
