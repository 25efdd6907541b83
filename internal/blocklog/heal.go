package blocklog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// How long a block waits for the missing ones before it, and how many blocks are looked through for them.
const (
	healPatience = 5 * time.Second
	healBlocks   = 1000
	healPages    = 10
)

var errStillMissing = errors.New("the source does not have the missing blocks yet")

// mend deals with the hole before the source's next block, or with a merge, before which there may be one. The block
// waits meanwhile. It reports false where the block has been admitted already, or the Log closed.
func (l *Log[B]) mend(b B, cursor string, at Place, v verdict) bool {
	after := l.lines.before(at)
	if v == hole {
		l.stale() // a source that is asked knows better
	}
	missing, mended, err := l.search(b, cursor, at, after)
	if v == hole || len(missing) > 0 {
		l.mu.Lock()
		l.stats.Holes++
		l.mu.Unlock()
	}
	switch {
	case l.ctx.Err() != nil:
		return false
	case err != nil && v == merge:
		l.say(slog.LevelWarn, "blocks before a merge were not checked", "workchain", at.Workchain, "after", after,
			"before", cursor, "error", err, stackOf(err))
		return true
	case err == nil && len(missing) == 0:
		return true
	case err != nil:
		l.lines.take(at, cursor)
		told := l.giveUp(b, cursor, at.Workchain, after)
		l.say(slog.LevelError, "blocks are missing", "workchain", at.Workchain, "after", after, "before", cursor,
			"error", err, "told", told, stackOf(err))
		l.tellGap(at.Workchain, after, false, told)
		l.handRound(b, l.delivered, l.view.Load())
		return false
	}
	told := l.putIn(missing, after)
	l.lines = mended
	l.say(slog.LevelWarn, "missing blocks were found", "workchain", at.Workchain, "after", after, "before", cursor,
		"blocks", len(missing), "told", told)
	l.tellGap(at.Workchain, after, true, told)
	return true
}

func (l *Log[B]) tellGap(workchain int32, after string, healed bool, told int) {
	if l.opts.Events.Gap != nil {
		l.tell(func() { l.opts.Events.Gap(workchain, after, healed, told) })
	}
}

// search asks the source for what is missing before a block, again and again. It returns the missing blocks and the
// lines with them, which the block fits.
func (l *Log[B]) search(b B, cursor string, at Place, after string) (missing []entry[B], mended lines, err error) {
	ctx, cancel := context.WithTimeout(l.ctx, healPatience)
	defer cancel()
	for attempt := 1; ; attempt++ {
		perr := guard(func() { missing, mended, err = l.missing(ctx, b, cursor, at, after) })
		if err = errors.Join(err, perr); err == nil {
			return missing, mended, nil
		}
		timer := time.NewTimer(backoff(l.opts.MinBackoff, l.opts.MaxBackoff, attempt))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, nil, err
		}
	}
}

// missing reads what the source has in front of a block, and picks out what has not come.
func (l *Log[B]) missing(
	ctx context.Context, b B, cursor string, at Place, after string,
) (missing []entry[B], mended lines, err error) {
	mended = l.lines.clone()
	for range healPages {
		blocks, err := l.src.Between(ctx, after, b, healBlocks)
		if err != nil {
			return nil, nil, fmt.Errorf("between: %w", err)
		}
		entries, err := l.ascending(blocks, after)
		if err != nil {
			return nil, nil, fmt.Errorf("between: %w", err)
		}
		for _, e := range entries {
			p := l.src.Place(e.block)
			if e.cursor >= cursor || p.Workchain != at.Workchain {
				return nil, nil, fmt.Errorf("between: block %q of workchain %d was not asked for", e.cursor, p.Workchain)
			}
			if mended.passed(p, e.cursor) {
				continue
			}
			if mended.judge(p) == hole {
				if !overlap(shardOf(p), shardOf(at)) {
					continue // that hole began further back, and shows by itself
				}
				return nil, nil, errStillMissing
			}
			mended.take(p, e.cursor)
			missing = append(missing, e)
		}
		if len(entries) < healBlocks {
			break
		}
		after = entries[len(entries)-1].cursor
	}
	if mended.judge(at) == hole {
		return nil, nil, errStillMissing
	}
	return missing, mended, nil
}

// putIn puts missing blocks where they belong. Those past the newest are admitted as if nothing had been. The others
// are late: blocks from behind them have gone out. The window is made anew, and all live readers look for their places
// in it. Those who are owed a late block are put before it if they have had nothing from behind it, else they are told.
//
// A reader that is behind may have read pages from before the block turned up, and from past the newest: it is dealt
// with in the same way, at the risk that it had the block.
func (l *Log[B]) putIn(missing []entry[B], after string) (told int) {
	owed := make(map[*feed[B]][]string)
	l.canvass(func(f *feed[B]) {
		for _, e := range missing {
			if payload, err := f.evaluate(e.block); payload != nil || err != nil {
				owed[f] = append(owed[f], e.cursor) // a panic will be met where the block is read
			}
		}
	})
	old, late := l.view.Load(), 0
	for late < len(missing) && missing[late].cursor < old.newest.cursor {
		late++
	}
	if late > 0 {
		v := old.merge(missing[:late], l.opts.Window)
		for _, f := range l.feeds {
			l.wakes = f.renumber(v.newest.next, l.delivered, l.wakes)
		}
		l.view.Store(&v)
		l.delivered = v.newest
		l.wakes = l.nudge(l.wakes)
	}
	for _, p := range l.pages {
		p.outdated = p.state == reading
	}
	for f, cursors := range owed {
		told += l.turnBack(f, cursors, old, after)
	}
	if len(missing) > 0 {
		l.remember(doubt[B]{missing: missing, before: old.above(missing[0].cursor, after), until: l.shown(old)})
	}
	l.stats.Healed++
	l.stats.Blocks += uint64(late)
	l.stats.Gaps += uint64(told)
	l.mu.Unlock()
	l.callWakes()
	for _, e := range missing[:late] {
		l.tellBlock(e.block)
	}
	for _, e := range missing[late:] {
		l.admit(e.block, e.cursor)
	}
	return told
}

// turnBack has the members of a feed who are behind, and are owed blocks that turned up, read from before the first of
// them, or ends those for whom that is too late, and counts these.
func (l *Log[B]) turnBack(f *feed[B], cursors []string, old *view[B], after string) (told int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.members {
		owed := cursors
		for len(owed) > 0 && owed[0] <= r.start {
			owed = owed[1:]
		}
		if r.at.next != behind || len(owed) == 0 {
			continue
		}
		before := old.above(owed[0], after)
		r.turned = true
		l.forsake(r)
		r.at.cursor = max(min(r.at.cursor, before), r.start)
		switch {
		case r.gap: // and has perhaps not been told its cursor yet
		case r.handed > owed[0]:
			told++
			r.gap = true
		default:
			r.at.cursor = max(r.at.cursor, r.handed)
		}
		if r.wake != nil {
			l.wakes = append(l.wakes, r.wake)
		}
	}
	return told
}

// giveUp ends the live readers whom a hole that stays may concern, and publishes the block behind it. The window begins
// anew behind that block: whoever goes on from before the hole reads from the source, which may have the missing
// blocks by then.
func (l *Log[B]) giveUp(b B, cursor string, workchain int32, after string) (told int) {
	concerned := make(map[*feed[B]]bool)
	l.canvass(func(f *feed[B]) {
		concerned[f] = f.concerns == nil
		if err := guard(func() { concerned[f] = concerned[f] || f.concerns(workchain) }); err != nil {
			l.logPanic("evaluation of a workchain panicked", err, cursor)
			concerned[f] = true
		}
	})
	for _, f := range l.feeds {
		if concerned[f] {
			n, wakes := f.breakOff(after, l.delivered, l.wakes)
			told, l.wakes = told+n, wakes
		}
	}
	l.stats.Gaps += uint64(told)
	l.remember(doubt[B]{workchain: workchain, before: after, until: l.shown(l.view.Load())})
	v := emptyView[B](mark{l.delivered.next + 1, cursor})
	v.arrived, v.fresh = time.Now(), true
	l.publish(&v)
	l.mu.Unlock()
	return told
}

// canvass asks something of every feed, without a lock, and returns with the log's lock held when no feed is left that
// was not asked.
func (l *Log[B]) canvass(ask func(*feed[B])) {
	asked := make(map[*feed[B]]bool)
	for {
		var born []*feed[B]
		l.mu.Lock()
		for _, f := range l.feeds {
			if !asked[f] {
				born = append(born, f)
			}
		}
		if len(born) == 0 {
			return
		}
		l.mu.Unlock()
		for _, f := range born {
			asked[f] = true
			ask(f)
		}
	}
}

// renumber leaves all live members behind where they are, and has the feed go on at another number.
func (f *feed[B]) renumber(next uint64, delivered mark, wakes []func()) []func() {
	wakes = f.fallAll(delivered, wakes)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.matched = next
	return wakes
}

// breakOff ends with ErrGap, at a cursor or before, the members who are live, and those behind who have been handed
// what is past it, and counts them. Called with the log's lock held.
func (f *feed[B]) breakOff(cursor string, delivered mark, wakes []func()) (int, []func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	told := 0
	for _, r := range f.members {
		if r.gap || r.at.next == behind && r.handed <= cursor {
			continue
		}
		r.log.forsake(r)
		told++
		f.fall(r, max(min(cursor, f.reached(r, delivered).cursor), r.start))
		r.gap, r.turned = true, true
		if r.wake != nil {
			wakes = append(wakes, r.wake)
		}
	}
	return told, wakes
}
