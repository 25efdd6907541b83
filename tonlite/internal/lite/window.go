package lite

import "sync"

// windowSize is the number of bytes of unreleased responses above which a [Window] is full. The
// responses of an honest server need less, because they are parsed faster than they arrive.
const windowSize = 4 << 20

// A Window limits the memory of one server's responses that wait to be parsed. While it is full,
// no packet is read from the server. Its responses therefore have at most windowSize bytes and one
// packet more. All connections to the server, of which one is open at a time, must share the
// Window, so that the server gains nothing by closing connections. The zero value is empty.
type Window struct {
	mu     sync.Mutex
	used   int
	opened chan struct{} // closed when the Window is not full any more; nil if nobody waits for that
}

// wait waits until the Window is not full. It returns false if stop is closed first.
func (w *Window) wait(stop <-chan struct{}) bool {
	for {
		w.mu.Lock()
		if w.used <= windowSize {
			w.mu.Unlock()
			return true
		}
		if w.opened == nil {
			w.opened = make(chan struct{})
		}
		opened := w.opened
		w.mu.Unlock()
		select {
		case <-opened:
		case <-stop:
			return false
		}
	}
}

// add changes the number of bytes of unreleased responses by n.
func (w *Window) add(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.used += n
	if w.used <= windowSize && w.opened != nil {
		close(w.opened)
		w.opened = nil
	}
}

// Used returns the number of bytes of unreleased responses.
func (w *Window) Used() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.used
}
