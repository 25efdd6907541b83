package blocklog

// endAtGap ends the members with ErrGap, at the cursor before a gap or at their earlier position, and returns their
// number. It ends live members, and members that are catching up and have received a block after the cursor. Members
// that are catching up and have passed the cursor without receiving a block continue at the cursor. Members whose
// client knows of the gap are not affected.
//
// number is the gap's number, and lasting its number among the lasting gaps. Called with the log's lock held.
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
