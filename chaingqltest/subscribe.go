package chaingqltest

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Timeout is the time for which [Subscribe] and [Chain.Advance] wait before they fail the test. In a bubble of
// testing/synctest, it is measured by the bubble's clock.
const Timeout = 10 * time.Second

// Subscribe opens a subscription and returns its events. Each event has data, or errors as [Errors], or both. variables
// may be nil.
//
// When Subscribe returns, the subscription is open: it receives all blocks that are appended to the chain of [NewChain]
// afterwards. The subscription ends when the loop over the events ends, or at the end of the test. A second loop over
// the events receives nothing. If the subscription ends by itself, the loop ends too. Unless the subscription was
// complete, the last event then has the error that ended it.
//
// If the loop waits for an event longer than [Timeout], the test fails. Because the loop then calls t.FailNow, it must
// run on the goroutine of the test. In a bubble of testing/synctest, the timeout uses
// the bubble's clock: if an event comes later than that, call time.Sleep before the loop.
func Subscribe(t testing.TB, h http.Handler, document string, variables map[string]any) iter.Seq2[Data, error] {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := newRequest(t, document, variables).WithContext(ctx)
	r.Header.Set("Accept", "text/event-stream")
	if c := chainOf(t); c != nil && !strings.Contains(document, "after") { // an argument after sets the start itself
		r.Header.Set("Last-Event-ID", string(c.newest(nil).Cursor))
	}
	w := &streamWriter{ctx: ctx, header: http.Header{}, opened: make(chan struct{}), events: make(chan event)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer close(w.events)
		h.ServeHTTP(w, r)
		w.finish()
	}()
	stop := func() {
		cancel()
		<-ended
	}
	t.Cleanup(stop)
	select {
	case <-w.opened:
	case <-ended:
	case <-time.After(Timeout):
		t.Fatalf("chaingqltest: %s: the subscription was not opened within %v", short(document), Timeout)
	}
	return func(yield func(Data, error) bool) {
		t.Helper()
		defer stop()
		for n := 0; ; n++ {
			timeout := time.NewTimer(Timeout)
			select {
			case e, ok := <-w.events:
				timeout.Stop()
				switch {
				case !ok:
					return
				case errors.Is(e.err, errForeign):
					t.Fatalf("chaingqltest: %s: %s", short(document), foreign(w.status, []byte(e.data)))
				case !yield(e.data, e.err):
					return
				}
			case <-timeout.C:
				const hint = "was no block appended, or did none match?"
				t.Fatalf("chaingqltest: %s: event %d did not arrive within %v: %s", short(document), n+1, Timeout, hint)
			}
		}
	}
}

// Take returns the data of the next n events of a subscription, and ends the subscription. The test fails if an event
// has errors, or if the subscription ends before n events.
func Take(t testing.TB, events iter.Seq2[Data, error], n int) []Data {
	t.Helper()
	taken := make([]Data, 0, n)
	if n <= 0 {
		return taken
	}
	for data, err := range events {
		if err != nil {
			t.Fatalf("chaingqltest: event %d of %d: %v", len(taken)+1, n, err)
		}
		if taken = append(taken, data); len(taken) == n {
			return taken
		}
	}
	t.Fatalf("chaingqltest: the subscription ended after %d of %d events", len(taken), n)
	return nil
}

// An event is one response of a subscription.
type event struct {
	data Data
	err  error
}

// A streamWriter is the ResponseWriter of an event stream. It passes each event to the reader, and waits until the
// reader has taken it.
type streamWriter struct {
	ctx    context.Context // done when the reader has left
	header http.Header
	status int
	unread bytes.Buffer  // the beginning of an event, or a response that is not a stream
	opened chan struct{} // closed with the first part of the stream
	isOpen bool
	events chan event
}

func (w *streamWriter) Header() http.Header { return w.header }

func (w *streamWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

func (w *streamWriter) isStream() bool {
	return strings.HasPrefix(w.header.Get("Content-Type"), "text/event-stream")
}

func (w *streamWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	w.unread.Write(p)
	for w.isStream() {
		text, _, found := bytes.Cut(w.unread.Bytes(), []byte("\n\n"))
		if !found {
			break
		}
		lines := string(text)
		w.unread.Next(len(text) + 2)
		if err := w.pass(lines); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// pass passes one event to the reader.
func (w *streamWriter) pass(text string) error {
	w.open()
	if !strings.HasPrefix(text, "event: next\n") {
		return nil // complete, or a comment that keeps the connection alive
	}
	for line := range strings.SplitSeq(text, "\n") {
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			return w.send([]byte(data))
		}
	}
	return nil
}

func (w *streamWriter) send(response []byte) error {
	data, err := parse(response)
	if errors.Is(err, errForeign) {
		data = Data(response)
	}
	select {
	case w.events <- event{data, err}:
		return nil
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
}

// finish passes a response that is not an event stream, such as the error for a wrong secret.
func (w *streamWriter) finish() {
	if w.isStream() || w.ctx.Err() != nil {
		return
	}
	w.WriteHeader(http.StatusOK)
	w.open()
	_ = w.send(w.unread.Bytes()) // the reader may have left
}

func (w *streamWriter) open() {
	if !w.isOpen {
		w.isOpen = true
		close(w.opened)
	}
}

// Flush does nothing, because Write passes every event at once.
func (w *streamWriter) Flush() {}
