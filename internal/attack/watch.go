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
	gap    time.Duration
	effort time.Duration // the most processor time of the server's between two rounds
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
		w.gap = max(w.gap, time.Since(last))
		last = time.Now()
		if spent, dead := w.server.spent(); dead == nil { // which others find
			w.effort = max(w.effort, spent-before)
			before = spent
		}
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
	if w.effort > maxGap || w.gap > maxPause {
		return w.gap, fmt.Errorf("waited %v for a block, while the server took %v of processors", w.gap, w.effort)
	}
	return w.gap, nil
}
