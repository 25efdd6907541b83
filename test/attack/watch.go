package attack

import (
	"fmt"
	"strings"
	"time"
)

// A watcher is an honest subscriber beside the attacks: whatever is done to the
// server, blocks come in order and in time.
type watcher struct {
	socket *socket
	server *child
	done   chan struct{}
	gap    time.Duration // the longest between two blocks
	busy   time.Duration // the longest of such that the server can have been at work
	err    error
}

// watch subscribes. Where a server has no sockets there is nothing to see.
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
		var effort time.Duration
		if spent, dead := w.server.spent(); dead == nil { // which others find
			effort, before = spent-before, spent
		}
		w.waited(gap, effort)
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

// waited notes a gap, and what processor time the server took in it: of many
// processors, it may be more.
func (w *watcher) waited(gap, effort time.Duration) {
	w.gap = max(w.gap, gap)
	w.busy = max(w.busy, min(gap, effort))
}

// end stops the watch and says how long blocks were waited for at most.
func (w *watcher) end() (time.Duration, error) {
	if w.socket == nil {
		return 0, w.err
	}
	select {
	case <-w.done: // too early
		return w.gap, w.err
	default:
	}
	w.socket.Close()
	<-w.done
	return w.gap, w.verdict()
}

func (w *watcher) verdict() error {
	if w.busy > maxGap || w.gap > maxPause {
		return fmt.Errorf("waited %v for a block at most, and %v while the server was at work", w.gap, w.busy)
	}
	return nil
}
