package gqlws

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
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
	// frameCost is what a waiting frame costs beside its own bytes.
	frameCost = 64
)

// A conn is one connection. Its reader goroutine (serve) lives as long as the
// connection; the reader's end is the connection's end, and whoever wants that
// closes the net.Conn. A writer goroutine (write) exists only while there is
// something to write. Each goroutine of a query, a ping or a timer is counted in
// wg, which the reader waits for.
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

	// The reader's own.
	session   context.Context // what Init returned; nil before
	inited    bool            // by a connection_init
	malformed int             // frames in a row
	paced     time.Time       // when all messages were due, had they come at MessageRate

	mu       sync.Mutex // never held across I/O or calls out
	ops      map[string]*operation
	leaving  int          // ended ones whose work is still under way
	ready    []*operation // those to be asked for what they have, in turn
	outbox   [][]byte     // control frames
	pending  int          // what they cost
	room     *sync.Cond   // pending went down, or broken was set
	kaDue    bool         // a keep-alive waits to be written
	kaNext   time.Time    // when the one after it is due
	ending   *ending      // nothing is started or heard any more
	draining bool         // nothing is started any more; ends when the running queries are answered
	writing  bool         // a writer exists
	closing  bool         // it is in the close handshake
	broken   bool         // the net.Conn was, or is being, closed
	dead     bool         // the reader is gone: no goroutine is started any more

	opening, ka, ping, expiry *time.Timer
}

func newConn(ctx context.Context, s *Server, cd codec, peer Session) *conn {
	c := &conn{server: s, codec: cd, peer: peer, options: &s.options, ops: make(map[string]*operation)}
	c.ctx, c.cancel = context.WithCancel(ctx)
	c.room = sync.NewCond(&c.mu)
	return c
}

// start makes a connection of what the handshake brought; serve then runs it.
func (c *conn) start(ws *websocket.Conn, nc *netConn) {
	ws.SetReadLimit(-1) // read has the limit, so that the peer can be told
	c.ws, c.net = ws, nc
	c.mu.Lock()
	defer c.mu.Unlock()
	if d := c.codec.opening(c.options); d > 0 {
		c.opening = c.after(d, func() {
			err := encodeError(fmt.Sprintf("No message within %v", d), "TIMEOUT")
			c.end(ending{cause: causeSilent, err: err})
		})
	}
	if d := c.options.KeepAlive; d > 0 {
		c.ping = c.after(d, c.checkAlive)
	}
}

// serve reads until the connection ends, however that comes about, and then
// frees everything it held.
func (c *conn) serve() {
	defer c.server.release(c)
	err := c.listen()
	c.cut("read failed", err)

	c.mu.Lock()
	c.dead = true
	ops := c.retireAll()
	for _, t := range []*time.Timer{c.opening, c.ka, c.ping, c.expiry} {
		if t != nil {
			t.Stop()
		}
	}
	c.mu.Unlock()

	c.cancel()
	c.dispose(ops...)
	_ = c.ws.CloseNow() // frees what the library holds; the connection is closed
	c.wg.Wait()
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
	go func() {
		defer c.wg.Done()
		var err error
		defer func() {
			if err != nil {
				c.cut(what+" failed", err)
			}
		}()
		defer c.recovered(what, &err)
		f()
	}()
}

// end says goodbye to the peer: no operation goes on, the writer has the last
// word.
func (c *conn) end(e ending) {
	c.mu.Lock()
	if c.ending != nil || c.dead {
		c.mu.Unlock()
		return
	}
	c.ending = &e
	ops := c.retireAll()
	c.kick()
	c.mu.Unlock()
	c.dispose(ops...)
}

// drain starts no operation any more and ends the connection when the running
// queries are answered.
func (c *conn) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.draining = true
	c.kick()
}

// cut closes the connection without a word, because none would get through. A
// timeout is worth a line in the log; that a peer just left is not.
func (c *conn) cut(reason string, err error) {
	c.mu.Lock()
	cut := !c.broken
	c.broken = true
	c.room.Broadcast()
	c.mu.Unlock()
	if cut {
		level := slog.LevelDebug
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
			level = slog.LevelInfo
		}
		c.server.log.Log(c.ctx, level, "gqlws: connection cut",
			"reason", reason, "remote", c.net.RemoteAddr(), "error", err)
	}
	_ = c.net.Close()
}

// checkAlive asks the peer for a sign of life and waits for it.
func (c *conn) checkAlive() {
	c.mu.Lock()
	if c.dead || c.ending != nil {
		c.mu.Unlock()
		return
	}
	c.ping.Reset(c.options.KeepAlive)
	c.mu.Unlock()

	ctx, cancel := context.WithTimeout(c.ctx, 2*c.options.KeepAlive)
	defer cancel()
	// The library gives up on a ping that finds a long write under way; that is
	// the write's affair, and the next ping asks again.
	if err := c.ws.Ping(ctx); err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		c.cut("no answer to pings", err)
	}
}

// recovered is deferred around foreign code: a panic becomes a logged error.
func (c *conn) recovered(what string, err *error) {
	if v := recover(); v != nil {
		c.server.log.ErrorContext(c.ctx, "gqlws: panic in "+what,
			"panic", fmt.Sprint(v), "stack", string(debug.Stack()))
		*err = errInternal
	}
}
