package blocklog

import "slices"

// An openGap is a gap whose missing blocks are still being searched for. Readers may have received blocks after it.
type openGap struct {
	workchain int32
	after     string // the position before the gap
	until     string // the cursor of the block that shows the gap
	number    uint32 // the number that the gap will have; 0 if it is not certain that a block is missing
}

// setOpenGaps replaces the open gaps with the gap of the current search, if it is given, and the possible gaps before
// unchecked blocks. Only run's goroutine may call it.
func (l *Log[B]) setOpenGaps(search ...openGap) {
	for _, u := range l.rechecks.blocks {
		search = append(search, openGap{workchain: u.workchain, after: u.after, until: u.cursor})
	}
	l.openGaps.Store(&search)
}

// skipsOpenGap reports whether a reader that continued in the window would pass an open gap without ErrGap, because
// ResumePoint has already reported the gap to its client. Such a reader reads pages instead, which may contain some of
// the missing blocks. The caller must hold the locks of the log and of the reader's group.
func (l *Log[B]) skipsOpenGap(r *Reader[B]) bool {
	return slices.ContainsFunc(*l.openGaps.Load(), func(o openGap) bool {
		return o.number > 0 && o.number <= r.reportedGap && r.at.cursor < o.until
	})
}

// ResumePoint returns the cursor, and the gaps reported so far, with which a client can resume if the Reader is closed
// now. If no gap affects the client, err is nil and the cursor is that of [Reader.Cursor].
//
// If a gap was found that was not reported to the client yet, err is ErrGap and the cursor is before the gap. The
// client may have received blocks after the cursor, and receives all of them again. A gap counts as found when the
// search for its missing blocks begins. If that search finds none of them, a client that resumes with the returned gaps
// does not receive ErrGap for the gap again.
func (r *Reader[B]) ResumePoint() (cursor string, gaps ReportedGaps, err error) {
	l, g := r.group.log, r.group
	l.mu.Lock() // held while a gap ends readers and is removed from openGaps
	g.mu.Lock()
	cursor = g.reached(r, l.delivered).cursor
	gaps = r.reportedGaps(cursor)
	at, returned, start, gap, closed := r.at, r.lastReturned, r.start, r.lost == ErrGap, r.slot < 0
	reported, permanent := r.reportedGap, r.reportedPermanent
	open := *l.openGaps.Load()
	g.mu.Unlock()
	l.mu.Unlock()
	if closed || gap {
		open = nil
	}
	reached, number := cursor, uint32(0)
	for _, o := range open {
		before := max(min(o.after, reached), start)
		switch {
		case before == reached, start >= o.until: // the reader has received no block after the gap, or started after it
			continue
		case at.next == catchingUp && returned <= o.after: // the reader has returned no block after the gap
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
		return cursor, gaps, nil
	case cursor == reached:
		return cursor, gaps, ErrGap
	}
	if reported = max(reported, number); reported == 0 {
		return cursor, 0, ErrGap
	}
	return cursor, newReportedGaps(reported, permanent) | sentBackHere, ErrGap
}
