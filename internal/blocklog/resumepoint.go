package blocklog

// An openGap is a gap whose blocks are being searched for. Readers may have received blocks after it.
type openGap struct {
	workchain int32
	after     string // the position before the gap
	number    uint32 // the number that the gap will have; 0 if it is not certain that there is one
}

// clearOpenGap clears openGap when a search has ended. If a block is still unchecked, its gap becomes the open one.
// Called by the following goroutine.
func (l *Log[B]) clearOpenGap() {
	l.openGap.Store(nil)
	if len(l.rechecks.blocks) > 0 {
		u := l.rechecks.blocks[0]
		l.openGap.Store(&openGap{workchain: u.workchain, after: u.after})
	}
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
	open := r.log.openGap.Load() // read before r.lost, which is set when the search ends
	g := r.group
	g.mu.Lock()
	at, returned, start, gap, closed := r.at, r.lastReturned, r.start, r.lost == ErrGap, r.slot < 0
	reported, lasting := r.reportedGap, r.reportedLasting
	unaffected := open != nil && !gap && !closed && at.next == catchingUp && returned <= open.after
	if unaffected { // it may have passed the gap with blocks that do not match
		cursor = min(cursor, max(open.after, start))
	}
	if gap && !closed {
		cursor = at.cursor // the gap may have been found since Cursor was called
	}
	mark = r.mark(cursor)
	g.mu.Unlock()
	switch {
	case closed:
		return cursor, mark, nil
	case gap:
		return cursor, mark, ErrGap
	case open == nil || unaffected:
		return cursor, mark, nil
	}
	before := max(min(open.after, cursor), start)
	if before == cursor {
		return cursor, mark, nil
	}
	if may, err := g.mayMatch(open.workchain); err == nil && !may {
		return cursor, mark, nil
	}
	if reported = max(reported, open.number); reported == 0 {
		return before, 0, ErrGap
	}
	return before, newMark(reported, lasting) | markHere, ErrGap
}
