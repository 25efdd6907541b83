package blocklog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/chaingql/chaingql/internal/guard"
	"github.com/chaingql/chaingql/internal/xsync"
)

const (
	repairTimeout  = 5 * time.Second        // maximum time for which a block waits for missing blocks before it
	repairInterval = 500 * time.Millisecond // maximum wait between two attempts to find the missing blocks
	repairBlocks   = 1000                   // maximum number of blocks per call of Between
	repairPages    = 10                     // maximum number of calls of Between per attempt
)

var errStillMissing = errors.New("the source does not have the missing blocks yet")

// repair looks for missing blocks before b, the source's next block, whose number shows a gap or may hide one. b is not
// delivered meanwhile. repair reports whether the caller must admit b. It returns false if it has admitted b itself or
// the Log is closed.
func (l *Log[B]) repair(b B, cursor string, at Place, v verdict) bool {
	after := l.heads.before(at, l.startCursor)
	if v == verdictFirst {
		after = l.startCursor
	}
	find := func(ctx context.Context) (found[B], error) {
		f, err := l.findMissing(ctx, b, cursor, at, after)
		if err != nil && v == verdictGap && f.began != "" && f.began < after {
			after = f.began
			l.setOpenGaps(openGap{at.Workchain, after, cursor, l.gaps.Load() + 1})
		}
		return f, err
	}
	switch {
	case v == verdictGap:
		l.stale() // queries must ask the source, which may have the missing blocks
		l.setOpenGaps(openGap{at.Workchain, after, cursor, l.gaps.Load() + 1})
	case l.src.Before != nil:
		known, begun := l.heads.clone(), l.startCursor
		find = func(ctx context.Context) (f found[B], err error) {
			if f, err = l.findUnnumbered(ctx, b, cursor, at, v, known, begun); err != nil {
				after = min(after, cmp.Or(f.began, after)) // began may be before the start of the log
				l.stale()
				l.setOpenGaps(openGap{at.Workchain, after, cursor, 0})
			}
			return f, err
		}
	case v == verdictFirst:
		return true
	}
	f, err := l.search(find)
	stays := err != nil &&
		(v == verdictGap || errors.Is(err, errStillMissing) || len(l.rechecks.blocks) == maxUnchecked)
	if stays || len(f.missing) > 0 {
		l.mu.Lock()
		l.stats.GapsFound++
		l.mu.Unlock()
	}
	switch {
	case l.ctx.Err() != nil:
		return false
	case stays:
		ended := l.skipGap(cursor, at, after)
		l.logUnrepaired(at.Workchain, after, cursor, ended, err)
		l.deliverNewest(b, l.delivered, l.view.Load())
		return false
	case err != nil:
		l.rechecks.blocks = append(l.rechecks.blocks, uncheckedBlock[B]{b, at.Workchain, after, cursor, find})
		l.logLine(slog.LevelWarn, "gap check failed; retrying", slog.Int("workchain", int(at.Workchain)),
			slog.String("before", cursor), guard.Error(err), guard.Stack(err))
		return true
	case len(f.missing) == 0:
		l.setOpenGaps()
		return true
	}
	l.insertFound(f, at.Workchain, cursor)
	l.mu.Lock()
	l.heads = f.heads
	l.mu.Unlock()
	return true
}

// insertFound inserts the blocks that were missing before the block with the cursor, and reports the repaired gap.
func (l *Log[B]) insertFound(f found[B], workchain int32, cursor string) {
	ended := l.insertMissing(f.missing, workchain, f.after)
	l.logLine(slog.LevelWarn, "gap repaired; the missing blocks are delivered",
		slog.Int("workchain", int(workchain)), slog.String("after", f.after), slog.String("before", cursor),
		slog.Int("blocks", len(f.missing)), slog.Int("subscriptions", ended))
	l.gapEvent(workchain, f.after, true, ended)
}

func (l *Log[B]) logUnrepaired(workchain int32, after, cursor string, ended int, err error) {
	l.logLine(slog.LevelError, "gap not repaired; affected subscriptions ended",
		slog.Int("workchain", int(workchain)), slog.String("after", after), slog.String("before", cursor),
		guard.Error(err), slog.Int("subscriptions", ended), guard.Stack(err))
	l.gapEvent(workchain, after, false, ended)
}

// found is the result of a search for the blocks that are missing before a block.
type found[B any] struct {
	missing []entry[B]
	after   string     // a position before the missing blocks
	began   string     // if the search failed: a position before the blocks that it noticed to be missing, or ""
	heads   shardHeads // the heads after the missing blocks; the block continues these heads
}

// search calls find until it succeeds or repairTimeout has passed.
func (l *Log[B]) search(find func(context.Context) (found[B], error)) (f found[B], err error) {
	ctx, cancel := context.WithTimeout(l.ctx, repairTimeout)
	defer cancel()
	most := max(l.opts.MinBackoff, min(l.opts.MaxBackoff, repairInterval))
	for attempt := 1; ; attempt++ {
		perr := guard.RunApart(func() { f, err = find(ctx) })
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

// findMissing reads the stored blocks of b's workchain between after and b, and returns those that the log lacks. If
// they do not close the gap, it returns errStillMissing.
func (l *Log[B]) findMissing(ctx context.Context, b B, cursor string, at Place, after string) (f found[B], err error) {
	f = found[B]{after: after, heads: l.heads.clone()}
	var later []uint64 // shards with a gap that b does not reveal
	for range repairPages {
		blocks, err := l.src.Between(ctx, after, b, repairBlocks)
		if err != nil {
			return f, fmt.Errorf("reading missing blocks: %w", err)
		}
		entries, err := l.ascending(blocks, after)
		if err != nil {
			return f, fmt.Errorf("reading missing blocks: %w", err)
		}
		for _, e := range entries {
			p := l.src.Place(e.block)
			if e.cursor >= cursor || p.Workchain != at.Workchain {
				return f, fmt.Errorf("reading missing blocks: unexpected block %q in workchain %d",
					e.cursor, p.Workchain)
			}
			v := f.heads.check(p)
			from, err := l.searchFrom(ctx, e, p, v, f)
			if v == verdictGap && overlap(shardOf(p), shardOf(at)) && !f.heads.passed(p, e.cursor) {
				from = f.heads.before(p, l.startCursor) // after a merge, blocks of the other half may be missing
			}
			switch {
			case err != nil:
				return f, err
			case from < f.after:
				f, err := l.findMissing(ctx, b, cursor, at, from)
				f.began = cmp.Or(f.began, from)
				return f, err
			}
			if v == verdictMerge && slices.ContainsFunc(later, func(s uint64) bool { return overlap(s, shardOf(p)) }) {
				v = verdictGap // the number of the merged shard does not show this gap
			}
			switch {
			case v != verdictGap || f.heads.passed(p, e.cursor):
			case overlap(shardOf(p), shardOf(at)):
				return f, errStillMissing
			default:
				later = append(later, shardOf(p)) // this gap is found when a block of its shard arrives
				continue
			}
			if err := f.add(p, e); err != nil {
				return f, err
			}
		}
		if len(entries) < repairBlocks {
			break
		}
		after = entries[len(entries)-1].cursor
	}
	if f.heads.check(at) == verdictGap {
		return f, errStillMissing
	}
	return f, nil
}

// add appends a stored block to f.missing if the log lacks it. It returns errStillMissing if the log also lacks a block
// before it.
func (f *found[B]) add(p Place, e entry[B]) error {
	if f.heads.passed(p, e.cursor) {
		return nil
	}
	if f.heads.check(p) == verdictGap {
		return errStillMissing
	}
	f.heads.set(p, e.cursor)
	f.missing = append(f.missing, e)
	return nil
}

// insertMissing inserts missing blocks in their places. Blocks after the newest one are admitted as usual. The others
// are late, because later blocks have been delivered: the window is rebuilt, and all live readers look for their
// positions in it. A reader that needs a late block continues before that block, or ends with ErrGap if it has received
// a later one. insertMissing returns the number of readers that ended.
//
// A reader that is catching up is treated in the same way, because its pages may have been read before the missing
// block was stored. It may also have received the block.
func (l *Log[B]) insertMissing(missing []entry[B], workchain int32, after string) (ended int) {
	owed := make(map[*shareGroup[B]][]string)
	rest := l.forEachGroup(func(g *shareGroup[B]) {
		for _, e := range missing {
			if payload, err := g.evaluate(e.block); payload != nil || err != nil {
				owed[g] = append(owed[g], e.cursor) // an Eval that panics now panics again in Next
			}
		}
	})
	for _, e := range missing {
		for _, g := range rest {
			owed[g] = append(owed[g], e.cursor) // the block may match
		}
	}
	if len(*l.openGaps.Load()) > 0 {
		l.gaps.Add(1) // clients that left during the search have this number in ReportedGaps, but lack the found blocks
	}
	old, late := l.view.Load(), 0
	for late < len(missing) && missing[late].cursor < old.newest.cursor {
		late++
	}
	if late > 0 {
		v := old.merge(missing[:late], l.opts.limit(), l.src.Place)
		for _, g := range l.groups {
			l.wakes = g.renumber(v.newest.next, l.delivered, l.wakes)
		}
		l.view.Store(&v)
		l.delivered = v.newest
		l.wakes = l.wakeAllReached(l.wakes)
	}
	for _, p := range l.pages {
		p.outdated = p.state == pageReading
	}
	for g, cursors := range owed {
		ended += l.rewind(g, cursors, old, after)
	}
	if len(missing) > 0 {
		before := old.beforeOr(missing[0].cursor, after)
		l.addLateGap(lateGap[B]{workchain: workchain, missing: missing, before: before, until: l.highestShown(old)})
	}
	l.stats.GapsRepaired++
	l.stats.Blocks += uint64(late)
	l.stats.EndedByGap += uint64(ended)
	l.setOpenGaps()
	l.mu.Unlock()
	l.callWakes()
	for _, e := range missing[:late] {
		l.blockEvent(e.block)
	}
	for _, e := range missing[late:] {
		l.admit(e.block, e.cursor, nil)
	}
	return ended
}

// rewind moves readers of group g that are catching up back to before the first repaired block that they lack. cursors
// are the cursors of the repaired blocks that match in the group; a reader lacks only those after its start. A reader
// that has already returned a block after the first one that it lacks ends with ErrGap instead. rewind returns the
// number of readers that ended.
func (l *Log[B]) rewind(g *shareGroup[B], cursors []string, old *view[B], after string) (ended int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range g.members {
		owed := cursors
		for len(owed) > 0 && owed[0] <= r.start {
			owed = owed[1:]
		}
		if r.at.next != catchingUp || len(owed) == 0 {
			continue
		}
		before := old.beforeOr(owed[0], after)
		r.discardSearch()
		l.cancelWait(r)
		r.at.cursor = max(min(r.at.cursor, before), r.start)
		switch {
		case r.lost != nil: // the reader has ended, but Next may not have returned its cursor yet
		case r.lastReturned > owed[0]:
			ended++
			r.lost, r.reportedGap = ErrGap, l.gaps.Load()+1
		default:
			r.at.cursor = max(r.at.cursor, r.lastReturned)
		}
		l.wakes = r.appendWake(l.wakes)
	}
	return ended
}

// skipGap ends the readers that a permanent gap before the block with the cursor may affect. The window starts again
// after that block, so that a reader that resumes from before the gap reads from the source, which may have the missing
// blocks by then. skipGap returns the number of readers that ended.
func (l *Log[B]) skipGap(cursor string, at Place, after string) (ended int) {
	ended = l.endAffected(at.Workchain, after, cursor)
	l.heads.set(at, cursor)
	v := emptyView[B](position{l.delivered.next + 1, cursor})
	v.arrived, v.fresh = time.Now(), true
	l.publish(&v)
	l.setOpenGaps()
	l.mu.Unlock()
	return ended
}

// endAffected ends the readers that a permanent gap before the block with the cursor may affect, and returns their
// number. It returns with the log's lock held.
func (l *Log[B]) endAffected(workchain int32, after, cursor string) (ended int) {
	concerned := make(map[*shareGroup[B]]bool)
	rest := l.forEachGroup(func(g *shareGroup[B]) {
		may, err := g.mayMatch(workchain)
		if concerned[g] = may; err != nil {
			l.logPanic("workchain filter panicked; its subscriptions may end", err, after)
		}
	})
	for _, g := range rest {
		concerned[g] = true
	}
	l.addPermanent(cursor)
	for _, g := range l.groups {
		if concerned[g] {
			n, wakes := g.endAtGap(after, cursor, l.gaps.Load()+1, l.permanentGaps[cursor].number, l.delivered, l.wakes)
			ended, l.wakes = ended+n, wakes
		}
	}
	l.stats.EndedByGap += uint64(ended)
	l.addLateGap(lateGap[B]{workchain: workchain, before: after, until: l.highestShown(l.view.Load())})
	return ended
}

// renumber makes all live readers of the group catch up from their positions, because the blocks of the window have new
// numbers. next is the number of the next block.
func (g *shareGroup[B]) renumber(next uint64, delivered position, wakes []xsync.Waker) []xsync.Waker {
	wakes = g.fallAll(delivered, wakes)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.matched = next
	return wakes
}
