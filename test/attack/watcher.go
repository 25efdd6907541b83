package attack

import (
	"fmt"
	"strings"
	"time"
)

// A watcher is an honest subscriber during the attacks. It checks that blocks arrive in order and in
// time.
type watcher struct {
	socket *socket
	server *child
	done   chan struct{}
	gap    time.Duration // longest gap, which is the time between two blocks
	busy   time.Duration // longest time that the server can have been busy within one gap
	err    error
}

// watch subscribes to all blocks. If that fails, end returns the error.
func watch(s *target) *watcher {
	w := &watcher{server: s.server, done: make(chan struct{})}
	var err error
	if w.socket, err = s.open(legacy, false); err == nil {
		w.socket.wait(time.Hour)
		err = w.socket.writeText(`{"id":"w","type":"start","payload":{"query":"subscription{blocks{chain_order}}"}}`)
	}
	if err != nil {
		w.socket, w.err = nil, fmt.Errorf("subscribe: %w", err)
		close(w.done)
		return w
	}
	go w.listen()
	return w
}

func (w *watcher) listen() {
	defer close(w.done)
	last, order := time.Now(), ""
	before, _ := w.server.spent()
	for {
		text, err := w.socket.next()
		gap := time.Since(last)
		last = time.Now()
		var cpu time.Duration
		// An error means that the server has exited, which other checks report.
		if spent, err := w.server.spent(); err == nil {
			cpu, before = spent-before, spent
		}
		w.waited(gap, cpu)
		if err != nil {
			w.err = err
			return
		}
		_, rest, ok := strings.Cut(text, `"chain_order":"`)
		cursor, _, _ := strings.Cut(rest, `"`)
		if !ok || cursor <= order {
			w.err = fmt.Errorf("received %.200q after the block with cursor %q", text, order)
			return
		}
		order = cursor
	}
}

// waited records a gap and the CPU time that the server used in it. On several cores, the CPU time can
// exceed the gap.
func (w *watcher) waited(gap, cpu time.Duration) {
	w.gap = max(w.gap, gap)
	w.busy = max(w.busy, min(gap, cpu))
}

// end stops the watcher and returns the longest gap.
func (w *watcher) end() (time.Duration, error) {
	if w.socket == nil {
		return 0, w.err
	}
	select {
	case <-w.done: // the subscription ended during the attacks
		return w.gap, w.err
	default:
	}
	w.socket.Close()
	<-w.done
	return w.gap, w.verdict()
}

// verdict returns an error if a block was late. Only long waits are errors if the server was not busy,
// because other programs can have delayed it.
func (w *watcher) verdict() error {
	if w.busy > maxGap || w.gap > maxPause {
		return fmt.Errorf("a block was late: the longest gap was %v, and the server was busy for up to %v of a gap",
			w.gap, w.busy)
	}
	return nil
}
