package blocklog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// How long a block waits for the missing ones before it, how often at least the source is asked for them meanwhile, and
// how many blocks are looked through for them.
const (
	healPatience = 5 * time.Second
	healInterval = 500 * time.Millisecond
	healBlocks   = 1000
	healPages    = 10
)

var errStillMissing = errors.New("the source does not have the missing blocks yet")

// mend deals with the hole before the source's next block, or looks for one that its number does not show. The block
// waits meanwhile. It reports false where the block has been admitted already, or the Log closed.
func (l *Log[B]) mend(b B, cursor string, at Place, v verdict) bool {
	after := l.lines.before(at)
	if v == first {
		after = l.begun
	}
	find := func(ctx context.Context) (found[B], error) { return l.missing(ctx, b, cursor, at, after) }
	switch {
	case v == hole:
		l.stale() // a source that is asked knows better
		l.openGap.Store(&openGap{at.Workchain, after, l.gaps.Load() + 1})
	case l.src.Before != nil:
		known, begun := l.lines.clone(), l.begun
		find = func(ctx context.Context) (f found[B], err error) {
			if f, err = l.missingKin(ctx, b, cursor, at, v, known, begun); err != nil {
				l.stale()
				l.openGap.Store(&openGap{workchain: at.Workchain, after: after})
			}
			return f, err
		}
	case v == first:
		return true
	}
	f, err := l.search(find)
	stays := err != nil && (v == hole || errors.Is(err, errStillMissing) || len(l.later.blocks) == maxUnchecked)
	if stays || len(f.missing) > 0 {
		l.mu.Lock()
		l.stats.Holes++
		l.mu.Unlock()
	}
	switch {
	case l.ctx.Err() != nil:
		return false
	case stays:
		told := l.giveUp(b, cursor, at, after)
		l.sayMissing(at.Workchain, after, cursor, told, err)
		l.handRound(b, l.delivered, l.view.Load())
		return false
	case err != nil:
		l.later.blocks = append(l.later.blocks, unchecked[B]{at.Workchain, after, cursor, find})
		l.say(slog.LevelWarn, "gap check failed; retrying", "workchain", at.Workchain, "before", cursor, "error", err,
			stackOf(err))
		return true
	case len(f.missing) == 0:
		l.settle()
		return true
	}
	l.repair(f, at.Workchain, cursor)
	l.mu.Lock()
	l.lines = f.mended
	l.mu.Unlock()
	return true
}

// repair puts missing blocks in, which showed before the block with the cursor.
func (l *Log[B]) repair(f found[B], workchain int32, cursor string) {
	told := l.putIn(f.missing, workchain, f.after)
	l.say(slog.LevelWarn, "missing blocks were found", "workchain", workchain, "after", f.after, "before", cursor,
		"blocks", len(f.missing), "told", told)
	l.tellGap(workchain, f.after, true, told)
}

func (l *Log[B]) sayMissing(workchain int32, after, cursor string, told int, err error) {
	l.say(slog.LevelError, "blocks are missing", "workchain", workchain, "after", after, "before", cursor,
		"error", err, "told", told, stackOf(err))
	l.tellGap(workchain, after, false, told)
}

func (l *Log[B]) tellGap(workchain int32, after string, healed bool, told int) {
	if l.opts.Events.Gap != nil {
		l.tell(func() { l.opts.Events.Gap(workchain, after, healed, told) })
	}
}

// found is what was found missing before a block.
type found[B any] struct {
	missing []entry[B]
	after   string // a position before them
	mended  lines  // with them; the block fits these
}

// search asks the source for what is missing before a block, again and again.
func (l *Log[B]) search(find func(context.Context) (found[B], error)) (f found[B], err error) {
	ctx, cancel := context.WithTimeout(l.ctx, healPatience)
	defer cancel()
	most := max(l.opts.MinBackoff, min(l.opts.MaxBackoff, healInterval))
	for attempt := 1; ; attempt++ {
		perr := guard(func() { f, err = find(ctx) })
		if err = errors.Join(err, perr); err == nil {
			return f, nil
		}
		timer := time.NewTimer(backoff(l.opts.MinBackoff, most, attempt))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return found[B]{}, err
		}
	}
}

// missing reads what the source has in front of a block, and picks out what has not come.
func (l *Log[B]) missing(ctx context.Context, b B, cursor string, at Place, after string) (f found[B], err error) {
	f = found[B]{after: after, mended: l.lines.clone()}
	for range healPages {
		blocks, err := l.src.Between(ctx, after, b, healBlocks)
		if err != nil {
			return f, fmt.Errorf("between: %w", err)
		}
		entries, err := l.ascending(blocks, after)
		if err != nil {
			return f, fmt.Errorf("between: %w", err)
		}
		for _, e := range entries {
			p := l.src.Place(e.block)
			if e.cursor >= cursor || p.Workchain != at.Workchain {
				return f, fmt.Errorf("between: block %q of workchain %d was not asked for", e.cursor, p.Workchain)
			}
			if f.mended.judge(p) == hole && !overlap(shardOf(p), shardOf(at)) && !f.mended.passed(p, e.cursor) {
				continue // that hole began further back, and shows by itself
			}
			if from := f.mended.before(p); f.mended.judge(p) == merge && from < f.after {
				return l.missing(ctx, b, cursor, at, from) // one of the other half may be missing, from before
			}
			if err := f.add(p, e); err != nil {
				return f, err
			}
		}
		if len(entries) < healBlocks {
			break
		}
		after = entries[len(entries)-1].cursor
	}
	if f.mended.judge(at) == hole {
		return f, errStillMissing
	}
	return f, nil
}

// add takes a stored block for missing if it has not come.
func (f *found[B]) add(p Place, e entry[B]) error {
	if f.mended.passed(p, e.cursor) {
		return nil
	}
	if f.mended.judge(p) == hole {
		return errStillMissing
	}
	f.mended.take(p, e.cursor)
	f.missing = append(f.missing, e)
	return nil
}

// putIn puts missing blocks where they belong. Those past the newest are admitted as if nothing had been. The others
// are late: blocks from behind them have gone out. The window is made anew, and all live readers look for their places
// in it. Those who are owed a late block are put before it if they have had nothing from behind it, else they are told.
//
// A reader that is behind may have read pages from before the block turned up, and from past the newest: it is dealt
// with in the same way, at the risk that it had the block.
func (l *Log[B]) putIn(missing []entry[B], workchain int32, after string) (told int) {
	owed := make(map[*feed[B]][]string)
	l.canvass(func(f *feed[B]) {
		for _, e := range missing {
			if payload, err := f.evaluate(e.block); payload != nil || err != nil {
				owed[f] = append(owed[f], e.cursor) // a panic will be met where the block is read
			}
		}
	})
	if l.openGap.Load() != nil {
		l.gaps.Add(1) // the next number is of those who were told during the search, and have read on without the blocks
	}
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
		l.wakes = l.arriveAnew(l.wakes)
	}
	for _, p := range l.pages {
		p.outdated = p.state == reading
	}
	for f, cursors := range owed {
		told += l.turnBack(f, cursors, old, after)
	}
	if len(missing) > 0 {
		before := old.above(missing[0].cursor, after)
		l.remember(doubt[B]{workchain: workchain, missing: missing, before: before, until: l.shown(old)})
	}
	l.stats.Healed++
	l.stats.Blocks += uint64(late)
	l.stats.Gaps += uint64(told)
	l.settle()
	l.mu.Unlock()
	l.callWakes()
	for _, e := range missing[:late] {
		l.tellBlock(e.block)
	}
	for _, e := range missing[late:] {
		l.admit(e.block, e.cursor, nil)
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
		case r.lost != nil: // and has perhaps not been told its cursor yet
		case r.handed > owed[0]:
			told++
			r.lost, r.told = ErrGap, l.gaps.Load()+1
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
func (l *Log[B]) giveUp(b B, cursor string, at Place, after string) (told int) {
	told = l.endConcerned(at.Workchain, after, cursor)
	l.lines.take(at, cursor)
	v := emptyView[B](mark{l.delivered.next + 1, cursor})
	v.arrived, v.fresh = time.Now(), true
	l.publish(&v)
	l.settle()
	l.mu.Unlock()
	return told
}

// endConcerned ends the live readers whom a hole that stays, before the block with the cursor, may concern. It returns
// with the log's lock held.
func (l *Log[B]) endConcerned(workchain int32, after, cursor string) (told int) {
	concerned := make(map[*feed[B]]bool)
	l.canvass(func(f *feed[B]) {
		may, err := f.mayMatch(workchain)
		if concerned[f] = may; err != nil {
			l.logPanic("evaluation of a workchain panicked", err, after)
		}
	})
	l.noteLasting(cursor)
	for _, f := range l.feeds {
		if concerned[f] {
			n, wakes := f.breakOff(after, l.gaps.Load()+1, l.lasting[cursor].number, l.delivered, l.wakes)
			told, l.wakes = told+n, wakes
		}
	}
	l.stats.Gaps += uint64(told)
	l.remember(doubt[B]{workchain: workchain, before: after, until: l.shown(l.view.Load())})
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
