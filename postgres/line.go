package postgres

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// channel is what PostgreSQL notifies on; the payload is the schema.
const channel = "chaingql"

// quiet is after what silence a line is tested: a connection that dropped says
// nothing.
const quiet = 10 * time.Second

// A line is the connection on which PostgreSQL tells that there are new blocks.
type line struct {
	ready  chan struct{} // closed once it listens
	over   chan struct{} // closed when it has ended and its connection is closed
	err    error         // why, written before over is closed
	hangUp context.CancelFunc
	wakes  map[chan struct{}]*extension // of those who wait for blocks; guarded by exchange
}

// exchange has the lines of this process, by where they lead: all Follows to one
// database share one, whatever the Backend and the schema. A line is there while
// any Follow is on it.
var exchange = struct {
	sync.Mutex
	lines map[string]*line
}{lines: make(map[string]*line)}

// An extension is a Backend's way to the line. A line that it opens is opened
// with its settings.
type extension struct {
	config  *pgx.ConnConfig
	leads   string // destination of config
	topic   string
	timeout time.Duration
	quiet   time.Duration
	closed  bool // guarded by exchange
}

// destination tells apart where connections lead, and as whom; and how they are
// protected on the way, so that no Backend's line is less so than its pool. Not
// the password: who is here has shown his to the same server.
func destination(c *pgx.ConnConfig) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%q %q %p", c.User, c.Database, c.ValidateConnect) // the last is target_session_attrs
	for _, to := range append([]*pgconn.FallbackConfig{{Host: c.Host, Port: c.Port, TLSConfig: c.TLSConfig}}, c.Fallbacks...) {
		fmt.Fprintf(&text, " %q:%d", to.Host, to.Port)
		if t := to.TLSConfig; t != nil {
			fmt.Fprintf(&text, " TLS %q %t %t", t.ServerName, t.InsecureSkipVerify, t.VerifyPeerCertificate != nil)
		}
	}
	return text.String()
}

// join puts a Follow on the line; wake gets a value when there may be blocks.
func (e *extension) join(wake chan struct{}) (*line, error) {
	exchange.Lock()
	defer exchange.Unlock()
	if e.closed {
		return nil, errClosed
	}
	l := exchange.lines[e.leads]
	if l == nil || len(l.wakes) == 0 || l.isOver() {
		ctx, cancel := context.WithCancel(context.Background())
		l = &line{ready: make(chan struct{}), over: make(chan struct{}), hangUp: cancel, wakes: make(map[chan struct{}]*extension)}
		exchange.lines[e.leads] = l
		go func() { // whoever leaves last waits for it
			defer close(l.over)
			l.err = e.listen(ctx, l)
		}()
	}
	l.wakes[wake] = e
	return l, nil
}

// leave takes a Follow off its line. The last to leave hangs up.
func (e *extension) leave(l *line, wake chan struct{}) {
	exchange.Lock()
	delete(l.wakes, wake)
	last := len(l.wakes) == 0
	exchange.Unlock()
	if last {
		e.hangUp(l)
	}
}

// close takes all Follows of the Backend off the line, for good.
func (e *extension) close() {
	exchange.Lock()
	e.closed = true
	l := exchange.lines[e.leads]
	if l == nil {
		exchange.Unlock()
		return
	}
	for wake, of := range l.wakes {
		if of == e {
			delete(l.wakes, wake)
		}
	}
	last := len(l.wakes) == 0
	exchange.Unlock()
	if last {
		e.hangUp(l)
	}
}

// hangUp ends a line that all have left.
func (e *extension) hangUp(l *line) {
	l.hangUp()
	<-l.over
	exchange.Lock()
	defer exchange.Unlock()
	if exchange.lines[e.leads] == l {
		delete(exchange.lines, e.leads)
	}
}

func (l *line) isOver() bool {
	select {
	case <-l.over:
		return true
	default:
		return false
	}
}

// listen wakes all who are on the line at each notification, until the
// connection fails or ctx is done.
func (e *extension) listen(ctx context.Context, l *line) error {
	conn, err := e.dial(ctx)
	if err != nil {
		return failed("listen for new blocks", err)
	}
	defer farewell(conn)
	close(l.ready)
	for {
		if err := e.hear(ctx, conn, l); err != nil {
			return failed("listen for new blocks", err)
		}
	}
}

// dial makes a connection that listens.
func (e *extension) dial(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, e.config)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		farewell(conn)
		return nil, err
	}
	return conn, nil
}

// farewell closes a connection, and gives PostgreSQL a moment to be told.
func farewell(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	_ = conn.Close(ctx) // whatever it says, the connection is closed
}

// hear waits for one notification, and not for ever.
func (e *extension) hear(ctx context.Context, conn *pgx.Conn, l *line) error {
	waiting, cancel := context.WithTimeout(ctx, e.quiet)
	defer cancel()
	note, err := conn.WaitForNotification(waiting)
	switch {
	case err == nil:
		l.ring(note.Payload)
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case waiting.Err() != nil:
		testing, cancel := context.WithTimeout(ctx, e.timeout)
		defer cancel()
		return conn.Ping(testing)
	}
	return err
}

// ring wakes those whom a notification is for.
func (l *line) ring(topic string) {
	exchange.Lock()
	defer exchange.Unlock()
	for wake, of := range l.wakes {
		if of.topic == topic {
			ring(wake)
		}
	}
}

// ring wakes a Follow, once for all that came since it looked.
func ring(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}
