package gqlws

import (
	"slices"
	"sync"
	"time"
)

const (
	// maxSlot is the longest time that a keep-alive waits for those of other connections, to be written together.
	maxSlot = 50 * time.Millisecond

	// beats is how many keep-alives a wheel sends per Options.KeepAlive. With one of them goes a WebSocket ping.
	beats = 5
)

// A wheel sends the third and all later keep-alives of connections, and their WebSocket pings. It is a timing wheel:
// each connection is in a slot, each slot has its turn once per interval, and the keep-alives of a slot are written
// together. So there is one timer and one goroutine for all connections, and no wake-up for each of them.
//
// The third keep-alive of a connection, and with it all others, may be late by the time of a slot. It is never early.
type wheel struct {
	crew     *crew
	interval time.Duration
	slot     time.Duration // interval / len(slots)
	turning  sync.WaitGroup

	mu    sync.Mutex
	slots []map[*conn]struct{} // nil if empty
	hand  int                  // the next slot that is not empty
	next  time.Time            // its turn
	count int                  // connections
	stop  chan struct{}        // closed when there are none
}

func newWheel(w *crew, interval time.Duration) *wheel {
	n := max(10, int((interval+maxSlot-1)/maxSlot))
	slot := max(1, interval/time.Duration(n))
	return &wheel{crew: w, interval: slot * time.Duration(n), slot: slot, slots: make([]map[*conn]struct{}, n)}
}

// add has keep-alives sent to a connection, the first an interval from now. Called with c.mu held.
func (w *wheel) add(c *conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := w.hand
	if w.count == 0 {
		w.next, w.stop = time.Now().Add(w.interval), make(chan struct{})
		stop := w.stop
		w.turning.Go(func() { w.turn(stop) })
	} else {
		// The slot that has its turn now is before the hand if it is empty: then the hand has passed it.
		before := int(max(0, time.Until(w.next)) / w.slot)
		if before == 0 {
			c.beats = -1 // this turn is not for c
		}
		at = (at - before + 2*len(w.slots)) % len(w.slots)
	}
	w.count++
	if w.slots[at] == nil {
		w.slots[at] = make(map[*conn]struct{})
	}
	w.slots[at][c] = struct{}{}
	c.slot = int32(at + 1)
}

// remove is called at the end of each connection.
func (w *wheel) remove(c *conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.slot == 0 {
		return
	}
	at := c.slot - 1
	c.slot = 0
	if delete(w.slots[at], c); len(w.slots[at]) == 0 {
		w.slots[at] = nil
	}
	if w.count--; w.count == 0 {
		close(w.stop)
	}
}

// turn gives each slot its turn, until there are no connections.
func (w *wheel) turn(stop <-chan struct{}) {
	timer := time.NewTimer(w.interval)
	defer timer.Stop()
	var due []*conn
	for {
		select {
		case <-stop:
			return
		case <-timer.C:
		}
		due = w.take(due[:0], stop)
		w.crew.call(slices.DeleteFunc(due, func(c *conn) bool { return !c.beat() })...)
		clear(due) // they may end before the next turn
		w.mu.Lock()
		timer.Reset(time.Until(w.next))
		w.mu.Unlock()
	}
}

// take adds the connections of the slot whose turn it is to due, and goes on to the next slot.
func (w *wheel) take(due []*conn, stop <-chan struct{}) []*conn {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stop != stop { // all had left, and others have come
		return due
	}
	for c := range w.slots[w.hand] {
		due = append(due, c)
	}
	for range w.slots {
		w.hand = (w.hand + 1) % len(w.slots)
		w.next = w.next.Add(w.slot)
		if w.slots[w.hand] != nil {
			break
		}
	}
	return due
}
