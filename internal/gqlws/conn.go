package gqlws

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"time"

	"github.com/coder/websocket"

	"github.com/chaingql/chaingql/internal/xsync"
)

const (
	// closeTimeout is the maximum duration of the close handshake, including the last messages before the close frame.
	// After closeTimeout, the connection is cut.
	closeTimeout = 3 * time.Second

	// maxOutbox is the maximum size in bytes of the outbox, which holds acks, errors and pongs for the peer. While the
	// outbox is larger, the connection is not read.
	maxOutbox = 8 << 10

	// frameCost is the overhead in bytes of a queued frame. It is added to the frame's length in the size of the
	// outbox.
	frameCost = 64
)

// A phase is a stage in the life of a connection. A connection never returns to an earlier phase.
type phase int8

const (
	phaseOpen     phase = iota // messages are processed and operations start
	phaseDraining              // no operation starts; phaseEnding begins when the running queries have finished
	phaseEnding                // conn.ending is set: received messages are ignored; queued frames are still written
	phaseClosing               // the close handshake runs; coder/websocket may read on the writer's goroutine
	phaseClosed                // the net.Conn is closed: the reader ends; no query, writer or timer starts
)

// A conn is one WebSocket connection.
//
// Its reader (readLoop) reads messages until the connection ends. If the platform supports it, the reader is parked
// while there is nothing to read: it then has no goroutine. The connection ends when the reader ends. To make the
// reader end, close the net.Conn.
//
// The server's writer pool writes the frames. If a write has to wait for the peer, the connection starts a goroutine
// of its own for the write (writeLoop), but only the pool reads stored data. wg counts the goroutines of writes,
// queries and timers. The reader waits for them before it ends.
//
//	peer ──► readLoop ──► codec.decode ──► handleMessage ──► Session.Start
//	                                             │                 │ Run: a goroutine
//	                           acks, errors,     │                 │ Open: a Stream and its wake
//	                           pongs: outbox     ▼                 ▼
//	peer ◄── writerPool or writeLoop ◄── gather: outbox, then Stream.Next of the ready operations
type conn struct {
	// The fields that each payload of a Stream needs come first, so that few cache lines are loaded.
	server *Server
	codec  codec
	wg     sync.WaitGroup

	mu sync.Mutex // protects this group; not held during I/O that may block or calls into the Session

	phase            phase
	hasWriter        bool             // a writer runs or is in the first queue of the writer pool
	inWrite          bool             // a write is in progress
	closeFrameQueued bool             // the close frame has been or will be written next; nothing else is sent
	keepAliveDue     bool             // a keep-alive must be written
	pingDue          bool             // a ping must be written
	waits            [paces]bool      // the turns for which the connection waits; not used for paceLive
	lostTurn         bool             // the connection had another writer when its last turn came
	usage            *xsync.Usage     // by turns that are not live
	turn             pace             // the next gather calls Next only of operations with this pace or a faster one
	ready            []*operation     // operations whose Next must be called, in this order
	readyOne         [1]*operation    // the first array of ready
	outbox           [][]byte         // frames that are written before data: acks, errors, pongs
	unsentInWrite    int              // part of unsentBytes that is in the current write
	raw              syscall.RawConn  // net.raw
	links            [paces]neighbors // the place in each queue of the writerPool; protected by its mutex
	changed          sync.Cond        // signals changes that throttle and beginCloseFrame wait for

	// These fields are set before the reader starts and do not change.
	peer    Session
	options *Options
	account Account
	ws      *websocket.Conn
	net     *netConn
	ctx     context.Context // values of the handshake; canceled at the end
	cancel  context.CancelFunc

	// Reader state, used only by the reader.
	sessionCtx context.Context // returned by Init; nil before
	inited     bool            // a connection_init was accepted
	malformed  int             // consecutive malformed frames
	parkedAt   time.Duration   // time on the xsync.Clock at which the reader was parked
	wakes      int             // number of times in a row that the reader was parked for less than lingerTime

	// Lifecycle. This group and the following ones are protected by mu.
	drainTimer *time.Timer // runs drain during a shutdown
	lifeTimer  *time.Timer // runs drain at the end of the connection's lifetime
	ending     *ending     // set in phaseEnding; nil if the connection was cut before
	why        error       // argument of Stream.Close for the remaining streams, and of Session.Closed
	whySet     bool        // setWhy was called; why may still be nil
	parked     bool        // the reader has no goroutine; the poller or netConn.Close starts one

	// Operations.
	ops            map[string]*operation // by operationID.key
	streams        int                   // number of subscriptions, including ended ones whose Next is still running
	waitingQueries []*operation          // queries that have not started
	runningQueries int                   // number of started queries, including stopped ones whose Run is still running
	expectedBytes  int                   // sum of Operation.Size of running queries
	unsentBytes    int                   // size of the unsent query responses

	// Session expiry and the time limit of an unused connection.
	credentialExpiry time.Time   // expiry of the last credential; zero if none
	expiryTimer      *time.Timer // runs expire
	initTimer        *time.Timer // runs checkInitTimeout; nil after connection_init

	rate rateLimiter // limits the frames of the peer

	outboxBytes int // size of outbox in bytes, with frameCost per frame

	// Pings and keep-alives.
	pingTimer      *time.Timer // runs pingTick; nil if pings go with keep-alives
	awaitsPong     bool        // a ping was written and no pong has arrived since
	missedPongs    int         // consecutive pings without a pong or a message
	keepAliveTimer *time.Timer // runs keepAliveTick
	nextKeepAlive  time.Time   // time at which keepAliveTimer is due
	beats          int8        // keep-alives since the last ping; -1 if the wheel must skip the next one

	// Each field is protected by the mutex of the wheel or poller that uses it.
	wheelSlot int32 // slot in the wheel, counted from 1; 0 if the connection is not in the wheel
	fd        int32 // file descriptor that the poller watches
}

func newConn(ctx context.Context, s *Server, cd codec, peer Session) *conn {
	c := &conn{server: s, codec: cd, peer: peer, options: &s.options, ops: make(map[string]*operation)}
	c.ctx, c.cancel = context.WithCancel(ctx)
	c.changed.L = &c.mu
	c.ready = c.readyOne[:0]
	c.account = c.openAccount()
	if c.usage = new(xsync.Usage); s.options.Usage != nil {
		c.usage = s.options.Usage(peer)
	}
	return c
}

// start stores the upgraded connection and starts its timers. The caller must then call serve.
func (c *conn) start(ws *websocket.Conn, nc *netConn) {
	ws.SetReadLimit(-1) // readMessage enforces MaxMessage, so that the peer receives an error
	c.ws, c.net, c.raw, nc.conn = ws, nc, nc.raw, c
	c.mu.Lock()
	defer c.mu.Unlock()
	if d := c.codec.initTimeout(c.options); d > 0 {
		c.initTimer = c.afterFunc(d, c.checkInitTimeout)
	}
	if d := c.options.KeepAliveInterval; d > 0 {
		c.pingTimer = c.afterFunc(d, c.pingTick)
	}
}

// serve calls Session.Opened and then runs the reader.
func (c *conn) serve() {
	if err := c.onNewGoroutine(c.callOpened); err != nil {
		c.finish(err)
		return
	}
	c.readLoop()
}

// finish is called when the reader has ended with err. It closes the connection, waits for its goroutines, releases its
// resources and calls Session.Closed.
func (c *conn) finish(err error) {
	defer c.server.release(c)
	defer c.server.poller.remove(c)
	c.stopLingering()
	c.cut(readEndReason(err))

	c.mu.Lock()
	why := c.why
	ops := c.retireAll(why)
	for _, t := range []*time.Timer{
		c.initTimer, c.keepAliveTimer, c.pingTimer, c.expiryTimer, c.drainTimer, c.lifeTimer,
	} {
		if t != nil {
			t.Stop()
		}
	}
	c.mu.Unlock()
	c.server.wheel.remove(c)
	for turn := paceLive + 1; turn < paces; turn++ {
		c.server.writers.remove(c, turn)
	}

	c.cancel()
	c.dispose(ops...)
	_ = c.ws.CloseNow() // releases the memory of coder/websocket; the net.Conn is already closed
	c.wg.Wait()
	c.account.Close()
	if errors.Is(why, ErrGone) && closedByPeer(err) {
		why = nil
	}
	c.callClosed(why)
}

// afterFunc is like time.AfterFunc, with two differences: finish waits until f has returned, and f is not called after
// phaseClosed has begun.
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

// spawn runs f on a goroutine that the connection waits for. If f panics or calls runtime.Goexit, the connection is
// cut. The caller must hold c.mu. In phaseClosed, spawn may be called only from a goroutine that wg counts. The
// parameter what is the name of f in the log.
func (c *conn) spawn(what string, f func()) {
	c.wg.Add(1)
	go func() {
		defer c.wg.Done()
		c.runProtected(what, f, func(err error) {
			if err != nil {
				c.cut(&cutError{ErrCut, what + " failed", err})
			}
		})
	}()
}

// end begins to end the connection for the reason e, which the writer then sends to the peer. It returns false if the
// connection was already ending. If the peer is at fault, end stops all operations at once. Otherwise the writer stops
// them when it is known whether the peer has received e.
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

// drainAfter calls drain after the delay d, unless draining has started or is already scheduled.
func (c *conn) drainAfter(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase == phaseOpen && c.drainTimer == nil {
		c.drainTimer = c.afterFunc(d, c.drain)
	}
}

// liveFor calls drain after the lifetime d.
func (c *conn) liveFor(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lifeTimer = c.afterFunc(d, c.drain)
}

// drain allows no new operations and ends the connection when its running queries have finished.
func (c *conn) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance(phaseDraining)
	c.scheduleWriter()
}

// mayTakeLonger reports whether progress extends the timeout of a write. At the end of a connection it does not: a slow
// peer would delay the end of the process.
func (c *conn) mayTakeLonger() bool {
	c.mu.Lock()
	ending := c.phase >= phaseEnding
	c.mu.Unlock()
	return !ending && !c.server.sockets.Closed()
}

// cut closes the connection without sending a message to the peer, because no message would arrive. It records why.
func (c *conn) cut(why *cutError) {
	c.recordCut(why)
	c.closeNet()
}

// advance enters the given phase, unless the connection is already in a later one. The caller must hold c.mu.
func (c *conn) advance(to phase) { c.phase = max(c.phase, to) }

// closeNet closes the net.Conn and cancels the connection's context.
func (c *conn) closeNet() {
	_ = c.net.Close() // first, so that a reader that returns from throttle cannot read
	c.mu.Lock()
	if c.phase == phaseClosing {
		c.setWhy(c.ending.why())
	}
	c.phase = phaseClosed
	c.changed.Broadcast()
	c.mu.Unlock()
	c.cancel()
}

// recordCut records why the connection was lost. Only the first reason is kept, because later errors are its
// consequences. If the peer disconnects or violates the protocol during the close handshake, recordCut records the
// reason for which the server closes the connection.
func (c *conn) recordCut(why *cutError) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase == phaseClosing && why.kind != ErrCut {
		c.setWhy(c.ending.why())
		return
	}
	c.setWhy(why)
}

// setWhy sets c.why unless it is already set. The caller must hold c.mu.
func (c *conn) setWhy(why error) {
	if !c.whySet {
		c.whySet, c.why = true, why
	}
}

// resumePointsOf returns the positions of the streams of retired operations. It omits a stream whose Next is running,
// because its cursor may change and the stream may be closed at any time.
func (c *conn) resumePointsOf(ops []*operation) []resumePoint {
	var all []resumePoint
	for _, op := range ops {
		if !op.query && !op.closeAfterCall {
			cursor, own := c.callPosition(op.stream)
			all = append(all, resumePoint{id: op.id, cursor: cursor, err: own})
		}
	}
	return all
}
