package chaingql

import (
	"net/netip"
	"sync"

	"github.com/chaingql/chaingql/internal/xsync"
)

// streamConns contains a streamConn for each network connection with event streams. A connection of HTTP/2 can have a
// hundred of them, and end and start each again and again. So its usage is kept until it is 0, or until there are
// maxStreamConns. Behind a proxy each stream has a connection of its own, but if the host replaces RemoteAddr by the
// address of the client, all its connections are one.
type streamConns struct {
	mu sync.Mutex
	of map[string]*streamConn // by the client's address, with its port if that is known
}

// maxStreamConns is the number of connections from which on those without streams are forgotten.
const maxStreamConns = 4096

// A streamConn is a network connection with event streams.
type streamConn struct {
	pages, turns xsync.Usage      // of all streams
	slots        *xsync.Semaphore // for streams that have a turn or wait for one
	streams      int              // guarded by streamConns.mu
}

func newStreamConn() *streamConn { return &streamConn{slots: xsync.NewSemaphore(turnsAtOnce())} }

// enter returns the connection of a new stream, given the client's address. The caller must call leave.
func (c *streamConns) enter(address string) *streamConn {
	if !isIP(address) {
		return newStreamConn() // the connections of a Unix socket have the same address
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = make(map[string]*streamConn)
	}
	conn := c.of[address]
	if conn == nil {
		conn = newStreamConn()
		c.forgetSome()
		c.of[address] = conn
	}
	conn.streams++
	return conn
}

func isIP(address string) bool {
	_, err := netip.ParseAddrPort(address)
	if err != nil {
		_, err = netip.ParseAddr(address)
	}
	return err == nil
}

func (c *streamConns) leave(conn *streamConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	conn.streams--
}

// forgetSome looks at two connections, in an arbitrary order, and forgets those that are not used any more. It is
// called for each new connection, so that most of those in the map are used.
func (c *streamConns) forgetSome() {
	looked, full := 0, len(c.of) >= maxStreamConns
	for address, conn := range c.of {
		if conn.streams == 0 && (full || conn.pages.Time() == 0 && conn.turns.Time() == 0) {
			delete(c.of, address)
		}
		if looked++; looked == 2 {
			return
		}
	}
}
