package chaingql

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/chaingql/chaingql/internal/blocklog"
	"github.com/chaingql/chaingql/internal/gqlhttp"
	"github.com/chaingql/chaingql/internal/gqlsse"
	"github.com/chaingql/chaingql/internal/gqlws"
	"github.com/chaingql/chaingql/internal/guard"
	"github.com/chaingql/chaingql/internal/plan"
	"github.com/chaingql/chaingql/internal/xsync"
)

// codecOf returns the format of a stream of the given media type. It returns nil for the media types of JSON.
func codecOf(media string) *gqlsse.Codec {
	switch media {
	case gqlhttp.EventStream:
		return gqlsse.Events
	case gqlhttp.Multipart:
		return gqlsse.Multipart
	}
	return nil
}

// transportOf contains the transports of streams by their media types.
var transportOf = map[string]Transport{gqlhttp.EventStream: TransportSSE, gqlhttp.Multipart: TransportMultipart}

// serveStream serves a subscription as a stream of the given media type until the subscription ends, the client leaves,
// ctx is done because the credentials have expired, or the Handler shuts down.
func (h *Handler) serveStream(
	ctx context.Context, w http.ResponseWriter, r *http.Request, media string, op *plan.Bound, by *caller,
) {
	project := by.project // do not use by later: it keeps the state of the request, which has its body
	if r.Method == http.MethodHead {
		// The body of a response to HEAD is never sent, so no write would fail after the client has left.
		h.serveEvents(w, r, media, &singleEvent{})
		return
	}
	if guard.FilesLow() {
		h.writeErrorUnread(w, r, noFiles())
		return
	}
	if headerBytes(r) > maxHandshakeHeaders { // net/http keeps them as long as the stream is open
		h.writeError(w, r, overLimit(statusHeadersTooLarge, "",
			fmt.Sprintf("The headers of a stream exceed the limit of %d bytes.", maxHandshakeHeaders)))
		return
	}
	if ok, closed := h.streams.Enter(); !ok {
		h.writeError(w, r, unavailable(closed, "Connections", "event streams"))
		return
	}
	defer h.streams.Leave()
	wakes := make(chan struct{}, 1)
	wake := func() {
		select {
		case wakes <- struct{}{}:
		default: // a wake is pending
		}
	}
	last := ""
	if media == gqlhttp.EventStream {
		// A browser that reconnects sends the id of its last event (Server-Sent Events, WHATWG HTML 9.2).
		last = r.Header.Get("Last-Event-ID")
	}
	peer := h.peers.enter(r.RemoteAddr)
	defer h.peers.leave(peer)
	client := &blocklog.Client{Usage: &peer.pages, Live: &peer.live}
	from := subscriber{*by, by.trace.size(), last, xsync.WakeFunc(wake), client, peer}
	sub, refused := h.subscribe(ctx, op, from)
	if refused != nil {
		h.serveEvents(w, r, media, &singleEvent{appendErrors(nil, plan.Errors{refused})})
		return
	}
	s := &eventStream{stream: sub, turns: h.eventTurns, peer: peer, client: r.Context(), credentials: ctx}
	var why error
	defer func() { s.leave(why) }() // also if the ResponseWriter panics
	cut, once := make(chan struct{}), sync.Once{}
	end := func(at time.Time) {
		once.Do(func() { close(cut) })
		// A write in progress may be blocked.
		_ = http.NewResponseController(w).SetWriteDeadline(at)
	}
	defer h.streams.Stay(func() { s.leaving.Store(true); wake() }, func() { end(time.Now().Add(gqlsse.CutTimeout)) })()
	defer context.AfterFunc(ctx, wake)()
	if h.opts.ConnectionLifetime > 0 {
		defer time.AfterFunc(h.lifetime(), func() { s.leaving.Store(true); wake() }).Stop()
	}
	share := newConnectionShare(h.responses, func() { end(past) })
	defer func() {
		if !h.responses.Free(&share.Reservation) {
			h.events.limit(ctx, "PendingResponseBytes")
		}
	}()
	progress := func(n int) bool {
		h.responses.Progress(&share.Reservation, n)
		// A slow client must not delay the end of the process, nor receive much after its credentials expired.
		return ctx.Err() == nil && !h.streams.Closed()
	}
	begin := sub.cursor()
	position := func() string {
		at := sub.cursor()
		if sub.behind() && at == begin { // the client resumes from a cursor, which may be invalid
			return ""
		}
		return at
	}
	why = h.send(w, r, media, s, wakes, gqlsse.Options{
		Position: position, Cut: cut, Count: share.add, Progress: progress, Blocked: client.SetBlocked,
	})
	switch {
	case errors.Is(why, os.ErrDeadlineExceeded):
		// The client received no last event with its position, so the position is logged.
		why = fmt.Errorf("%w: %w", gqlws.ErrCut, why)
		h.opts.Logger.LogAttrs(ctx, slog.LevelDebug, "chaingql: event stream cut, because the client was too slow",
			slog.String("project", project), slog.String("remote", r.RemoteAddr),
			slog.String("cursor", sub.cursor()), guard.Error(why))
	case why != nil && !errors.Is(why, gqlsse.ErrNotFlushable):
		why = fmt.Errorf("%w: %w", gqlws.ErrGone, why)
	}
}

// serveEvents sends a complete response as a stream of the given media type.
func (h *Handler) serveEvents(w http.ResponseWriter, r *http.Request, media string, s gqlsse.Stream) {
	h.events.responseCut(r, h.send(w, r, media, s, nil, gqlsse.Options{}))
}

// send writes the events of s until s ends. It returns an error if the connection did not accept them all.
func (h *Handler) send(
	w http.ResponseWriter, r *http.Request, media string, s gqlsse.Stream,
	wakes <-chan struct{}, opts gqlsse.Options,
) error {
	opts.Codec, opts.KeepAliveInterval, opts.WriteTimeout = codecOf(media), h.opts.KeepAliveInterval, streamWriteTimeout
	err := gqlsse.Serve(r.Context(), w, opts, wakes, s)
	if errors.Is(err, gqlsse.ErrNotFlushable) {
		h.writeError(w, r, &httpError{status: statusInternal, Error: h.mask(r.Context(), err)})
	}
	return err
}

// eventTurns bound how many event streams read stored blocks at the same time, because thousands of them would delay
// everything else. Those whose last search found nothing have turns of their own, and so have those that have not found
// anything yet: a client that resumes does not wait for all that already receive stored blocks. Nor does a client that
// needs few blocks wait for those whose usage has a higher level. Streams that have fallen behind the newest block, as
// all live ones do after a burst of blocks, do not wait for any of them. Few streams of a client wait at once, so that
// a client with many streams gets no more time than others.
type eventTurns struct {
	recent, first  *xsync.Semaphore
	found, nothing [xsync.UsageLevels]*xsync.Semaphore // by the level of the client's usage
}

func newEventTurns() eventTurns { return eventTurnsOf(turnsAtOnce()) }

func turnsAtOnce() int { return max(1, runtime.GOMAXPROCS(0)/2) }

// eventTurnsOf returns turns of each kind for n streams at the same time.
func eventTurnsOf(n int) eventTurns {
	turn := func() *xsync.Semaphore { return xsync.NewSemaphore(n) }
	levels := func() [xsync.UsageLevels]*xsync.Semaphore { return [...]*xsync.Semaphore{turn(), turn(), turn()} }
	return eventTurns{turn(), turn(), levels(), levels()}
}

// maxEventTurn is the time after which a stream that has found something ends its turn. A first turn is short, because
// streams that start again and again should not get much more time than others.
const (
	maxEventTurn      = time.Millisecond
	maxFirstEventTurn = 100 * time.Microsecond
)

// An eventStream adapts a subscription to package gqlsse. The event ids are cursors. A browser sends the last one when
// it reconnects.
type eventStream struct {
	stream
	turns       eventTurns
	turn        *xsync.Semaphore // of which the stream has a slot, until Pause; may be nil
	turnBegan   time.Duration    // on the Clock
	found       bool             // the turn has found something
	peer        *peer
	slot        bool             // the stream has one of peer.slots
	nextTurn    *xsync.Semaphore // for the next turn, if one is needed; nil before the first one
	leaving     atomic.Bool      // the Handler is shutting down, or the stream's lifetime has ended
	ended       error            // why the Handler ended the stream; nil if it did not
	client      context.Context  // done when the client has left
	credentials context.Context  // done when the credentials have expired or the client has left
}

func (s *eventStream) Next() (gqlsse.Event, error) {
	if s.turn == nil && s.behind() {
		s.beginTurn()
	}
	switch {
	case s.client.Err() != nil:
		return gqlsse.Event{}, s.client.Err()
	case s.leaving.Load():
		return s.endFor(gqlws.ErrShutdown, shuttingDown().Error)
	case s.credentials.Err() != nil:
		return s.endFor(gqlws.ErrExpired, &plan.Error{Message: "Session expired", Code: codeUnavailable})
	case s.found && s.turn != nil && xsync.Clock(0)-s.turnBegan > s.maxTurn():
		return gqlsse.Event{}, nil // Serve writes what the turn has found, and calls Next again
	}
	response, err := s.next()
	var end *ending
	if errors.As(err, &end) {
		return s.end(end)
	}
	e := gqlsse.Event{Data: response}
	if response != nil {
		e.ID, s.found = s.id(), true
	}
	s.setNextTurn(response != nil)
	return e, err
}

// setNextTurn chooses the next turn after a call of next, which has found something or not.
func (s *eventStream) setNextTurn(found bool) {
	switch {
	case !s.behind():
		s.nextTurn = s.turns.recent
	case !found && !s.more(): // waits for its page
		if s.nextTurn == s.turns.recent {
			s.nextTurn = s.turns.first
		}
	case s.nextTurn == s.turns.recent: // reads the window, in which it has fallen behind
	case found:
		s.nextTurn = s.turns.found[s.peer.turns.Level()]
	default:
		s.nextTurn = s.turns.nothing[s.peer.turns.Level()]
	}
}

// beginTurn waits until the stream may read stored blocks, its client has left or its credentials have expired.
func (s *eventStream) beginTurn() {
	turn := cmp.Or(s.nextTurn, s.turns.first)
	if turn != s.turns.recent {
		if s.slot = s.peer.slots.Acquire(s.credentials, 0); !s.slot {
			return
		}
	}
	if turn.Acquire(s.credentials, 0) {
		s.turn, s.turnBegan = turn, xsync.Clock(0)
	}
}

// maxTurn returns the time after which a turn ends if it has found something.
func (s *eventStream) maxTurn() time.Duration {
	if s.turn == s.turns.first {
		return maxFirstEventTurn
	}
	return maxEventTurn
}

// Pause ends the turn.
func (s *eventStream) Pause() {
	if s.turn != nil {
		s.turn.Release()
		s.peer.turns.Add(min(xsync.Clock(0)-s.turnBegan, 2*maxEventTurn)) // more means that the goroutine did not run
	}
	if s.slot {
		s.peer.slots.Release()
	}
	s.turn, s.slot, s.found = nil, false, false
}

// leave closes the stream. why is the failure of the connection; it is ignored if the Handler ended the stream.
func (s *eventStream) leave(why error) {
	if s.ended != nil {
		why = s.ended
	}
	s.close(why)
}

// endFor ends the stream: the client receives err, and hooks receive the reason why. If the subscription has an
// ending of its own, that is used instead.
func (s *eventStream) endFor(why error, err *plan.Error) (gqlsse.Event, error) {
	cursor, own := s.position()
	if own != nil {
		return s.end(own)
	}
	s.ended = why
	return s.end(endAt(err, cursor, true))
}

// end returns the last event, which contains the error. If the client should resume, the id of the event is the cursor
// that the subscription has reached. It may be after the id of the previous event, because not all blocks match.
func (s *eventStream) end(e *ending) (gqlsse.Event, error) {
	end := &gqlsse.End{Data: appendErrors(nil, plan.Errors{e.err}), Final: !e.lost}
	if e.lost {
		end.ID = e.cursor
	}
	return gqlsse.Event{}, end
}

// A singleEvent is a complete response, sent as one event. If data is nil, no event is sent.
type singleEvent struct{ data []byte }

func (a *singleEvent) Pause() {}

func (a *singleEvent) Next() (gqlsse.Event, error) {
	if a.data == nil {
		return gqlsse.Event{}, io.EOF
	}
	e := gqlsse.Event{Data: a.data}
	a.data = nil
	return e, nil
}
