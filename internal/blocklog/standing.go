package blocklog

// An openGap is one whose blocks the source is being asked for. Blocks from after it may have been handed out.
type openGap struct {
	workchain int32
	after     string // the position before the gap
	number    uint32 // that it will have among the gaps; 0 if it is not certain that there is one
}

// settle ends what openGap says when a search is over. A block that is still unchecked is open again. Called by the
// following goroutine.
func (l *Log[B]) settle() {
	l.openGap.Store(nil)
	if len(l.later.blocks) > 0 {
		u := l.later.blocks[0]
		l.openGap.Store(&openGap{workchain: u.workchain, after: u.after})
	}
}

// Standing returns where a client of the Reader can go on if the Reader is given up now, and the Mark to come back with.
// Err is nil, and the cursor that of [Reader.Cursor], unless a gap was found that the client was not told of: then err
// is ErrGap, and the client may have had blocks from after the cursor, all of which come again. A gap counts from when
// the search for its blocks begins. If the search finds nothing, a client that comes back with the Mark is not told of
// the gap again. Like Cursor, Standing may be called at any time.
func (r *Reader[B]) Standing() (cursor string, mark Mark, err error) {
	cursor = r.Cursor()
	open := r.log.openGap.Load() // before r.lost is read, which is set when the search is over
	f := r.feed
	f.mu.Lock()
	at, handed, start, gap, closed, told, known := r.at, r.handed, r.start, r.lost == ErrGap, r.slot < 0, r.told, r.known
	unharmed := open != nil && !gap && !closed && at.next == behind && handed <= open.after
	if unharmed { // it may have passed the gap with blocks that do not match
		cursor = min(cursor, max(open.after, start))
	}
	mark = r.mark(cursor)
	f.mu.Unlock()
	switch {
	case closed:
		return cursor, mark, nil
	case gap:
		return at.cursor, mark, ErrGap
	case open == nil || unharmed:
		return cursor, mark, nil
	}
	before := max(min(open.after, cursor), start)
	if before == cursor {
		return cursor, mark, nil
	}
	if may, err := f.mayMatch(open.workchain); err == nil && !may {
		return cursor, mark, nil
	}
	if told = max(told, open.number); told == 0 {
		return before, 0, ErrGap
	}
	return before, newMark(told, known) | markHere, ErrGap
}
