package postgres

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// channel is the name of the notification channel. The payload of a notification is the
// name of the schema.
const channel = "chaingql"

// pingAfter is the time without a notification after which a listener pings its
// connection, because a lost connection may not report an error.
const pingAfter = 10 * time.Second

// A listener holds one LISTEN connection. It wakes the Follow calls that wait for blocks
// from that database.
type listener struct {
	ready chan struct{} // closed when LISTEN has succeeded
	done  chan struct{} // closed when the listener has ended and its connection is closed
	err   error         // the reason why it ended, written before done is closed
	stop  context.CancelFunc
	wakes map[chan struct{}]*subscription // wake-up channels of Follow calls; guarded by registry
}

// registry holds the listeners of this process by destination. All Follow calls on one
// database share one listener, even if their Backends or schemas differ. A listener is
// closed when the last of its Follow calls ends.
var registry = struct {
	sync.Mutex
	listeners map[string]*listener
}{listeners: make(map[string]*listener)}

// A subscription connects a Backend to the listener of its database. If there is none, it
// starts one with the settings of the Backend.
type subscription struct {
	config      *pgx.ConnConfig
	destination string // key of the listener, see the function destination
	topic       string // name of the schema
	timeout     time.Duration
	pingAfter   time.Duration
	closed      bool // guarded by registry
}

// destination returns a key for the servers, user, database and TLS settings of c. TLS
// settings are included so that no Backend shares a connection that is less protected than
// its pool. The password is not included, because each Backend has already authenticated to
// the server.
func destination(c *pgx.ConnConfig) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%q %q %p", c.User, c.Database, c.ValidateConnect) // ValidateConnect: target_session_attrs
	for _, to := range servers(&c.Config) {
		fmt.Fprintf(&text, " %q:%d", to.Host, to.Port)
		if t := to.TLSConfig; t != nil {
			fmt.Fprintf(&text, " TLS %q %t %t", t.ServerName, t.InsecureSkipVerify, t.VerifyPeerCertificate != nil)
		}
	}
	return text.String()
}

// join adds a Follow call to the listener. wake receives a value when there may be new blocks.
func (e *subscription) join(wake chan struct{}) (*listener, error) {
	registry.Lock()
	defer registry.Unlock()
	if e.closed {
		return nil, errClosed
	}
	l := registry.listeners[e.destination]
	if l == nil || len(l.wakes) == 0 || l.isDone() {
		ctx, cancel := context.WithCancel(context.Background())
		l = &listener{
			ready: make(chan struct{}), done: make(chan struct{}), stop: cancel,
			wakes: make(map[chan struct{}]*subscription),
		}
		registry.listeners[e.destination] = l
		go func() { // stop waits for this goroutine
			defer close(l.done)
			l.err = e.listen(ctx, l)
		}()
	}
	l.wakes[wake] = e
	return l, nil
}

// leave removes a Follow call from its listener, and stops the listener if no other is left.
func (e *subscription) leave(l *listener, wake chan struct{}) {
	registry.Lock()
	delete(l.wakes, wake)
	last := len(l.wakes) == 0
	registry.Unlock()
	if last {
		e.stop(l)
	}
}

// close removes all Follow calls of the Backend from the listener. Later calls of join
// return errClosed.
func (e *subscription) close() {
	registry.Lock()
	e.closed = true
	l := registry.listeners[e.destination]
	if l == nil {
		registry.Unlock()
		return
	}
	for wake, of := range l.wakes {
		if of == e {
			delete(l.wakes, wake)
		}
	}
	last := len(l.wakes) == 0
	registry.Unlock()
	if last {
		e.stop(l)
	}
}

// stop stops a listener that no Follow call uses, and waits until its connection is closed.
func (e *subscription) stop(l *listener) {
	l.stop()
	<-l.done
	registry.Lock()
	defer registry.Unlock()
	if registry.listeners[e.destination] == l {
		delete(registry.listeners, e.destination)
	}
}

func (l *listener) isDone() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// listen wakes the Follow calls of a schema when a notification for that schema arrives. It
// returns when the connection fails or ctx is done.
func (e *subscription) listen(ctx context.Context, l *listener) error {
	conn, err := e.dial(ctx)
	if err != nil {
		return failed("listen for new blocks", err)
	}
	defer closeConn(conn)
	close(l.ready)
	for {
		if err := e.waitNotification(ctx, conn, l); err != nil {
			return failed("listen for new blocks", err)
		}
	}
}

// noIdleTimeout turns off idle_session_timeout, which PostgreSQL has since version 14: it does not count notifications,
// so it would end the session of each listener.
const noIdleTimeout = "SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'idle_session_timeout'"

// dial opens a connection and runs LISTEN on it.
func (e *subscription) dial(ctx context.Context) (*pgx.Conn, error) {
	config := e.config.Copy()
	limitAttempts(ctx, config, e.timeout)
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	for _, statement := range []string{noIdleTimeout, "LISTEN " + channel} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			closeConn(conn)
			return nil, err
		}
	}
	return conn, nil
}

// closeConn closes a connection. It takes at most 500 ms, even if PostgreSQL does not respond.
func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	_ = conn.Close(ctx) // the connection is closed even if Close returns an error
}

// waitNotification waits for one notification. If none arrives within e.pingAfter, it pings
// the server instead, and returns an error if the server does not respond.
func (e *subscription) waitNotification(ctx context.Context, conn *pgx.Conn, l *listener) error {
	waiting, cancel := context.WithTimeout(ctx, e.pingAfter)
	defer cancel()
	note, err := conn.WaitForNotification(waiting)
	switch {
	case err == nil:
		l.notify(note.Payload)
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

// notify wakes the Follow calls for a schema. topic is the name of the schema.
func (l *listener) notify(topic string) {
	registry.Lock()
	defer registry.Unlock()
	for wake, of := range l.wakes {
		if of.topic == topic {
			wakeUp(wake)
		}
	}
}

// wakeUp wakes a Follow call. Several wake-ups before its next read have the effect of one.
func wakeUp(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}
