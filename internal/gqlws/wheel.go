package gqlws

import (
	"slices"
	"sync"
	"time"
)

const (
	// maxSlot is the maximum duration of a slot. It limits how late a keep-alive may be sent, because the keep-alives
	// of one slot are sent together.
	maxSlot = 50 * time.Millisecond

	// beatsPerInterval is the number of keep-alives that a wheel sends to each connection per
	// Options.KeepAliveInterval. With one of them, it also sends a WebSocket ping.
	beatsPerInterval = 5
)

// A wheel is a timing wheel for the connections of the legacy protocol. It sends the third and all later keep-alives of
// each connection, and its WebSocket pings. Each connection is in one slot. The wheel processes each slot once per
// interval and then sends the keep-alives of all connections in that slot. All connections share one timer and one
// goroutine.
//
// The third keep-alive of a connection may be late by less than the duration of one slot, but is never early. All later
// ones follow at exact intervals.
type wheel struct {
	writers  *writerPool
	interval time.Duration // time between two keep-alives of a connection
	slot     time.Duration // interval / len(slots)
	wg       sync.WaitGroup

	mu    sync.Mutex
	slots []map[*conn]struct{} // connections by slot; nil for an empty slot
	hand  int                  // index of the next slot to process; empty slots are skipped
	next  time.Time            // time at which the slot at hand is processed
	count int                  // number of connections in the wheel
	stop  chan struct{}        // closed when count becomes 0
}

func newWheel(w *writerPool, interval time.Duration) *wheel {
	n := max(10, int((interval+maxSlot-1)/maxSlot))
	slot := max(1, interval/time.Duration(n))
	return &wheel{writers: w, interval: slot * time.Duration(n), slot: slot, slots: make([]map[*conn]struct{}, n)}
}

// add schedules keep-alives for c. The first one is due one interval from now. The caller must hold c.mu.
func (w *wheel) add(c *conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := w.hand
	if w.count == 0 {
		w.next, w.stop = time.Now().Add(w.interval), make(chan struct{})
		stop := w.stop
		w.wg.Go(func() { w.run(stop) })
	} else {
		// The hand skips empty slots, so the slot for the current time may precede the hand.
		before := int(max(0, time.Until(w.next)) / w.slot)
		if before == 0 {
			c.beats = -1 // the slot is processed too early for c: skip c that time
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

// remove removes c if it is in the wheel. It is called when a connection has ended.
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

// run processes slots until stop is closed, which happens when the last connection is removed.
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
		w.writers.enqueue(paceLive, slices.DeleteFunc(due, func(c *conn) bool { return !c.wheelTick() })...)
		clear(due) // so that connections that end before the next slot can be freed
		w.mu.Lock()
		timer.Reset(time.Until(w.next))
		w.mu.Unlock()
	}
}

// advance appends the connections in the slot at the hand to due and moves the hand to the next slot that is not empty.
func (w *wheel) advance(due []*conn, stop <-chan struct{}) []*conn {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stop != stop { // all connections of this run have ended; another run serves later ones
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
