package chaingql

import (
	"container/list"
	"net/netip"
	"sync"

	"github.com/chaingql/chaingql/internal/xsync"
)

// maxEndedConns is the maximum number of connections without event streams whose usage is kept.
const maxEndedConns = 4096

// streamConns contains a streamConn for each network connection with event streams. A connection of HTTP/2 can have a
// hundred of them, and end and start each again and again. So its usage is kept for some time after they have ended.
// Behind a proxy each stream has a connection of its own, but if the host replaces RemoteAddr by the address of the
// client, all its connections are one.
type streamConns struct {
	mu    sync.Mutex
	of    map[string]*streamConn // by the client's address, with its port if that is known
	ended list.List              // of the *streamConn without streams; those whose streams ended first come first
}

// A streamConn is a network connection with event streams.
type streamConn struct {
	pages, turns xsync.Usage      // of all streams
	slots        *xsync.Semaphore // for streams that have a turn or wait for one

	held int // the memory of the subscriptions of all streams, guarded by subscriptionQuota.mu

	// streamConns.mu guards these fields.
	address string        // "" if it is unknown
	streams int           // number of open streams
	ended   *list.Element // in streamConns.ended, or nil
}

func newStreamConn() *streamConn { return &streamConn{slots: xsync.NewSemaphore(turnsAtOnce())} }

// enter returns the connection of a new stream, given the client's address. The caller must call leave.
func (c *streamConns) enter(address string) *streamConn {
	if !isIP(address) {
		return newStreamConn() // the connections of a Unix socket have the same address
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	conn := c.of[address]
	switch {
	case conn == nil:
		if c.of == nil {
			c.of = make(map[string]*streamConn)
		}
		conn = newStreamConn()
		conn.address, c.of[address] = address, conn
	case conn.ended != nil:
		c.ended.Remove(conn.ended)
		conn.ended = nil
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
	if conn.streams--; conn.streams > 0 || conn.address == "" {
		return
	}
	if conn.pages.Time() == 0 && conn.turns.Time() == 0 {
		delete(c.of, conn.address)
		return
	}
	conn.ended = c.ended.PushBack(conn)
	if c.ended.Len() > maxEndedConns {
		first := c.ended.Remove(c.ended.Front()).(*streamConn)
		delete(c.of, first.address)
	}
}
