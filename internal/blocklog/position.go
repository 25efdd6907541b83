package blocklog

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrNoPosition ends a Reader without a cursor that joined while the Log did not know its place in the source: "from
// now on" then means no place that the Log could find later.
var ErrNoPosition = errors.New("blocklog: the newest block is not known")

// positionPatience is how long the source may take to tell its newest block. Readers that joined before may have missed
// the blocks of that time.
const positionPatience = time.Second

// position returns where to follow from: the last block, or else the source's newest.
func (l *Log[B]) position(ctx context.Context) (string, error) {
	l.mu.Lock()
	cursor, positioned := l.view.Load().newest.cursor, l.positioned
	l.mu.Unlock()
	if positioned {
		return cursor, nil
	}
	if l.asked {
		l.endUnplaced() // they joined before this attempt
	}
	l.asked = true
	begun := time.Now()
	blocks, err := l.src.Recent(ctx, recentBlocks)
	if err != nil {
		return "", fmt.Errorf("recent: %w", err)
	}
	if time.Since(begun) > positionPatience {
		l.endUnplaced()
	}
	entries, err := l.ascending(blocks[max(0, len(blocks)-recentBlocks):], "")
	if err != nil {
		return "", fmt.Errorf("recent: %w", err)
	}
	return l.begin(entries), nil
}

// begin gives the log its place, behind the last of some stored blocks. The first of them is before the window: its
// cursor is a place that the source has, which "" may not be any more. If sequence numbers show a gap, the window
// begins after it: who resumes from before reads pages, and is told.
func (l *Log[B]) begin(stored []entry[B]) string {
	var heads lines
	if l.checked() {
		heads = make(lines)
		first := 0
		for i, e := range stored {
			if heads.judge(l.src.Place(e.block)) == hole {
				first = i
			}
			heads.take(l.src.Place(e.block), e.cursor)
			l.know(l.src.Place(e.block).Workchain)
		}
		stored = stored[first:]
	}
	l.mu.Lock()
	l.lines = heads
	at := l.view.Load().newest
	if len(stored) > 0 {
		at.cursor = stored[0].cursor
		stored = stored[1:]
	}
	v := emptyView[B](at)
	for _, e := range stored {
		v.push(e.block, stamp{cursor: e.cursor}, l.opts.Window)
	}
	l.view.Store(&v)
	l.begun = v.newest.cursor
	l.positioned, l.delivered = true, v.newest
	for _, f := range l.feeds {
		f.begin(v.newest)
	}
	l.wakes = l.arriveAnew(l.wakes)
	l.mu.Unlock()
	l.callWakes()
	return v.newest.cursor
}

// lose gives the position up. The next attempt starts from the head, and everybody who counted on the old one is
// behind: the source tells each whether what follows its cursor is still there. The window must not be read across
// that seam.
func (l *Log[B]) lose() {
	l.mu.Lock()
	for _, f := range l.feeds {
		l.wakes = f.fallAll(l.delivered, l.wakes)
	}
	newest := l.view.Load().newest
	l.note(newest.cursor)
	v := emptyView[B](mark{newest.next, ""})
	l.view.Store(&v)
	l.gaps.Add(1) // what was between here and the next position is not known
	l.positioned, l.delivered = false, v.newest
	l.mu.Unlock()
	l.callWakes()
}

// endUnplaced ends the readers without a cursor that joined before the log had a place: their clients come back when it
// may have one. Those who join while there is none wait for the next attempt, which spaces their attempts out.
func (l *Log[B]) endUnplaced() {
	l.mu.Lock()
	for _, f := range l.feeds {
		if !l.positioned {
			l.wakes = f.endUnplaced(l.wakes)
		}
	}
	l.mu.Unlock()
	l.callWakes()
}

func (f *feed[B]) endUnplaced(wakes []func()) []func() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.members {
		if r.at.next == behind {
			continue
		}
		f.fall(r, r.at.cursor)
		r.lost = ErrNoPosition
		if r.wake != nil {
			wakes = append(wakes, r.wake)
		}
	}
	return wakes
}
