package blocklog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/chaingql/chaingql/internal/xsync"
)

// ErrNoPosition is the cause of a [Lost] if a Reader joined without a cursor while the Log did not know its position in
// the source. The Log cannot find out later which block was the newest when the Reader joined.
var ErrNoPosition = errors.New("blocklog: the newest block was not known when the reader joined")

var errPositionGone = errors.New("the source does not have the log's position any more")

// positionTimeout is the maximum time for Recent to return the newest block. If it takes longer, Readers that joined
// before the call returned end with ErrNoPosition, because they may have missed blocks that arrived in that time.
const positionTimeout = time.Second

// followFrom returns the cursor from which to follow the source. It is the cursor of the last block that the log
// received, or, if the log has no position, the cursor of the source's newest block.
func (l *Log[B]) followFrom(ctx context.Context) (string, error) {
	l.mu.Lock()
	cursor, positioned := l.view.Load().newest.cursor, l.positioned
	l.mu.Unlock()
	if positioned {
		return cursor, nil
	}
	if l.recentCalled {
		l.endUnpositioned() // readers that joined before this attempt
	}
	l.recentCalled = true
	begun := time.Now()
	blocks, err := l.src.Recent(ctx, recentBlocks)
	if err != nil {
		return "", fmt.Errorf("reading the newest blocks: %w", err)
	}
	if time.Since(begun) > positionTimeout {
		l.endUnpositioned()
	}
	entries, err := l.ascending(blocks[max(0, len(blocks)-recentBlocks):], "")
	if err != nil {
		return "", fmt.Errorf("reading the newest blocks: %w", err)
	}
	l.eventMu.Lock()
	l.sourceAnswered()
	l.eventMu.Unlock()
	return l.begin(entries), nil
}

// begin makes the last of the given stored blocks the position of the log, and fills the window with up to pageBlocks
// of them. The window does not include the first one: the source has that block's cursor, whereas the blocks after the
// cursor "" may have been pruned. If sequence numbers show a gap, the window begins after the block that shows it, so
// that a reader that resumes from before the gap reads pages, which report the gap.
func (l *Log[B]) begin(stored []entry[B]) string {
	var heads shardHeads
	first := max(0, len(stored)-1-pageBlocks)
	if l.checked() {
		heads = make(shardHeads)
		for i, e := range stored {
			if heads.check(l.src.Place(e.block)) == verdictGap {
				first = max(first, i)
			}
			heads.set(l.src.Place(e.block), e.cursor)
			l.addWorkchain(l.src.Place(e.block).Workchain)
		}
	}
	stored = stored[first:]
	stamps := make([]stamp, len(stored))
	for i, e := range stored {
		stamps[i] = l.stampOf(e.block, e.cursor, time.Time{})
	}
	l.mu.Lock()
	l.heads = heads
	at := l.view.Load().newest
	if len(stored) > 0 {
		at.cursor = stored[0].cursor
		stored, stamps = stored[1:], stamps[1:]
	}
	v := emptyView[B](at)
	for i, e := range stored {
		v.push(e.block, stamps[i], l.opts.limit(), l.src.Place)
	}
	l.view.Store(&v)
	l.startCursor = v.newest.cursor
	l.positioned, l.delivered = true, v.newest
	for _, g := range l.groups {
		g.begin(v.newest)
	}
	l.wakes = l.wakeAllReached(l.wakes)
	l.mu.Unlock()
	l.callWakes()
	return v.newest.cursor
}

// confirmGone is called when Follow has reported that the source does not have the blocks after the log's position. It
// reports whether the log must give up the position: Page reports the same, or Follow reports it for the second time.
// Otherwise the failure may be temporary, and a log that gives up its position no longer notices which blocks Follow
// has skipped before it.
func (l *Log[B]) confirmGone(ctx context.Context, position string) bool {
	if l.gone {
		l.gone = false
		return true
	}
	l.gone = true
	_, err := l.src.Page(ctx, position, 1)
	return err != nil && l.src.Gone(err)
}

// reset discards the position of the log, which the source does not have any more. The next attempt starts after the
// chain's newest block. All live readers must catch up: the source reports for each of them whether it still has the
// blocks after the reader's cursor. The new window is empty, because the blocks between the old and the next position
// are not known. For the same reason, unchecked blocks cannot be checked any more: a later check would not know which
// blocks the log has received since.
func (l *Log[B]) reset() {
	l.mu.Lock()
	l.heads.fill(l.learned)
	l.learned = nil
	newest, known := l.view.Load().newest, &stored[B]{heads: l.heads, began: l.startCursor}
	for _, g := range l.groups {
		l.wakes = g.fallAll(l.delivered, l.wakes)
		g.keepHeads(known, newest.cursor)
	}
	l.raiseReached(newest.cursor)
	v := emptyView[B](position{newest.next, ""})
	l.view.Store(&v)
	l.gaps.Add(1) // the blocks between the old and the next position are not known
	l.positioned, l.delivered = false, v.newest
	l.mu.Unlock()
	for len(l.rechecks.blocks) > 0 { // after the readers fell: those that received no block after the gap continue
		l.endUnchecked(l.nextUnchecked(), errPositionGone)
	}
	l.callWakes()
}

// endUnpositioned ends the readers that joined without a cursor while the log had no position. Their clients join again
// when it may have one. Readers that join after this call wait for the next attempt, so that their clients do not join
// again and again without a pause.
func (l *Log[B]) endUnpositioned() {
	l.mu.Lock()
	for _, g := range l.groups {
		if !l.positioned {
			l.wakes = g.endUnpositioned(l.wakes)
		}
	}
	l.mu.Unlock()
	l.callWakes()
}

func (g *shareGroup[B]) endUnpositioned(wakes []xsync.Waker) []xsync.Waker {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range g.members {
		if r.at.next == catchingUp {
			continue
		}
		g.fall(r, r.at.cursor)
		r.lost = ErrNoPosition
		wakes = r.appendWake(wakes)
	}
	return wakes
}
