package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"time"

	"github.com/chaingql/chaingql"
)

// people makes the subscribers: of all transports, filters and paces, from a
// few cursors, so that some operations are equal. The first ones read all blocks
// at full speed over each transport: in sessions that expire, and on lines that are
// never cut, so that nothing but the service tells them of a gap.
func (w *world) people() {
	rng := rand.New(rand.NewPCG(w.seed, 4))
	filters := w.truth.filters()
	begins := make([]int, 4)
	for i := range begins {
		begins[i] = w.before()/2 + rng.IntN(w.before()/2)
	}
	for id := 0; len(w.subscribers) < w.size.subscribers; id++ {
		c := casting{
			speaks: transports[id%len(transports)], filters: []filter{filters[0]}, begins: begins[rng.IntN(len(begins))],
			brief: true, resume: w.resume,
		}
		if id >= 2*len(transports) {
			c.filters[0] = filters[rng.IntN(len(filters))]
			c.slow, c.brief, c.steady = id%5 == 4, id%7 == 6, id%10 == 9
		}
		if n := len(transports); id/n == 2 {
			c.filters[0], c.slow, c.brief, c.steady = filters[0], false, false, true
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

// late are subscribers with a cursor that has been pruned. Each transport must
// tell them so.
func (w *world) late(ctx context.Context) {
	for i, t := range transports {
		w.reading.Go(func() {
			for ctx.Err() == nil {
				p := newPeer(w, w.size.subscribers+i, casting{speaks: t, filters: w.truth.filters()[:1]})
				s, floor := p.subs[0], int(w.pruned.Load())
				t.connect(ctx, p)
				p.client.CloseIdleConnections()
				oldest, known := w.truth.place[chaingql.Cursor(s.last.oldest)]
				switch {
				case len(s.got) > 0:
					w.fault("%s was sent a block behind a cursor that has been pruned", s.name)
					return
				case s.last.code != "CURSOR_TOO_OLD": // cut, most likely
					pause(ctx, 50*time.Millisecond)
				case !known || oldest < floor || oldest > int(w.pruned.Load()):
					w.fault("%s was told that the oldest cursor is %q, not block %d", s.name, s.last.oldest, floor)
					return
				default:
					w.told.Add(1)
					return
				}
			}
		})
	}
}

// run lets it all happen and waits until each subscriber has its last block and
// all has been asked that is to be, or nobody has got anything for as long as
// patience.
func (w *world) run(limit time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer func() {
		cancel()
		w.reading.Wait()
	}()
	for _, p := range w.peers {
		w.reading.Go(func() { p.read(ctx) })
	}
	w.late(ctx)
	w.reading.Go(func() { w.commit(ctx) })
	w.reading.Go(func() { w.cut(ctx) })
	w.reading.Go(func() { w.query(ctx) })
	delivered, since, settled := 0, time.Now(), time.Time{}
	for {
		if !pause(ctx, 20*time.Millisecond) {
			w.fault("not done after %v:\n%s", limit, w.stands())
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
			settled = time.Now() // something may yet come twice, or somebody be sent back
		case time.Since(settled) > 500*time.Millisecond:
			return
		}
		switch {
		case now > delivered:
			delivered, since = now, time.Now()
		case time.Since(since) > w.patience:
			if w.resume == asDocumented {
				w.fault("nothing came for %v:\n%s", w.patience, w.stands())
			}
			return
		}
	}
}

// finished tells whether the service has come to the end of the chain, and all has
// been asked that is to be.
func (w *world) finished() bool {
	return w.dry.Load() && w.host.newest.Load() == int64(w.blocks-1) &&
		w.told.Load() >= int64(len(transports)) && w.queries.answered.Load() >= queriesDue
}

// stands tells of the subscribers that have not all their blocks.
func (w *world) stands() string {
	var all strings.Builder
	for _, s := range w.subscribers {
		if all.Len() > 4<<10 {
			all.WriteString("  and others\n")
			break
		}
		s.mu.Lock()
		if !s.done() {
			fmt.Fprintf(&all, "  subscriber %s has %d of %d blocks, stands at %q, connected: %v, last end: %s %s %s\n",
				s.name, len(s.got), len(s.matching()), s.at, s.connected, s.last.code, s.last.what, s.last.cursor)
		}
		s.mu.Unlock()
	}
	return all.String()
}

// heap is what is in use once all that can be freed is.
func heap() int64 {
	var m runtime.MemStats
	for range 2 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func (w *world) cutsMade() int64 { return w.wide.cuts.Load() + w.narrow.cuts.Load() }
