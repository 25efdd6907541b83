package blocklog

// breakOff ends with ErrGap, at a cursor or before, the members who are live, and those behind who have been handed
// what is past it, and counts them. number is that of the gap, and lasting its number among those that stay. Those behind
// who have only passed it read on from the cursor, and those whose client knows of the gap go on. Called with the log's
// lock held.
func (f *feed[B]) breakOff(cursor string, number, lasting uint32, delivered mark, wakes []func()) (int, []func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	told := 0
	for _, r := range f.members {
		if r.lost != nil || r.told >= number || r.at.next == behind && r.at.cursor <= cursor {
			continue
		}
		r.log.forsake(r)
		r.turned = true
		unharmed := r.at.next == behind && r.handed <= cursor
		if f.fall(r, max(min(cursor, f.reached(r, delivered).cursor), r.start)); !unharmed {
			told++
			r.lost, r.told, r.known = ErrGap, number, max(r.known, lasting)
		}
		if r.wake != nil {
			wakes = append(wakes, r.wake)
		}
	}
	return told, wakes
}
