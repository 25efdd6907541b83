package chaos_test

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// An outcome summarizes a run and the errors of all subscribers.
type outcome struct {
	tally
	verdict
	by       map[string]tally // keys are names of transports
	slowLag  time.Duration    // longest lag of a slow subscriber
	holes    map[fate]int     // number of holes with each fate
	borders  int              // number of holes next to a split or merge
	problems []string         // errors of up to ten subscribers
}

// outcome returns the outcome of a run that has ended.
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

// firstError describes the first wrong block of a subscriber and the journal entries around it.
func (s *subscriber) firstError(expected []int32, losses map[int]loss) string {
	if len(s.silent) > 0 {
		n := s.silent[0]
		return fmt.Sprintf(", passed block %d%s without STREAM_GAP after the search; it was sent back to %v%s",
			n, losses[int(n)], s.rewinds, s.around(n-20, n+20))
	}
	for i, due := range expected {
		switch {
		case i >= len(s.got):
			return fmt.Sprintf(", received no blocks from block %d on%s", due, s.around(due-5, due+20))
		case s.got[i] != due:
			came, all := s.got[i], s.world.truth.blocks
			return fmt.Sprintf(", received block %d (%q) instead of %d (%q)%s%s",
				came, all[came].Cursor, due, all[due].Cursor, losses[int(due)], s.around(due-5, max(came, due)+20))
		}
	}
	return ""
}

// around returns the journal entries that were made between two blocks.
func (s *subscriber) around(from, to int32) string {
	var all strings.Builder
	for _, e := range s.journal {
		if int32(e.block) >= from && int32(e.block) <= to {
			fmt.Fprintf(&all, "\n    %s at block %d: %s", clock(e.when), e.block, e.what)
		}
	}
	return all.String()
}

// A requirement is a minimum for the number of times that an event occurs. If a run does not meet it, the
// run did not test enough.
type requirement struct {
	event      string
	n, minimum int
}

// required returns the requirements for a run of this size.
func (w *world) required(o outcome) []requirement {
	n := w.chaos.Counts()
	all := []requirement{
		{"failures of the source", n.Failures, w.failures},
		{"connections cut", int(w.cutsMade()), w.cuts},
		{"CURSOR_TOO_OLD received", int(w.tooOld.Load()), len(transports)},
		{"queries answered", int(w.queries.answered.Load()), queriesDue},
		{"blocks caught up from the window", int(w.host.fromWindow.Load()), 1},
		{"blocks caught up from the backend", int(w.host.fromBackend.Load()), 1},
		{"sessions expired", int(w.host.expired.Load()), len(transports)},
	}
	for _, f := range w.fates {
		due := len(slices.DeleteFunc(slices.Clone(w.fates), func(other fate) bool { return other != f }))
		all = append(all, requirement{fmt.Sprintf("holes of %+v", f), o.holes[f], due})
	}
	if len(w.fates) > 10 {
		all = append(all, requirement{"holes next to a split or merge", o.borders, 1})
	}
	for _, t := range transports {
		by := o.by[t.name]
		all = append(all, requirement{"resumed over " + t.name, by.resumed, 3},
			requirement{"ends with a cursor over " + t.name, by.withCursor - by.gaps, 1})
		if len(w.fates) == 0 {
			continue
		}
		all = append(all, requirement{"STREAM_GAP over " + t.name, by.gaps, 1})
		if w.fates[0].restart {
			text := "STREAM_GAP during a search by a replaced service, over " + t.name
			all = append(all, requirement{text, by.duringSearch, 1})
		}
	}
	if len(w.fates) > 0 {
		all = append(all, requirement{"STREAM_GAP during a search", o.duringSearch, 1})
	}
	return all
}

// missed describes the requirements that are not met.
func missed(all []requirement) (texts []string) {
	for _, l := range all {
		if l.n < l.minimum {
			texts = append(texts, fmt.Sprintf("%s: %d, want at least %d", l.event, l.n, l.minimum))
		}
	}
	return texts
}

// table formats the figures of a run, one per line.
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
		{"blocks", fmt.Sprintf("%d, %d of them from a recording, %.0f per second", w.blocks, w.truth.recorded, w.rate)},
		{"subscribers", fmt.Sprintf("%d of %d peers, %d of them slow", len(w.subscribers), len(w.peers), slow)},
		{"delivered by origin", fmt.Sprintf("%d live, %d from the window, %d from the backend",
			w.host.live.Load(), w.host.fromWindow.Load(), w.host.fromBackend.Load())},
		{"received by subscribers", o.delivered},
		{"lost, duplicate, out of order", fmt.Sprintf("%d, %d, %d", o.lost, o.twice, o.disordered+o.unexpected)},
		{"lost without STREAM_GAP", o.silent},
		{"connections", fmt.Sprintf("%d, %d of them resumed a subscription", o.connections, o.resumed)},
		{"ends with a cursor", fmt.Sprintf("%d, %d of them with STREAM_GAP; %d blocks discarded",
			o.withCursor, o.gaps, o.forgotten)},
		{"holes of the source", fmt.Sprintf("%d filled in time, %d never filled, %d filled late; "+
			"%d next to a split or merge; the service was replaced at %d",
			repaired, lost, o.holes[fate{late: true}], o.borders, restarts)},
		{"STREAM_GAP during a search", o.duringSearch},
		{"sessions expired", w.host.expired.Load()},
		{"connections cut", fmt.Sprintf("%d, %d of them within a frame",
			w.cutsMade(), w.wide.torn.Load()+w.narrow.torn.Load())},
		{"delays, throttled", fmt.Sprintf("%d, %d",
			w.wide.delays.Load()+w.narrow.delays.Load(), w.wide.throttled.Load()+w.narrow.throttled.Load())},
		{"source failures", fmt.Sprintf("%d, %d of them panics", n.Failures, n.Panics)},
		{"blocks omitted, reordered, repeated", fmt.Sprintf("%d, %d, %d", n.Holes, n.Reordered, n.Duplicates)},
		{"stalls", n.Stalls},
		{"pages read", fmt.Sprintf("%d; %d failed, %d were slow, %d hung", n.Pages, n.PagesFailed, n.PagesSlow,
			n.PagesHung)},
		{"pruned blocks", fmt.Sprintf("%d; CURSOR_TOO_OLD received %d times", w.pruned.Load(), w.tooOld.Load())},
		{"queries for the latest block",
			fmt.Sprintf("%d answered, %d failed, %d responses older than a delivered block",
				w.queries.answered.Load(), w.queries.failed.Load(), w.queries.behind.Load())},
		{"longest lag", fmt.Sprintf("%v; of slow subscribers %v",
			o.lag.Round(time.Millisecond), o.slowLag.Round(time.Millisecond))},
		{"duration", took.Round(time.Millisecond)},
	} {
		fmt.Fprintf(&t, "\n  %-32s %v", row[0], row[1])
	}
	return t.String()
}
