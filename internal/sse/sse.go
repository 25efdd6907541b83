// Package sse writes event streams: GraphQL over Server-Sent Events in the
// distinct connections mode, one stream per request. It knows nothing of
// schemas.
package sse

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// An Event is one answer of a stream.
type Event struct {
	ID   string // where the stream stands after it; a browser hands it back as Last-Event-ID. May be empty.
	Data []byte // a whole GraphQL answer as JSON, without line breaks. It is only read.
}

// A Stream is the source of one subscription. Its methods are never called at
// the same time.
type Stream interface {
	// Next returns the next event, or one without Data when there is none yet:
	// the stream's wake channel tells when there may be one. io.EOF is the
	// end. An *End is an end with a reason; any other error is one that cannot
	// be told.
	Next() (Event, error)
}

// An End is why a stream does not go on.
type End struct {
	ID   string // as an Event's: how far the stream had come. May be empty.
	Data []byte // a GraphQL answer that holds the errors
	// Final says that asking again would fail again: the client reads complete
	// and stays away. Otherwise the connection just ends, which makes it come
	// back with the last id it read.
	Final bool
}

func (e *End) Error() string { return "sse: stream ended: " + string(e.Data) }

// Options of a stream. Zero or less turns a thing off.
type Options struct {
	Heartbeat    time.Duration // how often a comment shows that the connection lives
	WriteTimeout time.Duration // for one write to be taken

	// Count is called with the bytes of each write before it, and with as many less
	// than zero after it. The stream ends if it reports false before a write. nil
	// counts nothing.
	Count func(bytes int) bool

	// Hurry is closed when no write may take longer than a Moment any more.
	// Who closes it and then sets a write deadline so near hurries a write
	// under way, too.
	Hurry <-chan struct{}
}

// Moment is for last words to a client that takes them.
const Moment = 100 * time.Millisecond

// ErrNotFlushable is returned, before anything is written, for a
// ResponseWriter that cannot send what was written so far, as under a
// middleware that hides it.
var ErrNotFlushable = errors.New("sse: the ResponseWriter cannot flush")

const (
	// batch is how many bytes of ready events go out in one write.
	batch = 32 << 10
	// idle is how large a buffer a stream keeps while it waits.
	idle = 2 << 10
)

// What surrounds the answer to a query that is sent as an event stream.
const (
	Before = ":\n\nevent: next\ndata: "
	After  = "\n\nevent: complete\ndata:\n\n"
)

// SetHeader sets the header fields of an event stream.
func SetHeader(h http.Header) {
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx would hold events back
	h.Set("X-Content-Type-Options", "nosniff")
}

// Serve answers a request with a stream and returns when it has ended: nil
// where the client was told or has left (ctx is done), else why not. wake
// holds a value when Next may have an event.
func Serve(ctx context.Context, w http.ResponseWriter, o Options, wake <-chan struct{}, s Stream) error {
	if !flushable(w) {
		return ErrNotFlushable
	}
	SetHeader(w.Header())
	out := &writer{w: w, rc: http.NewResponseController(w), timeout: o.WriteTimeout, hurry: o.Hurry, count: o.Count}
	w.WriteHeader(http.StatusOK)
	if err := out.send([]byte(":\n\n")); err != nil { // the client learns that it is connected
		return err
	}
	var heartbeat <-chan time.Time
	if o.Heartbeat > 0 {
		ticker := time.NewTicker(o.Heartbeat)
		defer ticker.Stop()
		heartbeat = ticker.C
	}
	for {
		if ended, err := out.drain(s); ended || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-wake:
		case <-heartbeat:
			if err := out.send([]byte(":\n\n")); err != nil {
				return err
			}
		}
	}
}

// flushable looks for what ResponseController.Flush would use, which tells only
// after it has sent a header.
func flushable(w http.ResponseWriter) bool {
	for {
		switch t := w.(type) {
		case http.Flusher, interface{ FlushError() error }:
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = t.Unwrap()
		default:
			return false
		}
	}
}

type writer struct {
	w       http.ResponseWriter
	rc      *http.ResponseController
	timeout time.Duration
	hurry   <-chan struct{}
	count   func(int) bool
	buf     []byte
}

// drain writes what is ready, several events at a time.
func (o *writer) drain(s Stream) (ended bool, err error) {
	for {
		o.buf = o.buf[:0]
		for len(o.buf) < batch {
			event, err := s.Next()
			if err != nil {
				return true, o.end(err)
			}
			if event.Data == nil {
				break
			}
			o.append(event)
		}
		if len(o.buf) == 0 {
			if cap(o.buf) > idle { // grown by a burst, which may have been the last
				o.buf = nil
			}
			return false, nil
		}
		if err := o.send(o.buf); err != nil {
			return true, err
		}
	}
}

func (o *writer) append(e Event) {
	o.buf = append(o.buf, "event: next\n"...)
	if e.ID != "" && !strings.ContainsAny(e.ID, "\r\n\x00") { // a backend's cursor must not forge lines
		o.buf = append(append(append(o.buf, "id: "...), e.ID...), '\n')
	}
	o.buf = append(append(append(o.buf, "data: "...), e.Data...), "\n\n"...)
}

// end writes what is left and how the stream ended.
func (o *writer) end(why error) error {
	var told *End
	switch {
	case errors.Is(why, io.EOF):
		o.complete()
	case errors.As(why, &told):
		o.append(Event{ID: told.ID, Data: told.Data})
		if told.Final {
			o.complete()
		}
	default:
		return why
	}
	return o.send(o.buf)
}

// complete has data, without which a browser's EventSource does not see it.
func (o *writer) complete() { o.buf = append(o.buf, "event: complete\ndata:\n\n"...) }

func (o *writer) send(p []byte) error {
	if o.count != nil {
		if !o.count(len(p)) {
			return fmt.Errorf("sse: no room for a write: %w", os.ErrDeadlineExceeded)
		}
		defer o.count(-len(p))
	}
	timeout := o.timeout
	select {
	case <-o.hurry:
		timeout = Moment
	default:
	}
	if timeout > 0 {
		// A ResponseWriter that knows no deadlines leaves them to the host.
		// Between writes there is none: HTTP/2 ends a stream when one passes,
		// though nothing is being written.
		_ = o.rc.SetWriteDeadline(time.Now().Add(timeout))
		defer func() { _ = o.rc.SetWriteDeadline(time.Time{}) }()
	}
	_, err := o.w.Write(p)
	if err == nil {
		err = o.rc.Flush()
	}
	if err != nil {
		return fmt.Errorf("sse: write: %w", err)
	}
	return nil
}
