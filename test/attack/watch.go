package attack

import (
	"fmt"
	"strings"
	"time"
)

// A watcher is an honest subscriber during the attacks. Blocks must arrive in order and in time.
type watcher struct {
	socket *socket
	server *child
	done   chan struct{}
	gap    time.Duration // longest time between two blocks
	busy   time.Duration // longest part of such a time that the server can have been busy
	err    error
}

// watch subscribes. If the server has no sockets, end returns an error.
func watch(s *site) *watcher {
	w := &watcher{server: s.server, done: make(chan struct{})}
	var err error
	if w.socket, err = s.open(legacy, false); err == nil {
		w.socket.wait(time.Hour)
		err = w.socket.say(`{"id":"w","type":"start","payload":{"query":"subscription{blocks{chain_order}}"}}`)
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
		if spent, dead := w.server.spent(); dead == nil { // other checks report a dead server
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
			w.err = fmt.Errorf("%.200q after %q", text, order)
			return
		}
		order = cursor
	}
}

// waited records a gap and the CPU time that the server used in it. With several cores, the CPU
// time may exceed the gap.
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
	case <-w.done: // ended before the attacks did
		return w.gap, w.err
	default:
	}
	w.socket.Close()
	<-w.done
	return w.gap, w.verdict()
}

func (w *watcher) verdict() error {
	if w.busy > maxGap || w.gap > maxPause {
		return fmt.Errorf("longest wait for a block: %v, and %v of a wait while the server was busy", w.gap, w.busy)
	}
	return nil
}
