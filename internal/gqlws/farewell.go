package gqlws

import (
	"os"
	"time"

	"github.com/coder/websocket"
)

// goodbye says why the connection ends and where its streams stand, and closes
// it. The close handshake of the library has no bound of its own against a peer
// that stalls. The streams are closed when it is known whether the peer was told.
func (c *conn) goodbye() {
	c.mu.Lock()
	c.closing = true
	c.net.readBy(time.Time{}) // a frame whose reader waited for this has closeWait
	ops := c.retireAll(nil)
	c.mu.Unlock()
	bound := c.after(closeWait, func() {
		c.cut(&severed{ErrCut, "farewell took too long", os.ErrDeadlineExceeded})
	})
	defer bound.Stop()
	standings := c.standings(ops)
	for i, s := range standings {
		standings[i].own = c.callPending(s.stream)
	}
	c.mu.Lock()
	c.ending.standings = append(c.ending.standings, standings...)
	e := *c.ending
	c.mu.Unlock()

	said, code, reason := c.lastWords(e)
	c.mu.Lock()
	c.settleWhy(e.why())
	for _, op := range ops {
		op.why = c.why
	}
	c.mu.Unlock()
	c.dispose(ops...)
	if !said {
		return
	}
	if err := c.ws.Close(code, reason); err != nil {
		c.server.log.DebugContext(c.ctx, "gqlws: close handshake not finished", "error", err)
	}
}

// lastWords writes all but the close frame, which it returns, and reports
// whether it could.
func (c *conn) lastWords(e ending) (said bool, code websocket.StatusCode, reason string) {
	var b []byte
	add := func(message []byte) {
		if len(message) > 0 {
			b = appendText(b, message)
		}
	}
	for _, s := range e.standings {
		add(c.codec.appendStanding(nil, e, s))
	}
	message, code, reason := c.codec.farewell(nil, e)
	add(message)
	return len(b) == 0 || c.sendLast(b), code, reason
}

// sendLast is send for what no turn was taken for: it fails when the library has
// answered a close frame of the peer's, and has it wait otherwise.
func (c *conn) sendLast(frames []byte) bool {
	c.mu.Lock()
	if c.shut {
		c.mu.Unlock()
		return false
	}
	c.sending = true
	c.mu.Unlock()
	return c.send(frames)
}
