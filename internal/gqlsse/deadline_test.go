package gqlsse_test

import (
	"io"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql/internal/gqlsse"
)

// A noDeadline is a ResponseWriter that fails the test if a deadline is set.
type noDeadline struct {
	*httptest.ResponseRecorder
	t *testing.T
}

func (h noDeadline) SetWriteDeadline(at time.Time) error {
	h.t.Errorf("SetWriteDeadline(%v) was called, want no deadline", at)
	return nil
}

func TestServeSetsNoDeadlineWithoutWriteTimeout(t *testing.T) {
	s := newScript()
	s.put(io.EOF, event("1", "a"))
	w := noDeadline{httptest.NewRecorder(), t}
	if err := gqlsse.Serve(t.Context(), w, gqlsse.Options{}, s.wake, s); err != nil {
		t.Error(err)
	}
}

// A deadlineWriter is a ResponseWriter that records the deadline of each write.
type deadlineWriter struct {
	*httptest.ResponseRecorder
	deadline  time.Time
	deadlines []time.Time
}

func (w *deadlineWriter) SetWriteDeadline(at time.Time) error {
	w.deadline = at
	return nil
}

func (w *deadlineWriter) Write(p []byte) (int, error) {
	w.deadlines = append(w.deadlines, w.deadline)
	time.Sleep(time.Second / 100) // for the client
	return w.ResponseRecorder.Write(p)
}

// expect compares the deadlines of the writes, as durations since start.
func (w *deadlineWriter) expect(t *testing.T, start time.Time, want ...time.Duration) {
	t.Helper()
	var got []time.Duration
	for _, at := range w.deadlines {
		got = append(got, at.Sub(start))
	}
	if !slices.Equal(got, want) {
		t.Errorf("the deadlines of the writes are %v, want %v", got, want)
	}
	if !w.deadline.IsZero() {
		t.Errorf("a deadline remains after the last write")
	}
}

func TestWritesAfterCutHaveCutTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		s.put(io.EOF)
		w, start := &deadlineWriter{ResponseRecorder: httptest.NewRecorder()}, time.Now()
		cut := make(chan struct{})
		close(cut)
		o := gqlsse.Options{WriteTimeout: time.Minute, Cut: cut}
		if err := gqlsse.Serve(t.Context(), w, o, s.wake, s); err != nil {
			t.Fatal(err)
		}
		w.expect(t, start, gqlsse.CutTimeout, gqlsse.CutTimeout+10*time.Millisecond) // the first comment and complete
	})
}

// Progress must not replace the deadline that ends a write in progress.
func TestCutAppliesToTheRestOfAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript()
		s.put(io.EOF, event("", strings.Repeat("x", 60<<10)))
		w, start := &deadlineWriter{ResponseRecorder: httptest.NewRecorder()}, time.Now()
		cut, pieces := make(chan struct{}), 0
		progress := func(int) bool {
			if pieces++; pieces == 3 { // the comment and two pieces of the event
				close(cut)
			}
			return true
		}
		o := gqlsse.Options{WriteTimeout: time.Second, Cut: cut, Progress: progress}
		if err := gqlsse.Serve(t.Context(), w, o, s.wake, s); err != nil {
			t.Fatal(err)
		}
		const ms = time.Millisecond
		w.expect(t, start, 1000*ms, 1010*ms, 1020*ms, 130*ms, 130*ms, 150*ms) // the last one for complete
	})
}
