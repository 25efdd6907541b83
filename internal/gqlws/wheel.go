package gqlws

import (
	"slices"
	"sync"
	"time"
)

const (
	// maxSlot is the maximum time that a keep-alive is delayed so that those of several connections are written
	// together.
	maxSlot = 50 * time.Millisecond

	// beatsPerInterval is the number of keep-alives that a wheel sends per Options.KeepAliveInterval. One of them includes a
	// WebSocket ping.
	beatsPerInterval = 5
)

// A wheel is a timing wheel that sends the third and all later keep-alives of connections, and their WebSocket pings.
// Each connection is in one slot. Each slot is processed once per interval, and the keep-alives of a slot are written
// together. All connections share one timer and one goroutine.
//
// The third keep-alive of a connection, and therefore all later ones, may be late by the time of one slot, but never
// early.
type wheel struct {
	writers  *writerPool
	interval time.Duration
	slot     time.Duration // interval / len(slots)
	wg       sync.WaitGroup

	mu    sync.Mutex
	slots []map[*conn]struct{} // nil if empty
	hand  int                  // the next slot that is not empty
	next  time.Time            // time at which hand is processed
	count int                  // number of connections
	stop  chan struct{}        // closed when count becomes 0
}

func newWheel(w *writerPool, interval time.Duration) *wheel {
	n := max(10, int((interval+maxSlot-1)/maxSlot))
	slot := max(1, interval/time.Duration(n))
	return &wheel{writers: w, interval: slot * time.Duration(n), slot: slot, slots: make([]map[*conn]struct{}, n)}
}

// add schedules keep-alives for a connection; the first is sent after one interval. Called with c.mu held.
func (w *wheel) add(c *conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := w.hand
	if w.count == 0 {
		w.next, w.stop = time.Now().Add(w.interval), make(chan struct{})
		stop := w.stop
		w.wg.Go(func() { w.run(stop) })
	} else {
		// Empty slots are skipped, so the slot of the current time may be before the hand.
		before := int(max(0, time.Until(w.next)) / w.slot)
		if before == 0 {
			c.beats = -1 // skip c when this slot is processed next
		}
		at = (at - before + 2*len(w.slots)) % len(w.slots)
	}
	w.count++
	if w.slots[at] == nil {
		w.slots[at] = make(map[*conn]struct{})
	}
	w.slots[at][c] = struct{}{}
	c.wheelSlot = int32(at + 1)
}

// remove is called at the end of each connection.
func (w *wheel) remove(c *conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.wheelSlot == 0 {
		return
	}
	at := c.wheelSlot - 1
	c.wheelSlot = 0
	if delete(w.slots[at], c); len(w.slots[at]) == 0 {
		w.slots[at] = nil
	}
	if w.count--; w.count == 0 {
		close(w.stop)
	}
}

// run processes the slots until there are no connections.
func (w *wheel) run(stop <-chan struct{}) {
	timer := time.NewTimer(w.interval)
	defer timer.Stop()
	var due []*conn
	for {
		select {
		case <-stop:
			return
		case <-timer.C:
		}
		due = w.advance(due[:0], stop)
		w.writers.enqueue(slices.DeleteFunc(due, func(c *conn) bool { return !c.wheelTick() })...)
		clear(due) // connections may end before the next slot is processed
		w.mu.Lock()
		timer.Reset(time.Until(w.next))
		w.mu.Unlock()
	}
}

// advance appends the connections of the current slot to due and moves the hand to the next slot that is not empty.
func (w *wheel) advance(due []*conn, stop <-chan struct{}) []*conn {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stop != stop { // all connections had left, and a new turn serves later ones
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
