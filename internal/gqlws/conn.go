package gqlws

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/coder/websocket"
)

const (
	// closeTimeout is the maximum time of the close handshake, including the last messages before it. After it, the
	// connection is cut.
	closeTimeout = 3 * time.Second

	// maxOutbox is the maximum size in bytes of queued control frames. If there are more, the peer is not read.
	maxOutbox = 32 << 10

	// frameCost is the overhead in bytes that a queued frame counts in addition to its length.
	frameCost = 64
)

// A phase is a part of the life of a connection. It only increases.
type phase int8

const (
	phaseOpen     phase = iota // messages are processed, operations start
	phaseDraining              // no operations start; running queries finish, then phaseEnding begins
	phaseEnding                // conn.ending is set: no messages are processed; queued frames are written
	phaseClosing               // the close handshake runs; the library may read on the writer's goroutine
	phaseClosed                // the net.Conn is closed: the reader ends; no queries, writers or timers start
)

// A conn is one WebSocket connection.
//
// Its reader goroutine (readLoop) runs as long as the connection. While there is nothing to read, it is parked if the
// platform allows it. The connection ends when the reader ends; to end it, close the net.Conn.
//
// The server's writer pool writes the frames. If a write has to wait for the peer, the connection starts its own
// goroutine (writeLoop) for it. The goroutines of writes, queries and timers are counted in wg; the reader waits for
// them.
//
//	peer ──► readLoop ──► codec.decode ──► handleMessage ──► Session.Start
//	                                             │                 │ Run: a goroutine
//	                           acks, errors,     │                 │ Open: a Stream and its wake
//	                           pongs: outbox     ▼                 ▼
//	peer ◄── writerPool or writeLoop ◄── gather: outbox, then Stream.Next of the ready operations
type conn struct {
	server  *Server
	codec   codec
	peer    Session
	options *Options
	account Account
	ws      *websocket.Conn
	net     *netConn
	ctx     context.Context // values of the handshake; canceled at the end
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	// Reader state, used by the reader only.
	sessionCtx context.Context // returned by Init; nil before
	inited     bool            // a connection_init was accepted
	malformed  int             // consecutive malformed frames

	mu      sync.Mutex // protects the following; not held during I/O or calls of the Session
	changed *sync.Cond // signals changes that throttle and beginCloseFrame wait for

	// Lifecycle.
	phase      phase
	drainTimer *time.Timer // runs drain during a shutdown
	ending     *ending     // set in phaseEnding; nil if the connection was cut before
	why        error       // argument of Stream.Close for the remaining streams, and of Session.Closed
	whySet     bool        // why is set, possibly to nil
	parked     bool        // no reader runs; the poller or Close starts one

	// Operations.
	ops            map[string]*operation // by operationID.key
	ready          []*operation          // operations whose Next is to be called, in order
	streams        int                   // subscriptions, including ended ones whose Next still runs
	waitingQueries []*operation          // queries that have not started
	runningQueries int                   // started queries, including stopped ones whose Run still runs
	expectedBytes  int                   // sum of Operation.Size of running queries
	unsentBytes    int                   // bytes of unsent query responses
	unsentInWrite  int                   // part of unsentBytes that is in the current write

	// Session expiry and the time limit of an unused connection.
	credentialExpiry time.Time   // expiry of the last credential; zero if none
	expiryTimer      *time.Timer // runs expire
	initTimer        *time.Timer // runs checkInitTimeout; nil after connection_init

	rate rateLimiter // of the peer's frames

	// Write state.
	outbox           [][]byte // frames that are written before data
	outboxBytes      int      // size of outbox in bytes, with frameCost per frame
	hasWriter        bool     // a writer runs or is queued in the writer pool
	inWrite          bool     // a write is in progress
	closeFrameQueued bool     // the close frame is written or about to be; nothing else is sent

	// Pings and keep-alives.
	pingTimer      *time.Timer // runs pingTick; nil if pings go with keep-alives
	pingDue        bool        // a ping is to be written
	awaitsPong     bool        // a ping was written and no pong has arrived since
	missedPongs    int         // consecutive pings without a pong
	keepAliveTimer *time.Timer // runs keepAliveTick
	keepAliveDue   bool        // a keep-alive is to be written
	nextKeepAlive  time.Time   // time of the timer's next keep-alive
	beats          int8        // keep-alives since the last ping; -1 if the next one is skipped

	// Protected by the mutex of the server's part that uses them.
	wheelSlot int32 // slot in the wheel, from 1; 0 if it is in none
	fd        int32 // descriptor in the poller
	next      *conn // in the queue of the writer pool
}

func newConn(ctx context.Context, s *Server, cd codec, peer Session) *conn {
	c := &conn{server: s, codec: cd, peer: peer, options: &s.options, ops: make(map[string]*operation)}
	c.ctx, c.cancel = context.WithCancel(ctx)
	c.changed = sync.NewCond(&c.mu)
	c.account = c.openAccount()
	return c
}

// start initializes the connection after the handshake. serve then runs it.
func (c *conn) start(ws *websocket.Conn, nc *netConn) {
	ws.SetReadLimit(-1) // read enforces the limit, so that the peer receives an error
	c.ws, c.net, nc.conn = ws, nc, c
	c.mu.Lock()
	defer c.mu.Unlock()
	if d := c.codec.initTimeout(c.options); d > 0 {
		c.initTimer = c.afterFunc(d, c.checkInitTimeout)
	}
	if d := c.options.KeepAliveInterval; d > 0 {
		c.pingTimer = c.afterFunc(d, c.pingTick)
	}
}

// serve calls Session.Opened and starts to read.
func (c *conn) serve() {
	if err := c.onNewGoroutine(c.callOpened); err != nil {
		c.finish(err)
		return
	}
	c.readLoop()
}

// finish ends the connection after the reader has ended with err. It waits for all goroutines and releases everything
// that the connection holds.
func (c *conn) finish(err error) {
	defer c.server.release(c)
	defer c.server.poller.remove(c)
	c.cut(readEndReason(err))

	c.mu.Lock()
	why := c.why
	ops := c.retireAll(why)
	var points []resumePoint
	if c.ending != nil {
		points = c.ending.resumePoints
	}
	for _, t := range []*time.Timer{c.initTimer, c.keepAliveTimer, c.pingTimer, c.expiryTimer, c.drainTimer} {
		if t != nil {
			t.Stop()
		}
	}
	c.mu.Unlock()
	c.server.wheel.remove(c)

	c.logCut(why, points, ops)
	c.cancel()
	c.dispose(ops...)
	_ = c.ws.CloseNow() // releases the memory of the library; the net.Conn is closed already
	c.wg.Wait()
	c.account.Close()
	if errors.Is(why, ErrGone) && closedByPeer(err) {
		why = nil
	}
	c.callClosed(why)
}

// afterFunc is time.AfterFunc, except that the connection waits for f and f is not called when the reader has ended.
func (c *conn) afterFunc(d time.Duration, f func()) *time.Timer {
	return time.AfterFunc(d, func() {
		c.mu.Lock()
		if c.phase == phaseClosed {
			c.mu.Unlock()
			return
		}
		c.wg.Add(1)
		c.mu.Unlock()
		defer c.wg.Done()
		f()
	})
}

// spawn runs f on a goroutine that the connection waits for. Called with mu held, before phaseClosed or by a goroutine
// that is counted in wg.
func (c *conn) spawn(what string, f func()) {
	c.wg.Add(1)
	go c.runOrCut(what, f)
}

// runOrCut runs f and then decrements wg, which the caller has incremented. If f panics or ends its goroutine, the
// connection is cut.
func (c *conn) runOrCut(what string, f func()) {
	defer c.wg.Done()
	c.runProtected(what, f, func(err error) {
		if err != nil {
			c.cut(&cutError{ErrCut, what + " failed", err})
		}
	})
}

// end starts to end the connection and reports whether it was the first call. No operation continues, and the writer
// sends the reason. If the peer is not at fault, the writer ends the streams: after their queued payloads, and when
// it is known whether the peer has received the reason.
func (c *conn) end(e ending) bool {
	c.mu.Lock()
	if c.phase >= phaseEnding {
		c.mu.Unlock()
		return false
	}
	c.phase, c.ending = phaseEnding, &e
	var ops []*operation
	if !e.causedByServer() {
		c.setWhy(e.why())
		ops = c.retireAll(c.why)
	}
	c.scheduleWriter()
	c.mu.Unlock()
	c.dispose(ops...)
	return true
}

// drainAfter calls drain after d.
func (c *conn) drainAfter(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase == phaseOpen && c.drainTimer == nil {
		c.drainTimer = c.afterFunc(d, c.drain)
	}
}

// drain stops new operations and ends the connection when the running queries have ended.
func (c *conn) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance(phaseDraining)
	c.scheduleWriter()
}

// cut closes the connection without a message to the peer, because none would arrive.
func (c *conn) cut(why *cutError) {
	c.recordCut(why)
	c.closeNet()
}

// advance enters a phase, unless the connection is in a later one. Called with mu held.
func (c *conn) advance(to phase) { c.phase = max(c.phase, to) }

// closeNet closes the net.Conn and cancels the connection's context.
func (c *conn) closeNet() {
	_ = c.net.Close() // first, so that a reader that leaves throttle cannot read
	c.mu.Lock()
	if c.phase == phaseClosing {
		c.setWhy(c.ending.why())
	}
	c.phase = phaseClosed
	c.changed.Broadcast()
	c.mu.Unlock()
	c.cancel()
}

// recordCut records why the connection is lost. Only the first reason counts, because later errors follow from it. If
// the peer leaves during the close handshake, the reason is that of the ending.
func (c *conn) recordCut(why *cutError) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase == phaseClosing && why.kind != ErrCut {
		c.setWhy(c.ending.why())
		return
	}
	c.setWhy(why)
}

// setWhy sets why unless it is set. Called with mu held.
func (c *conn) setWhy(why error) {
	if !c.whySet {
		c.whySet, c.why = true, why
	}
}

// maxCursors is the maximum number of cursors in one log record.
const maxCursors = 32

// logCut logs the end of a connection that had no close handshake: at level Info with the cursors of its streams if
// it was cut, otherwise at level Debug. The streams are those of the ending and of ops.
func (c *conn) logCut(why error, streams []resumePoint, ops []*operation) {
	var s *cutError
	if !errors.As(why, &s) {
		return
	}
	level, attrs := slog.LevelDebug, []any{"reason", s.reason, "remote", c.net.RemoteAddr(), "error", s.err}
	if s.kind == ErrCut {
		level = slog.LevelInfo
		var cursors []string
		for _, st := range slices.Concat(streams, c.resumePointsOf(ops)) {
			if st.stream != nil {
				cursors = append(cursors, st.cursor)
			}
		}
		if len(cursors) > 0 {
			attrs = append(attrs, "cursors", cursors[:min(len(cursors), maxCursors)])
		}
	}
	c.server.log.Log(c.ctx, level, "gqlws: connection cut", attrs...)
}

// resumePointsOf returns the positions of retired streams. It omits a stream whose Next is running: that one is
// between two cursors and may be closed at any time.
func (c *conn) resumePointsOf(ops []*operation) []resumePoint {
	var all []resumePoint
	for _, op := range ops {
		if !op.query && !op.closeAfterCall {
			all = append(all, resumePoint{id: op.id, stream: op.stream, cursor: c.callCursor(op.stream)})
		}
	}
	return all
}
