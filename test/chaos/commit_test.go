package chaos_test

import (
	"context"
	"errors"
	"time"
)

// commit commits the blocks at their rate, or as the cuts and the service keep up
// on a busy machine, and lets things happen on the way: holes open, history is
// pruned, the source cut off, and the service replaced.
func (w *world) commit(ctx context.Context) {
	var open *hole
	fates, next := w.fates, time.Now()
	for n := w.before(); n < w.blocks; n++ {
		if n == w.blocks-settling && open != nil { // which has shown by now
			w.wait(ctx, patience, open.isNoticed)
		}
		for open.isNoticed() || !w.due(n, next, open != nil) {
			if !pause(ctx, 2*time.Millisecond) {
				return
			}
			if open.isNoticed() {
				w.decide(ctx, open)
				w.decided = n
				w.calm.Store(false)
				open, next = nil, time.Now()
			}
		}
		next = next.Add(time.Duration(float64(time.Second) / w.rate))
		if open == nil {
			if open, fates = w.hide(n, fates); open != nil {
				w.calm.Store(open.restart)
			}
		}
		if n == w.blocks-settling {
			w.chaos.Calm()
		}
		w.truth.committed[n].Store(time.Now().UnixNano())
		if err := w.source.Append(w.truth.blocks[n]); err != nil {
			w.fault("commit: %v", err)
			return
		}
		switch {
		case n%97 == 0:
			w.interrupt()
		case n%89 == 0:
			w.prune(w.slowest() - 300)
		}
	}
	if open != nil {
		w.fault("nobody has noticed the hole at block %d", open.first)
	}
	w.dry.Store(true)
}

// due tells whether the next block is, which is number n. searching tells that the
// service may have to see more blocks before it notices a hole.
func (w *world) due(n int, next time.Time, searching bool) bool {
	if n == w.blocks-settling && w.chaos.Counts().Failures < w.failures {
		w.interrupt() // the dice are thrown for blocks that are followed, which may have been few
		return false
	}
	lines := w.before() + (w.blocks-w.before())*(int(w.cutsMade())+4)/(w.cuts+4)
	ahead := settling / 3
	if searching {
		ahead = 2 * settling
	}
	newest := int(w.host.newest.Load())
	switch {
	case time.Now().Before(next) || n >= lines && !w.calm.Load():
		return false
	case newest < 0 && n >= w.decided+ahead: // a new service begins behind the newest block
		return time.Since(time.Unix(0, w.truth.committed[n-1].Load())) > 50*time.Millisecond
	}
	return n < max(w.decided, newest)+ahead
}

// lastHole is where no hole may begin any more: each must show before the end.
func (w *world) lastHole() int { return w.blocks - 3*settling }

// hide opens the next hole where it is time for it, and the service is there to
// notice. When all have been, there is
// more of the same for as long as what is due has not happened.
func (w *world) hide(n int, fates []fate) (*hole, []fate) {
	if n >= w.lastHole() || len(w.fates) == 0 || int(w.host.newest.Load()) < n-settling/3 {
		return nil, fates
	}
	f := w.fates[0]
	switch opened := len(w.fates) - len(fates); {
	case len(fates) > 0:
		if n < w.before()+(w.lastHole()-w.before())*2/3*opened/len(w.fates)+settling/3 {
			return nil, fates
		}
		f = fates[0]
	case w.toldWhileSearching():
		return nil, nil
	}
	h := w.truth.holeAt(n, 1+n%2, f)
	if h == nil {
		return nil, fates
	}
	w.source.hide(h)
	if len(fates) > 0 {
		fates = fates[1:]
	}
	return h, fates
}

// isNoticed tells whether there is a hole and the service searches for its blocks.
func (h *hole) isNoticed() bool {
	if h == nil {
		return false
	}
	select {
	case <-h.noticed:
		return true
	default:
		return false
	}
}

// decide lets the fate of a hole take its course, now that the service searches
// for the missing blocks.
func (w *world) decide(ctx context.Context, h *hole) {
	switch givenUp := w.host.givenUp.Load(); {
	case h.restart:
		w.searching.Store(true)
		old, err := w.host.replace()
		if err != nil {
			w.fault("replacing the service: %v", err)
		}
		w.source.outlives(h, old)
		pause(ctx, 50*time.Millisecond) // what the old one said is on its way
		w.searching.Store(false)
	case h.lost || h.late:
		w.wait(ctx, 2*patience, func() bool { return w.host.givenUp.Load() > givenUp })
	default: // sessions expire meanwhile
		w.searching.Store(true)
		w.wait(ctx, strict*2/3, w.toldWhileSearching)
		pause(ctx, 50*time.Millisecond)
		w.searching.Store(false)
	}
	if !h.lost {
		w.source.fill(h)
	}
}

// wait waits for something, for a while.
func (w *world) wait(ctx context.Context, most time.Duration, until func() bool) {
	for deadline := time.Now().Add(most); !until() && time.Now().Before(deadline); {
		if !pause(ctx, 2*time.Millisecond) {
			return
		}
	}
}

// toldWhileSearching tells whether a subscriber was sent back while the service
// searched for blocks: by a Shutdown over each transport, by the end of a session
// over any.
func (w *world) toldWhileSearching() bool {
	told := map[string]bool{}
	for _, s := range w.subscribers {
		s.mu.Lock()
		if s.tally.meanwhile > 0 {
			told[s.peer.speaks.name] = true
		}
		s.mu.Unlock()
	}
	return len(told) == len(transports) || len(told) > 0 && !w.fates[0].restart
}

// interrupt cuts the source off.
func (w *world) interrupt() { w.source.Interrupt(errors.New("chaos: the source was cut off")) }

// slowest is the oldest block that a subscriber stands at.
func (w *world) slowest() int {
	slowest := w.blocks
	for _, s := range w.subscribers {
		s.mu.Lock()
		slowest = min(slowest, s.stands())
		s.mu.Unlock()
	}
	return slowest
}

// cut cuts lines until the source is dry, a fifth more than asked for. Some are
// lines of slow subscribers.
func (w *world) cut(ctx context.Context) {
	start, lasts := time.Now(), float64(w.blocks-w.before())/w.rate
	every := time.Duration(lasts / (3 * float64(w.cuts+4)) * float64(time.Second))
	for i := 0; pause(ctx, every) && !w.dry.Load(); i++ {
		due := 1.2 * float64(w.cuts+4) * time.Since(start).Seconds() / lasts
		switch {
		case w.calm.Load() || float64(w.cutsMade()) > due:
		case i%5 == 4:
			w.narrow.cut()
		default:
			w.wide.cut()
		}
	}
}
