package blocklog

// endAtGap ends the members that a gap affects with ErrGap, and returns their number. cursor is the position before the
// gap. A member ends at the cursor, or at its own position if that is earlier.
//
//   - A live member ends.
//   - A member that is catching up ends if it has received a block after the cursor. If it has passed the cursor
//     without receiving a block, it continues from the cursor.
//   - A member that is catching up and has not passed the cursor is not affected.
//   - A member to whose client the gap has been reported is not affected.
//
// number is the gap's number, and lasting is its number among the lasting gaps. The caller must hold the log's lock.
func (g *shareGroup[B]) endAtGap(
	cursor string, number, lasting uint32, delivered mark, wakes []func(),
) (int, []func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	ended := 0
	for _, r := range g.members {
		if r.lost != nil || r.reportedGap >= number || r.at.next == catchingUp && r.at.cursor <= cursor {
			continue
		}
		r.log.cancelWait(r)
		r.discardSearch()
		unaffected := r.at.next == catchingUp && r.lastReturned <= cursor
		if g.fall(r, max(min(cursor, g.reached(r, delivered).cursor), r.start)); !unaffected {
			ended++
			r.lost, r.reportedGap, r.reportedLasting = ErrGap, number, max(r.reportedLasting, lasting)
		}
		if r.wake != nil {
			wakes = append(wakes, r.wake)
		}
	}
	return ended, wakes
}
