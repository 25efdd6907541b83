// Package gqlsse writes GraphQL over Server-Sent Events in the distinct connections
// mode: one event stream per request. It does not depend on a schema.
//
// It is our own because libraries for event streams (r3labs/sse, tmaxmax/go-sse)
// broadcast from queues and drop events of slow clients. A stream here pulls events
// when its client has taken the last ones, with a deadline for each write.
package gqlsse

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

// An Event is one GraphQL response of a stream.
type Event struct {
	// ID is the position after the event. A browser sends it as Last-Event-ID when it
	// reconnects. It may be empty.
	ID string
	// Data is a complete GraphQL response as JSON without line breaks. It is not modified.
	Data []byte
}

// A Stream is the source of one subscription. Its methods are never called at
// the same time.
type Stream interface {
	// Next returns the next event, or one without Data if none is ready yet; it is
	// called again when the wake channel passed to Serve has a value. io.EOF ends the
	// stream normally. An *End ends it with an event that holds the reason. Any other
	// error ends it without a further event and is returned by Serve.
	Next() (Event, error)
}

// An End ends a stream with errors for the client.
type End struct {
	ID   string // the last position of the stream, as in Event; may be empty
	Data []byte // a GraphQL response with the errors
	// Final is set if a retry would fail again. The client then receives complete and
	// does not reconnect. Otherwise the connection is closed, and the client reconnects
	// with the last id that it received.
	Final bool
}

func (e *End) Error() string { return "gqlsse: stream ended: " + string(e.Data) }

// Options configures a stream. A duration of zero or less turns its feature off.
type Options struct {
	// KeepAliveInterval is the interval between comments that keep the connection alive.
	KeepAliveInterval time.Duration
	// WriteTimeout is the maximum duration of one write.
	WriteTimeout time.Duration

	// Count is called before each write of more than 4 KiB with the number of bytes, and
	// after the write with the negated number. If it returns false before a write, the
	// stream ends. If Count is nil, writes are not counted.
	Count func(bytes int) bool

	// Cut is closed to limit each further write to CutTimeout. It does not interrupt a
	// write in progress: to do that, set a write deadline after closing Cut.
	Cut <-chan struct{}
}

// CutTimeout is the timeout of a write after Options.Cut was closed.
const CutTimeout = 100 * time.Millisecond

// ErrNotFlushable is returned by Serve, before it writes anything, if the
// ResponseWriter cannot flush, for example because middleware hides the Flush method.
var ErrNotFlushable = errors.New("gqlsse: the ResponseWriter cannot flush")

const (
	// batchSize is the number of bytes after which ready events are written.
	batchSize = 32 << 10
	// maxIdleBuffer is the maximum size in bytes of the buffer that a waiting stream
	// keeps.
	maxIdleBuffer = 2 << 10
	// maxUncounted is the maximum size in bytes of a write that is not counted. Small
	// writes must not fail because other streams use up the quota.
	maxUncounted = 4 << 10
)

// Prefix and Suffix enclose the response to a query that is sent as an event stream.
const (
	Prefix = ":\n\nevent: next\ndata: "
	Suffix = "\n\nevent: complete\ndata:\n\n"
)

// SetHeader sets the header fields of an event stream.
func SetHeader(h http.Header) {
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx would hold events back
	h.Set("X-Content-Type-Options", "nosniff")
}

// Serve responds with a stream and returns when it has ended. It returns nil if ctx
// ended or the final events were written, and otherwise the error of the stream or of
// the write. wake receives a value when Next may have an event.
func Serve(ctx context.Context, w http.ResponseWriter, o Options, wake <-chan struct{}, s Stream) error {
	if !flushable(w) {
		return ErrNotFlushable
	}
	SetHeader(w.Header())
	out := &writer{w: w, rc: http.NewResponseController(w), timeout: o.WriteTimeout, cut: o.Cut, count: o.Count}
	w.WriteHeader(http.StatusOK)
	if err := out.send([]byte(":\n\n")); err != nil { // lets the client see that it is connected
		return err
	}
	var heartbeat <-chan time.Time
	if o.KeepAliveInterval > 0 {
		ticker := time.NewTicker(o.KeepAliveInterval)
		defer ticker.Stop()
		heartbeat = ticker.C
	}
	for {
		if ended, err := out.writeReady(s); ended || err != nil {
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

// flushable reports whether ResponseController.Flush would work on w. A call of Flush
// would show it too, but only after it has sent the header.
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
	cut     <-chan struct{}
	count   func(int) bool
	buf     []byte
}

// writeReady writes the events that are ready, several in one write. ended reports that
// the stream has ended.
func (o *writer) writeReady(s Stream) (ended bool, err error) {
	for {
		o.buf = o.buf[:0]
		for len(o.buf) < batchSize {
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
			if cap(o.buf) > maxIdleBuffer { // grown by a burst, which may have been the last
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

// end writes the buffered events and the end of the stream. If err is neither io.EOF
// nor an *End, it writes nothing and returns err.
func (o *writer) end(err error) error {
	var reason *End
	switch {
	case errors.Is(err, io.EOF):
		o.complete()
	case errors.As(err, &reason):
		o.append(Event{ID: reason.ID, Data: reason.Data})
		if reason.Final {
			o.complete()
		}
	default:
		return err
	}
	return o.send(o.buf)
}

// complete appends the complete event. Its data field, though empty, is required: a
// browser's EventSource ignores events without one.
func (o *writer) complete() { o.buf = append(o.buf, "event: complete\ndata:\n\n"...) }

func (o *writer) send(p []byte) error {
	if o.count != nil && len(p) > maxUncounted {
		if !o.count(len(p)) {
			return fmt.Errorf("gqlsse: no room for a write: %w", os.ErrDeadlineExceeded)
		}
		defer o.count(-len(p))
	}
	timeout := o.timeout
	select {
	case <-o.cut:
		timeout = CutTimeout
	default:
	}
	if timeout > 0 {
		// If the ResponseWriter does not support deadlines, the host sets its own. The
		// deadline is removed after each write, because HTTP/2 ends a stream when its
		// deadline passes, even if nothing is being written.
		_ = o.rc.SetWriteDeadline(time.Now().Add(timeout))
		defer func() { _ = o.rc.SetWriteDeadline(time.Time{}) }()
	}
	_, err := o.w.Write(p)
	if err == nil {
		err = o.rc.Flush()
	}
	if err != nil {
		return fmt.Errorf("gqlsse: write: %w", err)
	}
	return nil
}
