package blocklog

// A doubt remembers a hole that showed late: what went out from behind it until then went out without the missing
// blocks. Whoever comes with a cursor from there may have been a reader, and left before it could be told.
type doubt[B any] struct {
	workchain int32
	missing   []entry[B] // those that turned up; none where the source does not have them
	before    string     // the position before the hole
	until     string     // the highest cursor that anybody had been shown
}

// maxDoubts bounds how many are remembered, the newest first.
const maxDoubts = 64

// remember notes a hole. Called with mu held.
func (l *Log[B]) remember(d doubt[B]) {
	if d.until <= d.before || len(d.missing) > 0 && d.until < d.missing[0].cursor {
		return // nobody has had anything from behind it
	}
	kept := []doubt[B]{d}
	if known := l.doubts.Load(); known != nil {
		kept = append(kept, (*known)[:min(len(*known), maxDoubts-1)]...)
	}
	l.doubts.Store(&kept)
}

// lacks tells whether a block may be missing from what somebody who comes with a cursor has had.
func (d *doubt[B]) lacks(i *Interest[B]) (may bool) {
	if *i.After <= d.before || *i.After > d.until {
		return false
	}
	err := guard(func() {
		may = len(d.missing) == 0 && (i.Concerns == nil || i.Concerns(d.workchain))
		for _, e := range d.missing {
			may = may || e.cursor < *i.After && i.Eval(e.block) != nil
		}
	})
	return may && err == nil // a panic is met again where blocks are read
}

// doubted returns the position before the first hole from which a block may be missing.
func doubted[B any](doubts *[]doubt[B], i *Interest[B]) (before string, yes bool) {
	if doubts == nil || i.After == nil {
		return "", false
	}
	for _, d := range *doubts {
		if d.lacks(i) && (!yes || d.before < before) {
			before, yes = d.before, true
		}
	}
	return before, yes
}
