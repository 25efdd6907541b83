package chaos_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/chaingql/chaingql"
)

// people makes the subscribers: of all transports, filters and paces, from a
// few cursors, so that some operations are equal.
func (w *world) people() {
	rng := rand.New(rand.NewPCG(w.seed, 4))
	filters := w.truth.filters()
	begins := make([]int, 4)
	for i := range begins {
		begins[i] = w.before()/2 + rng.IntN(w.before()/2)
	}
	for id := range w.size.subscribers {
		slow := id%5 == 4
		t, f := transports[id%len(transports)], filters[rng.IntN(len(filters))]
		w.subscribers = append(w.subscribers, newSubscriber(w, id, slow, t, f, begins[rng.IntN(len(begins))], w.resume))
	}
}

// late are subscribers with a cursor that has been pruned. Each transport must
// tell them so.
func (w *world) late(ctx context.Context) {
	for i, t := range transports {
		w.reading.Go(func() {
			s := newSubscriber(w, w.size.subscribers+i, false, t, w.truth.filters()[0], 0, byCursor)
			defer s.client.CloseIdleConnections()
			for ctx.Err() == nil {
				floor := int(w.pruned.Load())
				e := t.subscribe(ctx, s, place{first: string(s.at)})
				oldest, known := w.truth.place[chaingql.Cursor(e.oldest)]
				switch {
				case len(s.got) > 0:
					w.fault("%s was sent a block behind a cursor that has been pruned", s.name)
					return
				case e.code != "CURSOR_TOO_OLD": // cut, most likely
					pause(ctx, 50*time.Millisecond)
				case !known || oldest < floor || oldest > int(w.pruned.Load()):
					w.fault("%s was told that the oldest cursor is %q, not block %d", s.name, e.oldest, floor)
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
func (w *world) run(limit, patience time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer func() {
		cancel()
		w.reading.Wait()
	}()
	for _, s := range w.subscribers {
		w.reading.Go(func() { s.read(ctx) })
	}
	w.late(ctx)
	w.reading.Go(func() { w.commit(ctx) })
	w.reading.Go(func() { w.cut(ctx) })
	w.reading.Go(func() { w.query(ctx) })
	delivered, since := 0, time.Now()
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
		case waiting == 0 && w.dry.Load() && w.told.Load() >= int64(len(transports)) && w.queries.answered.Load() >= queriesDue:
			pause(ctx, 300*time.Millisecond) // something may yet come twice
			return
		case now > delivered:
			delivered, since = now, time.Now()
		case time.Since(since) > patience:
			if w.resume == byCursor {
				w.fault("nothing came for %v:\n%s", patience, w.stands())
			}
			return
		}
	}
}

// done tells whether a subscriber, which is locked, has its last block.
func (s *subscriber) done() bool {
	return s.goal < 0 || len(s.got) > 0 && s.got[len(s.got)-1] >= s.goal
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
				s.name, len(s.got), len(s.expected()), s.at, s.connected, s.last.code, s.last.what, s.last.cursor)
		}
		s.mu.Unlock()
	}
	return all.String()
}

// An outcome is what came of a run.
type outcome struct {
	tally
	verdict
	slowLag time.Duration
	tellers []string // some subscribers that are not well served
}

func (w *world) outcome() (o outcome) {
	for _, s := range w.subscribers {
		v := judge(s.got, s.expected())
		o.lost, o.twice, o.disordered, o.strange = o.lost+v.lost, o.twice+v.twice, o.disordered+v.disordered, o.strange+v.strange
		o.delivered += s.tally.delivered
		o.connections += s.tally.connections
		o.resumed += s.tally.resumed
		o.told += s.tally.told
		o.gaps += s.tally.gaps
		o.forgotten += s.tally.forgotten
		if s.slow {
			o.slowLag = max(o.slowLag, s.tally.lag)
		} else {
			o.lag = max(o.lag, s.tally.lag)
		}
		if v != (verdict{}) && len(o.tellers) < 10 {
			o.tellers = append(o.tellers, fmt.Sprintf("subscriber %s: %+v%s", s.name, v, s.astray()))
		}
		if s.wrong != "" {
			w.fault("subscriber %s: %s", s.name, s.wrong)
		}
	}
	return o
}

// astray tells where a subscriber's blocks first are not as they should be, and
// what happened there.
func (s *subscriber) astray() string {
	for i, due := range s.expected() {
		switch {
		case i >= len(s.got):
			return fmt.Sprintf(", nothing from block %d on%s", due, s.around(due-5, due+20))
		case s.got[i] != due:
			came, all := s.got[i], s.world.truth.blocks
			return fmt.Sprintf(", block %d (%q) came where %d (%q) was due%s", came, all[came].Cursor, due, all[due].Cursor, s.around(due-5, max(came, due)+20))
		}
	}
	return ""
}

// around is what the journal has from between two blocks.
func (s *subscriber) around(from, to int32) string {
	var all strings.Builder
	for _, e := range s.journal {
		if int32(e.block) >= from && int32(e.block) <= to {
			fmt.Fprintf(&all, "\n    %s at block %d: %s", e.when.UTC().Format("15:04:05.000"), e.block, e.what)
		}
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

// table shows the figures of a run.
func (w *world) table(o outcome, took time.Duration, grown int64) string {
	n := w.chaos.Counts()
	slow := len(slices.DeleteFunc(slices.Clone(w.subscribers), func(s *subscriber) bool { return !s.slow }))
	var t strings.Builder
	for _, row := range [][2]any{
		{"seed", w.seed},
		{"blocks", fmt.Sprintf("%d, %d of them recorded, %.0f a second", w.blocks, w.truth.recorded, w.rate)},
		{"subscribers", fmt.Sprintf("%d, %d of them slow", len(w.subscribers), slow)},
		{"handed to connections", fmt.Sprintf("%d as they came; caught up %d from the window, %d from the backend", w.host.handed.Load(), w.host.recent.Load(), w.host.stored.Load())},
		{"delivered", o.delivered},
		{"lost, twice, out of order", fmt.Sprintf("%d, %d, %d", o.lost, o.twice, o.disordered+o.strange)},
		{"connections", fmt.Sprintf("%d, %d of them resumed a subscription", o.connections, o.resumed)},
		{"ends told with a cursor", fmt.Sprintf("%d, %d of them STREAM_GAP; %d blocks rolled back", o.told, o.gaps, o.forgotten)},
		{"connections cut", fmt.Sprintf("%d, %d of them in mid-frame", w.cutsMade(), w.wide.torn.Load()+w.narrow.torn.Load())},
		{"delays, throttled", fmt.Sprintf("%d, %d", w.wide.delays.Load()+w.narrow.delays.Load(), w.wide.throttled.Load()+w.narrow.throttled.Load())},
		{"source failures", fmt.Sprintf("%d, %d of them panics", n.Failures, n.Panics)},
		{"holes, reordered, duplicates", fmt.Sprintf("%d, %d, %d", n.Holes, n.Reordered, n.Duplicates)},
		{"stalls", n.Stalls},
		{"pages read", fmt.Sprintf("%d, failed %d, slow %d, hung %d", n.Pages, n.PagesFailed, n.PagesSlow, n.PagesHung)},
		{"pruned blocks", fmt.Sprintf("%d, told CURSOR_TOO_OLD: %d", w.pruned.Load(), w.told.Load())},
		{"service replaced", w.host.replaced},
		{"queries for the latest", fmt.Sprintf("%d, failed %d, behind a subscriber %d", w.queries.answered.Load(), w.queries.failed.Load(), w.queries.behind.Load())},
		{"longest lag", fmt.Sprintf("%v (of slow subscribers: %v)", o.lag.Round(time.Millisecond), o.slowLag.Round(time.Millisecond))},
		{"heap grown", fmt.Sprintf("%d kB", grown>>10)},
		{"duration", took.Round(time.Millisecond)},
	} {
		fmt.Fprintf(&t, "\n  %-30s %v", row[0], row[1])
	}
	return t.String()
}

func (w *world) cutsMade() int64 { return w.wide.cuts.Load() + w.narrow.cuts.Load() }
