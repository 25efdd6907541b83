package blocklog

import "slices"

// An openGap is a gap whose blocks are being searched for. Readers may have received blocks after it.
type openGap struct {
	workchain int32
	after     string // the position before the gap
	until     string // the cursor of the block that shows it
	number    uint32 // the number that the gap will have; 0 if it is not certain that there is one
}

// setOpenGaps sets the open gaps: that of a search which has begun, if any, and those before unchecked blocks. Called
// by the following goroutine.
func (l *Log[B]) setOpenGaps(search ...openGap) {
	for _, u := range l.rechecks.blocks {
		search = append(search, openGap{workchain: u.workchain, after: u.after, until: u.cursor})
	}
	l.openGaps.Store(&search)
}

// skipsOpenGap reports whether a reader in the window would pass a gap without ErrGap: ResumePoint has reported the gap
// to its client during the search. The reader reads pages instead, which may have some of the missing blocks. Called
// with both locks held.
func (l *Log[B]) skipsOpenGap(r *Reader[B]) bool {
	return slices.ContainsFunc(*l.openGaps.Load(), func(o openGap) bool {
		return o.number > 0 && o.number <= r.reportedGap && r.at.cursor < o.until
	})
}

// ResumePoint returns the cursor and Mark from which a client can resume if the Reader is closed now. If no gap affects
// the client, err is nil and the cursor is that of [Reader.Cursor]. If a gap was found and not reported to the client
// yet, err is ErrGap: the client may have received blocks after the cursor, and receives all of those again. A gap
// counts as found when the search for its blocks begins. If the search finds no block, a client that resumes with the
// Mark does not receive ErrGap for that gap again.
//
// ResumePoint may be called at any time.
func (r *Reader[B]) ResumePoint() (cursor string, mark Mark, err error) {
	cursor = r.Cursor()
	open := *r.log.openGaps.Load() // read before r.lost, which is set when the search ends
	g := r.group
	g.mu.Lock()
	at, returned, start, gap, closed := r.at, r.lastReturned, r.start, r.lost == ErrGap, r.slot < 0
	reported, lasting := r.reportedGap, r.reportedLasting
	if gap && !closed {
		cursor = at.cursor // the gap may have been found since Cursor was called
	}
	g.mu.Unlock()
	if closed || gap {
		open = nil
	}
	reached, number := cursor, uint32(0)
	for _, o := range open {
		before := max(min(o.after, reached), start)
		switch {
		case before == reached:
			continue
		case at.next == catchingUp && returned <= o.after: // it may have passed the gap with blocks that do not match
		default:
			if may, err := g.mayMatch(o.workchain); err == nil && !may {
				continue
			}
			if gap = true; before < cursor {
				number = 0 // the client is not sent back for the later gap
			}
			if before <= cursor {
				number = max(number, o.number)
			}
		}
		cursor = min(cursor, before)
	}
	switch {
	case closed || !gap:
		return cursor, r.Mark(cursor), nil
	case cursor == reached:
		return cursor, r.Mark(cursor), ErrGap
	}
	if reported = max(reported, number); reported == 0 {
		return cursor, 0, ErrGap
	}
	return cursor, newMark(reported, lasting) | markHere, ErrGap
}
