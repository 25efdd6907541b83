// Package gqlsse implements subscriptions over one HTTP response each: as Server-Sent Events, in the distinct
// connections mode of graphql-sse, and in Apollo's multipart protocol. The package does not depend on a GraphQL schema.
//
// It uses no library for event streams, because those libraries (r3labs/sse, tmaxmax/go-sse) broadcast events from
// queues and drop the events of slow clients. In this package, a stream requests further events only when its client
// has accepted the previous ones, and each write has a deadline.
package gqlsse

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"time"

	"github.com/chaingql/chaingql/internal/xsync"
)

// An Event is one GraphQL response in a stream.
type Event struct {
	// ID is the position of the stream after the event. A browser sends it as Last-Event-ID when it reconnects. ID may
	// be empty.
	ID string
	// Data is a complete GraphQL response as JSON without line breaks. Serve does not modify it.
	Data []byte
}

// A Stream is the source of one subscription. Next is never called concurrently.
type Stream interface {
	// Next returns the next event, or an event without Data if none is ready yet. In that case, Serve calls Next again
	// when the wake channel has a value. If Next returns io.EOF, the stream ends normally. If it returns an *End, the
	// stream ends with an event that contains the reason. If it returns any other error, the stream ends without a
	// further event, and Serve returns the error.
	Next() (Event, error)
	// Pause is called after calls of Next, before their events are written or Serve waits.
	Pause()
}

// An End is an error that ends a stream. The client receives the GraphQL errors in Data.
type End struct {
	ID   string // the last position of the stream, as in Event; may be empty
	Data []byte // a GraphQL response with the errors
	// Final reports that a retry would fail again. In that case, the client receives complete and does not reconnect.
	// Otherwise the connection is closed. The client of an event stream reconnects with the last id that it received;
	// the client of a multipart stream receives Data as a transport error.
	Final bool
}

func (e *End) Error() string { return "gqlsse: stream ended: " + string(e.Data) }

// Options configures a stream. A duration of zero or less disables its feature.
type Options struct {
	// Codec is the format of the stream. The default is Events.
	Codec *Codec
	// KeepAliveInterval is the interval between the heartbeats that keep the connection alive.
	KeepAliveInterval time.Duration
	// WriteTimeout is the maximum duration of a write without progress. Each piece of 16 KiB that the client has
	// accepted extends it, up to WriteTimeout plus one second per 16 KiB.
	WriteTimeout time.Duration

	// Position returns the position of the stream after the last event, or "" if it is unknown. The client receives it
	// at the beginning and with each heartbeat, so that a browser that reconnects without having received an event
	// sends a Last-Event-ID. If Position is nil, only events have ids.
	Position func() string

	// Count is called before each write of more than 4 KiB with the number of bytes, and after the write with the
	// negated number. If it returns false before a write, the stream ends. If Count is nil, writes are not counted.
	Count func(bytes int) bool

	// Progress is called when the client has accepted a number of bytes of a write. It reports whether the client has
	// more time for the rest. If Progress is nil, the client always has.
	Progress func(bytes int) bool

	// Blocked is called with true before each write, and with false after it, unless it is nil.
	Blocked func(bool)

	// Cut limits the duration of each later write to CutTimeout when it is closed. Closing Cut does not interrupt a
	// write in progress. To interrupt it, set a write deadline after closing Cut.
	Cut <-chan struct{}
}

// CutTimeout is the timeout of each write that starts after Options.Cut was closed.
const CutTimeout = 100 * time.Millisecond

// ErrNotFlushable is returned by Serve, before it writes anything, if the ResponseWriter cannot flush, for example
// because a middleware wraps it and hides its Flush method.
var ErrNotFlushable = errors.New("gqlsse: the ResponseWriter cannot flush")

const (
	// pieceSize is the number of bytes after which a write makes progress.
	pieceSize = 16 << 10
	// batchSize is the size in bytes at which collected events are written, even if more events are ready.
	batchSize = 32 << 10
	// maxReusedBuffer is the maximum size in bytes of the buffer that a stream keeps after a write.
	maxReusedBuffer = 2 << 10
	// maxUncounted is the maximum size in bytes of a write that is not counted. Small writes are not counted, because
	// they must not fail when other streams use up the memory quota.
	maxUncounted = 4 << 10
)

// Serve responds with the stream of s and returns when the stream has ended. It returns nil if ctx is done or if
// the final events were written. Otherwise it returns the error of s or of a write. wake receives a value when s may
// have an event.
func Serve(ctx context.Context, w http.ResponseWriter, o Options, wake <-chan struct{}, s Stream) error {
	if !flushable(w) {
		return ErrNotFlushable
	}
	codec := cmp.Or(o.Codec, Events)
	codec.SetHeader(w.Header())
	out := &writer{codec: codec, w: w, rc: http.NewResponseController(w), options: &o}
	w.WriteHeader(http.StatusOK)
	if err := out.send(codec.appendPosition([]byte(codec.start), &o)); err != nil {
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
			if err := out.send(codec.appendPosition([]byte(codec.heartbeat), &o)); err != nil {
				return err
			}
		}
	}
}

// flushable reports whether ResponseController.Flush would work on w. A call to Flush would also show this, but it
// would send the header.
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
	codec   *Codec
	w       http.ResponseWriter
	rc      *http.ResponseController
	options *Options
	buf     []byte
}

// writeReady writes the events that are ready, several of them in one write. ended reports that the stream has ended.
func (o *writer) writeReady(s Stream) (ended bool, err error) {
	for {
		if o.buf = o.buf[:0]; cap(o.buf) > maxReusedBuffer {
			o.buf = nil // the next write may be small and wait, and is counted by the size of its events
		}
		if err := o.gather(s); err != nil {
			return true, o.end(err)
		}
		if len(o.buf) == 0 {
			return false, nil
		}
		if err := o.send(o.buf); err != nil {
			return true, err
		}
		// If events are always ready, the stream and the goroutine that produces them pass the processor to each other.
		// Without this call, Go would preempt them only after 10 ms or more, and hundreds of such streams would delay
		// everything else.
		runtime.Gosched()
	}
}

// gather adds the events that are ready to the buffer. It returns the error of s.
func (o *writer) gather(s Stream) error {
	defer s.Pause() // also if Next panics
	for len(o.buf) < batchSize {
		event, err := s.Next()
		if err != nil || event.Data == nil {
			return err
		}
		o.buf = o.codec.appendEvent(o.buf, event)
	}
	return nil
}

// end writes the buffered events and the end of the stream. If err is neither io.EOF nor an *End, it writes nothing and
// returns err.
func (o *writer) end(err error) error {
	var reason *End
	switch {
	case errors.Is(err, io.EOF):
		o.buf = append(o.buf, o.codec.complete...)
	case errors.As(err, &reason):
		o.buf = o.codec.appendEnd(o.buf, reason)
	default:
		return err
	}
	return o.send(o.buf)
}

// send writes and flushes p. It counts p if p is large.
func (o *writer) send(p []byte) error {
	if count := o.options.Count; count != nil && len(p) > maxUncounted {
		if !count(len(p)) {
			return fmt.Errorf("gqlsse: write exceeds the memory quota: %w", os.ErrDeadlineExceeded)
		}
		defer count(-len(p))
	}
	if err := o.write(p); err != nil {
		return fmt.Errorf("gqlsse: write: %w", err)
	}
	return nil
}

// write writes p in pieces, each with its deadline, and flushes it. If the ResponseWriter does not support deadlines,
// the host must limit writes. The deadline is removed afterwards, because HTTP/2 ends a stream when its deadline
// passes, even if nothing is being written.
func (o *writer) write(p []byte) (err error) {
	deadline := xsync.NewWriteDeadline(o.options.WriteTimeout, len(p))
	if o.options.WriteTimeout > 0 || o.options.Cut != nil {
		defer func() { _ = o.rc.SetWriteDeadline(time.Time{}) }()
	}
	if blocked := o.options.Blocked; blocked != nil {
		blocked(true)
		defer blocked(false)
	}
	for cut := false; len(p) > 0 && err == nil; {
		if !cut {
			cut = o.setDeadline(&deadline)
		}
		n := min(len(p), pieceSize)
		if _, err = o.w.Write(p[:n]); err == nil && (o.options.Progress == nil || o.options.Progress(n)) {
			deadline.Extend()
		}
		p = p[n:]
	}
	if err == nil {
		err = o.rc.Flush()
	}
	// HTTP/2 reports only a closed stream.
	if err != nil && deadline.Passed() && !errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("%w: %w", os.ErrDeadlineExceeded, err)
	}
	return err
}

// setDeadline sets the deadline of the next piece. If Cut is closed, it sets the deadline of all remaining pieces and
// returns true.
func (o *writer) setDeadline(deadline *xsync.WriteDeadline) (cut bool) {
	at, limited := deadline.Time()
	if limited {
		_ = o.rc.SetWriteDeadline(at)
	}
	select {
	case <-o.options.Cut: // checked last, because the deadline above may have replaced that of the caller who closed it
		_ = o.rc.SetWriteDeadline(time.Now().Add(CutTimeout))
		return true
	default:
		return false
	}
}
