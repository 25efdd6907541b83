package blocklog

import "github.com/chaingql/chaingql/internal/xsync"

// endAtGap ends the readers of the group that a gap affects with ErrGap, and returns their number. cursor is the
// position before the gap. A reader ends at the cursor, or at its own position if that is earlier.
//
//   - A live reader ends.
//   - A reader that is catching up ends if it has received a block after the cursor. If it has passed the cursor
//     without receiving a block, it continues from the cursor.
//   - A reader that is catching up and has not passed the cursor is not affected.
//   - A reader whose client has already received an error for the gap is not affected.
//   - A reader that started at until or after it is not affected. until is the cursor of the block that shows the gap.
//
// number is the gap's number, and permanent is its number among the permanent gaps. The caller must hold the log's
// lock.
func (g *shareGroup[B]) endAtGap(
	cursor, until string, number, permanent uint32, delivered position, wakes []xsync.Waker,
) (int, []xsync.Waker) {
	g.mu.Lock()
	defer g.mu.Unlock()
	ended := 0
	for _, r := range g.members {
		if r.lost != nil || r.reportedGap >= number || r.start >= until ||
			r.at.next == catchingUp && r.at.cursor <= cursor {
			continue
		}
		g.log.cancelWait(r)
		r.discardSearch()
		unaffected := r.at.next == catchingUp && r.lastReturned <= cursor
		if g.fall(r, max(min(cursor, g.reached(r, delivered).cursor), r.start)); !unaffected {
			ended++
			r.lost, r.reportedGap, r.reportedPermanent = ErrGap, number, max(r.reportedPermanent, permanent)
		}
		wakes = r.appendWake(wakes)
	}
	return ended, wakes
}
