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
	// closeWait is how long the last words and the close handshake may take
	// before the connection is closed without them.
	closeWait = 3 * time.Second

	// maxOutbox is how many bytes of control frames may wait; while there are
	// more, the peer is not read.
	maxOutbox = 32 << 10

	// maxMissed is how many pings in a row may go unanswered before the
	// connection is cut.
	maxMissed = 2

	// frameCost is what a waiting frame costs beside its own bytes.
	frameCost = 64
)

// A conn is one connection. Its reader goroutine (hear) lives as long as the
// connection, but is parked, where it can be, while there is nothing to read; the
// reader's end is the connection's end, and whoever wants that closes the
// net.Conn. What there is to write, the crew writes, or a goroutine (write) that
// exists only while the peer has to be waited for. Each goroutine of a write, a
// query or a timer is counted in wg, which the reader waits for.
type conn struct {
	server  *Server
	codec   codec
	peer    Session
	ctx     context.Context // values of the handshake; cancelled at the end
	cancel  context.CancelFunc
	ws      *websocket.Conn
	net     *netConn
	wg      sync.WaitGroup
	options *Options
	account Account

	// The reader's own.
	session   context.Context // what Init returned; nil before
	inited    bool            // by a connection_init
	malformed int             // frames in a row

	mu       sync.Mutex    // never held across I/O or calls out
	paced    time.Time     // when all frames were due, had they come at MessageRate
	held     time.Duration // for which the peer was not read since the last frame
	spare    time.Duration // of that, what its bucket had no room for: frames may have come meanwhile
	ops      map[string]*operation
	streams  int          // places that subscriptions have; one that ended has its until nobody is at work on it
	running  int          // so, of queries that were started
	ready    []*operation // those to be asked for what they have, in turn
	outbox   [][]byte     // frames that go ahead of data
	pending  int          // what they cost
	room     *sync.Cond   // a send is over, or broken was set
	pingDue  bool         // a ping waits to be written
	pinged   bool         // one was, and no pong has come since
	missed   int          // how often none had come when the next was due
	kaDue    bool         // a keep-alive waits to be written
	kaNext   time.Time    // when the timer's next one is due
	waiting  []*operation // queries that were read and have not started
	unsent   int          // bytes of answers to queries that are not sent
	expected int          // size of what running queries are expected to add
	inWrite  int          // of these, in the write that is under way
	expires  time.Time    // when the credential of the last init does; zero is never
	ending   *ending      // nothing is started or heard any more
	draining bool         // nothing is started any more; ends when the running queries are answered
	writing  bool         // somebody is at it, or in line to
	sending  bool         // bytes are going out
	shut     bool         // a close frame is out, or about to be: nothing goes out any more
	closing  bool         // it is in the close handshake
	broken   bool         // the net.Conn was, or is being, closed
	dead     bool         // the reader is gone: no goroutine is started any more
	blamed   bool         // why is set
	why      error        // what the streams that still run are closed with

	slot  int32 // in the server's wheel, from 1; the wheel's
	beats int8  // turns of that slot since the last ping; -1 if the next one is too early

	parked bool  // the watch, or the end, has a reader begin
	fd     int32 // the watch's

	next *conn // in the crew's line; the crew's

	opening          *time.Timer // ends a connection that is not in use; nil since connection_init
	ka, ping, expiry *time.Timer

	turn *time.Timer // to drain, when many connections are shut down
}

func newConn(ctx context.Context, s *Server, cd codec, peer Session) *conn {
	c := &conn{server: s, codec: cd, peer: peer, options: &s.options, ops: make(map[string]*operation)}
	c.ctx, c.cancel = context.WithCancel(ctx)
	c.room = sync.NewCond(&c.mu)
	c.account = c.openAccount()
	return c
}

// start makes a connection of what the handshake brought; serve then runs it.
func (c *conn) start(ws *websocket.Conn, nc *netConn) {
	ws.SetReadLimit(-1) // read has the limit, so that the peer can be told
	c.ws, c.net, nc.conn = ws, nc, c
	c.mu.Lock()
	defer c.mu.Unlock()
	if d := c.codec.opening(c.options); d > 0 {
		c.opening = c.after(d, c.checkInUse)
	}
	if d := c.options.KeepAlive; d > 0 {
		c.ping = c.after(d, c.checkAlive)
	}
}

// serve begins to read.
func (c *conn) serve() {
	if err := c.apart(c.callOpened); err != nil {
		c.finish(err)
		return
	}
	c.hear()
}

// finish is the end of the connection, which the reader came to: it frees
// everything that was held.
func (c *conn) finish(err error) {
	defer c.server.release(c)
	defer c.server.watch.forget(c)
	c.cut(readEnd(err))

	c.mu.Lock()
	c.dead = true
	why := c.why
	ops := c.retireAll(why)
	var standings []standing
	if c.ending != nil {
		standings = c.ending.standings
	}
	for _, t := range []*time.Timer{c.opening, c.ka, c.ping, c.expiry, c.turn} {
		if t != nil {
			t.Stop()
		}
	}
	c.mu.Unlock()
	c.server.wheel.remove(c)

	c.report(why, standings, ops)
	c.cancel()
	c.dispose(ops...)
	_ = c.ws.CloseNow() // frees what the library holds; the connection is closed
	c.wg.Wait()
	c.account.Close()
	if errors.Is(why, ErrGone) && closedByPeer(err) {
		why = nil
	}
	c.callClosed(why)
}

// after is time.AfterFunc for a goroutine that the connection waits for.
func (c *conn) after(d time.Duration, f func()) *time.Timer {
	return time.AfterFunc(d, func() {
		c.mu.Lock()
		if c.dead {
			c.mu.Unlock()
			return
		}
		c.wg.Add(1)
		c.mu.Unlock()
		defer c.wg.Done()
		f()
	})
}

// spawn runs f on a goroutine that the connection waits for. Called with mu
// held, and not when dead.
func (c *conn) spawn(what string, f func()) {
	c.wg.Add(1)
	go c.guarded(what, f)
}

// guarded runs f, for which wg was counted up. Foreign code that panics in it, or
// ends its goroutine, costs the connection.
func (c *conn) guarded(what string, f func()) {
	defer c.wg.Done()
	c.fenced(what, f, func(err error) {
		if err != nil {
			c.cut(&severed{ErrCut, what + " failed", err})
		}
	})
}

// end says goodbye to the peer, and reports whether it was the first to: no
// operation goes on, the writer has the last word. Where the end is not the
// peer's doing, streams are the writer's to end: behind what they gave it
// already, and when it is known whether the peer could be told.
func (c *conn) end(e ending) bool {
	c.mu.Lock()
	if c.ending != nil || c.dead {
		c.mu.Unlock()
		return false
	}
	c.ending = &e
	var ops []*operation
	if !e.ours() {
		c.settleWhy(e.why())
		ops = c.retireAll(c.why)
	}
	c.kick()
	c.mu.Unlock()
	c.dispose(ops...)
	return true
}

// drainIn has its turn to drain come after a while.
func (c *conn) drainIn(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.dead && !c.draining && c.turn == nil {
		c.turn = c.after(d, c.drain)
	}
}

// drain starts no operation any more and ends the connection when the running
// queries are answered.
func (c *conn) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.draining = true
	c.kick()
}

// cut closes the connection without a word, because none would get through.
func (c *conn) cut(why *severed) {
	c.blame(why)
	c.sever()
}

func (c *conn) sever() {
	_ = c.net.Close() // first: a reader that waited for room reads no more
	c.mu.Lock()
	c.broken = true
	c.room.Broadcast()
	c.mu.Unlock()
	c.cancel()
}

// blame notes why the connection is lost. Only what comes first counts: the rest
// follows from it. A peer that leaves during the farewell does so because of it.
func (c *conn) blame(why *severed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing && why.kind != ErrCut {
		c.settleWhy(c.ending.why())
		return
	}
	c.settleWhy(why)
}

// settleWhy is called with mu held.
func (c *conn) settleWhy(why error) {
	if !c.blamed {
		c.blamed, c.why = true, why
	}
}

// maxCursors is how many cursors one line in the log has.
const maxCursors = 32

// report logs a connection without a farewell. A cut is worth a line for all to
// see, and where its streams were; that a peer just left is not. The streams
// are those the farewell was to tell of, and ops.
func (c *conn) report(why error, streams []standing, ops []*operation) {
	var s *severed
	if !errors.As(why, &s) {
		return
	}
	level, attrs := slog.LevelDebug, []any{"reason", s.reason, "remote", c.net.RemoteAddr(), "error", s.err}
	if s.kind == ErrCut {
		level = slog.LevelInfo
		var cursors []string
		for _, st := range slices.Concat(streams, c.standings(ops)) {
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

// standings asks retired streams where they are. One whose Next is under way is
// between two cursors, and may be closed at any time: it is left out.
func (c *conn) standings(ops []*operation) []standing {
	var all []standing
	for _, op := range ops {
		if !op.query && !op.handover {
			all = append(all, standing{id: op.id, stream: op.stream, cursor: c.callCursor(op.stream)})
		}
	}
	return all
}
