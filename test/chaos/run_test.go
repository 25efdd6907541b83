package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"time"
)

// addSubscribers creates subscribers with all transports, filters and speeds. They start at one of four
// cursors, so that some operations are equal. For each transport, the first subscribers read all blocks
// at full speed in sessions that expire. Later ones read all blocks at full speed on connections that are
// never cut, because such a connection ends only if the service reports a gap.
func (w *world) addSubscribers() {
	rng := rand.New(rand.NewPCG(w.seed, 4))
	filters := w.truth.filters()
	begins := make([]int, 4)
	for i := range begins {
		begins[i] = w.before()/2 + rng.IntN(w.before()/2)
	}
	for id := 0; len(w.subscribers) < w.size.subscribers; id++ {
		c := peerConfig{
			speaks: transports[id%len(transports)], filters: []filter{filters[0]},
			begins:   begins[rng.IntN(len(begins))],
			expiring: true, resume: w.resume,
		}
		if id >= 2*len(transports) {
			c.filters[0] = filters[rng.IntN(len(filters))]
			c.slow, c.expiring, c.steady = id%5 == 4, id%7 == 6, id%10 == 9
		}
		if n := len(transports); id/n == 2 {
			c.filters[0], c.slow, c.expiring, c.steady = filters[0], false, false, true
		}
		c.own = id >= len(transports) && rng.IntN(2) == 0
		if !c.speaks.byID {
			for range (id / len(transports)) % 3 {
				c.filters = append(c.filters, filters[rng.IntN(len(filters))])
			}
			c.ticks = rng.IntN(3) == 0
		}
		p := newPeer(w, id, c)
		w.peers, w.subscribers = append(w.peers, p), append(w.subscribers, p.subs...)
	}
}

// probePruned subscribes over each transport from a cursor after which blocks have been pruned. The service
// must respond with CURSOR_TOO_OLD.
func (w *world) probePruned(ctx context.Context) {
	for i, t := range transports {
		w.reading.Go(func() {
			for ctx.Err() == nil {
				p := newPeer(w, w.size.subscribers+i, peerConfig{speaks: t, filters: w.truth.filters()[:1]})
				s, floor := p.subs[0], int(w.pruned.Load())
				t.connect(ctx, p)
				p.client.CloseIdleConnections()
				oldest, known := w.truth.place[plain(s.last.oldest)]
				switch {
				case len(s.got) > 0:
					w.fault("%s received a block after a pruned cursor", s.name)
					return
				case s.last.code != "CURSOR_TOO_OLD": // the connection was probably cut
					pause(ctx, 50*time.Millisecond)
				case !known || !w.truth.isOwn(s.last.oldest) || oldest < floor || oldest > int(w.pruned.Load()):
					w.fault("%s: CURSOR_TOO_OLD has the oldest cursor %q, want the cursor of block %d", s.name,
						s.last.oldest, floor)
					return
				default:
					w.tooOld.Add(1)
					return
				}
			}
		})
	}
}

// run starts subscribers, commits, cuts and queries. It waits until each subscriber has its last block
// and all required events have occurred, or until no subscriber has received a block for
// w.progressTimeout.
func (w *world) run(limit time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer func() {
		cancel()
		w.reading.Wait()
	}()
	for _, p := range w.peers {
		w.reading.Go(func() { p.read(ctx) })
	}
	w.probePruned(ctx)
	w.reading.Go(func() { w.commit(ctx) })
	w.reading.Go(func() { w.cut(ctx) })
	w.reading.Go(func() { w.query(ctx) })
	delivered, since, settled := 0, time.Now(), time.Time{}
	for {
		if !pause(ctx, 20*time.Millisecond) {
			w.fault("run did not end within %v:\n%s", limit, w.lagging())
			return
		}
		waiting, now := 0, 0
		for _, s := range w.subscribers {
			s.mu.Lock()
			now += s.tally.delivered
			if !s.done() {
				waiting++
			}
			s.mu.Unlock()
		}
		switch {
		case waiting > 0 || !w.finished():
			settled = time.Time{}
		case settled.IsZero():
			settled = time.Now() // duplicates or STREAM_GAP may still arrive
		case time.Since(settled) > 500*time.Millisecond:
			return
		}
		switch {
		case now > delivered:
			delivered, since = now, time.Now()
		case time.Since(since) > w.progressTimeout:
			if w.resume == asDocumented {
				w.fault("no subscriber received a block for %v:\n%s", w.progressTimeout, w.lagging())
			}
			return
		}
	}
}

// finished reports whether the service has received the last block and the required numbers of queries
// and of CURSOR_TOO_OLD errors have been reached.
func (w *world) finished() bool {
	return w.allCommitted.Load() && w.host.newest.Load() == int64(w.blocks-1) &&
		w.tooOld.Load() >= int64(len(transports)) && w.queries.answered.Load() >= queriesDue
}

// lagging describes the subscribers that lack blocks.
func (w *world) lagging() string {
	var all strings.Builder
	for _, s := range w.subscribers {
		if all.Len() > 4<<10 {
			all.WriteString("  and others\n")
			break
		}
		s.mu.Lock()
		if !s.done() {
			fmt.Fprintf(&all, "  subscriber %s has %d of %d blocks, cursor %q, connected: %v, last end: %s %s %s\n",
				s.name, len(s.got), len(s.matching()), s.at, s.connected, s.last.code, s.last.what, s.last.cursor)
		}
		s.mu.Unlock()
	}
	return all.String()
}

// heap returns the size of all live heap objects in bytes.
func heap() int64 {
	var m runtime.MemStats
	for range 2 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func (w *world) cutsMade() int64 { return w.wide.cuts.Load() + w.narrow.cuts.Load() }
