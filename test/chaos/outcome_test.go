package chaos_test

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// An outcome summarizes a run.
type outcome struct {
	tally
	verdict
	by       map[string]tally // by transport
	slowLag  time.Duration
	holes    map[fate]int
	borders  int      // holes next to a split or merge
	problems []string // descriptions of up to ten subscribers with errors
}

func (w *world) outcome() outcome {
	o := outcome{by: map[string]tally{}, holes: map[fate]int{}}
	losses := w.losses()
	for _, h := range w.source.holes {
		o.holes[h.fate]++
		if h.border {
			o.borders++
		}
	}
	for _, s := range w.subscribers {
		v, due := s.verdict(losses)
		o.verdict.add(v)
		o.tally.add(s.tally)
		by := o.by[s.peer.speaks.name]
		by.add(s.tally)
		o.by[s.peer.speaks.name] = by
		if s.peer.slow {
			o.slowLag = max(o.slowLag, s.tally.lag)
		} else {
			o.lag = max(o.lag, s.tally.lag)
		}
		if v != (verdict{}) && len(o.problems) < 10 {
			o.problems = append(o.problems, fmt.Sprintf("subscriber %s: %+v%s", s.name, v, s.firstError(due, losses)))
		}
		if s.wrong != "" {
			w.fault("subscriber %s: %s", s.name, s.wrong)
		}
	}
	return o
}

// firstError describes the first wrong block of a subscriber and what happened around it.
func (s *subscriber) firstError(expected []int32, losses map[int]loss) string {
	for i, due := range expected {
		switch {
		case i >= len(s.got):
			return fmt.Sprintf(", no blocks from %d on%s", due, s.around(due-5, due+20))
		case s.got[i] != due:
			came, all := s.got[i], s.world.truth.blocks
			return fmt.Sprintf(", got block %d (%q), want %d (%q)%s%s",
				came, all[came].Cursor, due, all[due].Cursor, losses[int(due)], s.around(due-5, max(came, due)+20))
		}
	}
	return ""
}

// around returns the journal entries between two blocks.
func (s *subscriber) around(from, to int32) string {
	var all strings.Builder
	for _, e := range s.journal {
		if int32(e.block) >= from && int32(e.block) <= to {
			fmt.Fprintf(&all, "\n    %s at block %d: %s", clock(e.when), e.block, e.what)
		}
	}
	return all.String()
}

// A least is an event that must occur at least that often, so that a run is meaningful.
type least struct {
	what       string
	n, atLeast int
}

// required returns the required events of this kind of run.
func (w *world) required(o outcome) []least {
	n := w.chaos.Counts()
	all := []least{
		{"failures of the source", n.Failures, w.failures},
		{"connections cut", int(w.cutsMade()), w.cuts},
		{"CURSOR_TOO_OLD received", int(w.tooOld.Load()), len(transports)},
		{"queries answered", int(w.queries.answered.Load()), queriesDue},
		{"blocks caught up from the window", int(w.host.recent.Load()), 1},
		{"blocks caught up from the backend", int(w.host.stored.Load()), 1},
		{"sessions expired", int(w.host.expired.Load()), len(transports)},
	}
	for _, f := range w.fates {
		due := len(slices.DeleteFunc(slices.Clone(w.fates), func(other fate) bool { return other != f }))
		all = append(all, least{fmt.Sprintf("holes of %+v", f), o.holes[f], due})
	}
	if len(w.fates) > 10 {
		all = append(all, least{"holes next to a split or merge", o.borders, 1})
	}
	for _, t := range transports {
		by := o.by[t.name]
		all = append(all, least{"resumed over " + t.name, by.resumed, 3},
			least{"ends with a cursor over " + t.name, by.withCursor - by.gaps, 1})
		if len(w.fates) == 0 {
			continue
		}
		all = append(all, least{"STREAM_GAP over " + t.name, by.gaps, 1})
		if w.fates[0].restart {
			all = append(all, least{"STREAM_GAP from a replaced service, over " + t.name, by.meanwhile, 1})
		}
	}
	if len(w.fates) > 0 {
		all = append(all, least{"STREAM_GAP while the service searched", o.meanwhile, 1})
	}
	return all
}

// missed lists the events that occurred too seldom.
func missed(all []least) (texts []string) {
	for _, l := range all {
		if l.n < l.atLeast {
			texts = append(texts, fmt.Sprintf("%s: %d, at least %d were due", l.what, l.n, l.atLeast))
		}
	}
	return texts
}

// table formats the figures of a run.
func (w *world) table(o outcome, took time.Duration) string {
	n := w.chaos.Counts()
	slow := len(slices.DeleteFunc(slices.Clone(w.subscribers), func(s *subscriber) bool { return !s.peer.slow }))
	restarts, lost, repaired := 0, 0, 0
	for f, n := range o.holes {
		switch {
		case f.lost:
			lost += n
		case !f.late:
			repaired += n
		}
		if f.restart {
			restarts += n
		}
	}
	var t strings.Builder
	for _, row := range [][2]any{
		{"seed", w.seed},
		{"blocks", fmt.Sprintf("%d, %d of them recorded, %.0f a second", w.blocks, w.truth.recorded, w.rate)},
		{"subscribers", fmt.Sprintf("%d of %d peers, %d of them slow", len(w.subscribers), len(w.peers), slow)},
		{"handed to connections", fmt.Sprintf("%d as they came; caught up %d from the window, %d from the backend",
			w.host.handed.Load(), w.host.recent.Load(), w.host.stored.Load())},
		{"delivered", o.delivered},
		{"lost, twice, out of order", fmt.Sprintf("%d, %d, %d", o.lost, o.twice, o.disordered+o.unexpected)},
		{"lost without STREAM_GAP", o.silent},
		{"connections", fmt.Sprintf("%d, %d of them resumed a subscription", o.connections, o.resumed)},
		{"ends with a cursor", fmt.Sprintf("%d, %d of them STREAM_GAP; %d blocks rolled back",
			o.withCursor, o.gaps, o.forgotten)},
		{"holes of the source", fmt.Sprintf("%d filled, %d for good, %d filled late; %d next to a split or merge; "+
			"service replaced at %d", repaired, lost, o.holes[fate{late: true}], o.borders, restarts)},
		{"STREAM_GAP during a search", o.meanwhile},
		{"sessions expired", w.host.expired.Load()},
		{"connections cut", fmt.Sprintf("%d, %d of them within a frame",
			w.cutsMade(), w.wide.torn.Load()+w.narrow.torn.Load())},
		{"delays, throttled", fmt.Sprintf("%d, %d",
			w.wide.delays.Load()+w.narrow.delays.Load(), w.wide.throttled.Load()+w.narrow.throttled.Load())},
		{"source failures", fmt.Sprintf("%d, %d of them panics", n.Failures, n.Panics)},
		{"left out, reordered, duplicates", fmt.Sprintf("%d, %d, %d", n.Holes, n.Reordered, n.Duplicates)},
		{"stalls", n.Stalls},
		{"pages read", fmt.Sprintf("%d, failed %d, slow %d, hung %d", n.Pages, n.PagesFailed, n.PagesSlow, n.PagesHung)},
		{"pruned blocks", fmt.Sprintf("%d, CURSOR_TOO_OLD received: %d", w.pruned.Load(), w.tooOld.Load())},
		{"queries for the latest", fmt.Sprintf("%d, failed %d, older than delivered %d",
			w.queries.answered.Load(), w.queries.failed.Load(), w.queries.behind.Load())},
		{"longest lag", fmt.Sprintf("%v (of slow subscribers: %v)",
			o.lag.Round(time.Millisecond), o.slowLag.Round(time.Millisecond))},
		{"duration", took.Round(time.Millisecond)},
	} {
		fmt.Fprintf(&t, "\n  %-32s %v", row[0], row[1])
	}
	return t.String()
}
