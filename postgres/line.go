package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// channel is what PostgreSQL notifies on; the payload is the schema.
const channel = "chaingql"

const (
	quiet    = 10 * time.Second       // after which a line is tested: a connection that dropped says nothing
	farewell = 500 * time.Millisecond // for PostgreSQL to be told that a line is hung up
)

// A line is the connection on which PostgreSQL tells that there are new blocks.
type line struct {
	ready  chan struct{} // closed once it listens
	over   chan struct{} // closed when it has ended and its connection is closed
	err    error         // why, written before over is closed
	hangUp context.CancelFunc
	wakes  map[chan struct{}]bool // of those who wait for blocks; guarded by lines.mu
}

// lines lets all Follows share one line, which is there while any runs.
type lines struct {
	config  *pgx.ConnConfig
	topic   string
	timeout time.Duration
	quiet   time.Duration

	mu      sync.Mutex
	current *line          // nil, or one that was not left by all
	running sync.WaitGroup // of lines; Add under mu
	closed  bool
}

// join puts a Follow on the line; wake gets a value when there may be blocks.
func (ls *lines) join(wake chan struct{}) *line {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.current
	if l == nil || l.isOver() {
		ctx, cancel := context.WithCancel(context.Background())
		l = &line{ready: make(chan struct{}), over: make(chan struct{}), hangUp: cancel, wakes: make(map[chan struct{}]bool)}
		if ls.closed {
			cancel()
			l.err = errClosed
			close(l.over)
			return l
		}
		ls.current = l
		ls.running.Go(func() {
			defer close(l.over)
			l.err = ls.listen(ctx, l)
		})
	}
	l.wakes[wake] = true
	return l
}

// leave takes a Follow off its line. The last to leave hangs up.
func (ls *lines) leave(l *line, wake chan struct{}) {
	ls.mu.Lock()
	delete(l.wakes, wake)
	last := len(l.wakes) == 0
	if last && ls.current == l {
		ls.current = nil
	}
	ls.mu.Unlock()
	if last {
		l.hangUp()
		<-l.over
	}
}

// wait returns when all lines have ended. No more can be joined.
func (ls *lines) wait() {
	ls.mu.Lock()
	ls.closed = true
	if ls.current != nil {
		ls.current.hangUp()
	}
	ls.mu.Unlock()
	ls.running.Wait()
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
func (ls *lines) listen(ctx context.Context, l *line) error {
	dialing, cancel := context.WithTimeout(ctx, ls.timeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(dialing, ls.config)
	if err != nil {
		return failed("listen for new blocks", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), farewell)
		defer cancel()
		_ = conn.Close(ctx) // whatever it says, the connection is closed
	}()
	if _, err := conn.Exec(dialing, "LISTEN "+channel); err != nil {
		return failed("listen for new blocks", err)
	}
	close(l.ready)
	for {
		if err := ls.hear(ctx, conn, l); err != nil {
			return failed("listen for new blocks", err)
		}
	}
}

// hear waits for one notification, and not for ever.
func (ls *lines) hear(ctx context.Context, conn *pgx.Conn, l *line) error {
	waiting, cancel := context.WithTimeout(ctx, ls.quiet)
	defer cancel()
	note, err := conn.WaitForNotification(waiting)
	switch {
	case err == nil:
		if note.Payload == ls.topic {
			ls.ring(l)
		}
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case waiting.Err() != nil:
		testing, cancel := context.WithTimeout(ctx, ls.timeout)
		defer cancel()
		return conn.Ping(testing)
	}
	return err
}

func (ls *lines) ring(l *line) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for wake := range l.wakes {
		ring(wake)
	}
}

// ring wakes a Follow, once for all that came since it looked.
func ring(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}
