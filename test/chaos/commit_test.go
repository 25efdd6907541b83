package chaos_test

import (
	"context"
	"errors"
	"time"
)

// commit appends the blocks at the rate of the run, or more slowly if the service or the cuts lag on a
// busy machine. Between blocks, it opens holes, prunes old blocks, interrupts the source and replaces the
// service.
func (w *world) commit(ctx context.Context) {
	var open *hole
	fates, next := w.fates, time.Now()
	for n := w.before(); n < w.blocks; n++ {
		if n == w.blocks-settling && open != nil { // the service has enough blocks to notice the hole
			w.wait(ctx, progressTimeout, open.isNoticed)
		}
		for open.isNoticed() || !w.due(n, next, open != nil) {
			if !pause(ctx, 2*time.Millisecond) {
				return
			}
			if open.isNoticed() {
				if w.decided = n; w.decide(ctx, open) {
					w.pauseCuts.Store(false)
					open = nil
				}
				next = time.Now()
			}
		}
		next = next.Add(time.Duration(float64(time.Second) / w.rate))
		if open == nil {
			if open, fates = w.hide(n, fates); open != nil {
				w.pauseCuts.Store(open.restart)
			}
		}
		if n == w.blocks-settling {
			w.chaos.Calm()
		}
		w.truth.committed[n].Store(time.Now().UnixNano())
		if err := w.source.Append(w.truth.blocks[n]); err != nil {
			w.fault("appending a block failed: %v", err)
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
		w.fault("service has not noticed the hole at block %d", open.first)
	}
	w.allCommitted.Store(true)
}

// due reports whether block n should be committed now. The argument next is the time for it at the rate
// of the run. If searching is true, a hole is open, and the service may need more blocks to notice it.
func (w *world) due(n int, next time.Time, searching bool) bool {
	if n == w.blocks-settling && w.chaos.Counts().Failures < w.failures {
		w.interrupt() // the random failures were too few
		return false
	}
	lines := w.before() + (w.blocks-w.before())*(int(w.cutsMade())+4)/(w.cuts+4)
	ahead := settling / 3
	if searching {
		ahead = 2 * settling
	}
	newest := int(w.host.newest.Load())
	switch {
	case time.Now().Before(next) || n >= lines && !w.pauseCuts.Load():
		return false
	case newest < 0 && n >= w.decided+ahead: // a new service starts after the newest block
		return time.Since(time.Unix(0, w.truth.committed[n-1].Load())) > 50*time.Millisecond
	}
	return n < max(w.decided, newest)+ahead
}

// lastHole returns the number of the last block at which a hole may begin. The service could not notice a
// later hole before the end of the chain.
func (w *world) lastHole() int { return w.blocks - 3*settling }

// hide opens a hole at block n if the next hole is due and the service does not lag too much to notice
// it. It returns the hole, or nil, and the remaining fates. After the last fate, it opens more holes until
// the required events have occurred.
func (w *world) hide(n int, fates []fate) (*hole, []fate) {
	if n >= w.lastHole() || len(w.fates) == 0 || int(w.host.newest.Load()) < n-settling/3 {
		return nil, fates
	}
	f, opened := w.fates[0], len(w.fates)-len(fates)
	due := w.before() + (w.lastHole()-w.before())*2/3*opened/len(w.fates) + settling/3
	switch {
	case len(fates) > 0:
		if n < due {
			return nil, fates
		}
		f = fates[0]
	case w.gapReportedDuringSearch():
		return nil, nil
	}
	h := w.truth.holeAt(n, 1+n%2, f)
	// Every second hole should be next to a split or merge. A hole that is never filled must not be: if the
	// shard continues late, clients that read few blocks at a time and resume from a chain_order never
	// get past the hole (docs/protocol.md).
	if h == nil || f.lost && h.border || opened%2 > 0 && !f.lost && !h.border && n < due+settling {
		return nil, fates
	}
	w.source.hide(h)
	if len(fates) > 0 {
		fates = fates[1:]
	}
	return h, fates
}

// isNoticed reports whether h is not nil and the service searches for its blocks.
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

// decide applies the fate of a hole while the service searches for the missing blocks. It returns false if only a
// subscriber's page was searched for them: the service needs further blocks to notice the hole.
func (w *world) decide(ctx context.Context, h *hole) bool {
	unrepaired := w.host.unrepaired.Load()
	gaveUp := func() bool { return w.host.unrepaired.Load() > unrepaired }
	switch {
	case h.restart:
		w.searching.Store(true)
		old, err := w.host.replace()
		if err != nil {
			w.fault("replacing the service failed: %v", err)
		}
		w.source.replacedDuring(h, old)
		pause(ctx, 50*time.Millisecond) // because messages of the old service may still arrive
		w.searching.Store(false)
	case h.lost || h.late:
		if w.wait(ctx, progressTimeout/2, gaveUp); !gaveUp() {
			w.source.watch(h)
			return false
		}
	default: // sessions expire during the search
		w.searching.Store(true)
		w.wait(ctx, repairDeadline*2/3, w.gapReportedDuringSearch)
		pause(ctx, 50*time.Millisecond)
		w.searching.Store(false)
	}
	if !h.lost {
		w.source.fill(h)
	}
	return true
}

// wait polls until the function until returns true, but not longer than limit.
func (w *world) wait(ctx context.Context, limit time.Duration, until func() bool) {
	for deadline := time.Now().Add(limit); !until() && time.Now().Before(deadline); {
		if !pause(ctx, 2*time.Millisecond) {
			return
		}
	}
}

// gapReportedDuringSearch reports whether enough subscribers received STREAM_GAP during a search. If the
// service is replaced, there must be one for each transport. Otherwise, one subscriber is enough.
func (w *world) gapReportedDuringSearch() bool {
	reached := map[string]bool{}
	for _, s := range w.subscribers {
		s.mu.Lock()
		if s.tally.duringSearch > 0 {
			reached[s.peer.speaks.name] = true
		}
		s.mu.Unlock()
	}
	return len(reached) == len(transports) || len(reached) > 0 && !w.fates[0].restart
}

// interrupt makes the source fail.
func (w *world) interrupt() { w.source.Interrupt(errors.New("chaos: the test interrupted the source")) }

// slowest returns the number of the last block that the slowest subscriber has received.
func (w *world) slowest() int {
	slowest := w.blocks
	for _, s := range w.subscribers {
		s.mu.Lock()
		slowest = min(slowest, s.lastBlock())
		s.mu.Unlock()
	}
	return slowest
}

// cut cuts connections until the last block is committed. It cuts 20 % more than required. One in five of
// the connections belongs to a slow subscriber.
func (w *world) cut(ctx context.Context) {
	start, lasts := time.Now(), float64(w.blocks-w.before())/w.rate
	every := time.Duration(lasts / (3 * float64(w.cuts+4)) * float64(time.Second))
	for i := 0; pause(ctx, every) && !w.allCommitted.Load(); i++ {
		due := 1.2 * float64(w.cuts+4) * time.Since(start).Seconds() / lasts
		switch {
		case w.pauseCuts.Load() || float64(w.cutsMade()) > due:
		case i%5 == 4:
			w.narrow.cut()
		default:
			w.wide.cut()
		}
	}
}
