package blocklog

import (
	"cmp"
	"slices"
)

// A doubt remembers a hole that showed late: what went out from behind it until then went out without the missing
// blocks. Whoever comes with a cursor from there may have been a reader, and left before it could be told.
type doubt[B any] struct {
	number    uint32 // counts the holes, in the order in which they showed
	workchain int32
	missing   []entry[B] // those that turned up; none where the source does not have them, or they are too many
	before    string     // the position before the hole
	until     string     // the highest cursor that anybody had been shown
	holes     int        // how many it stands for; of more than one, any block may be missing
}

const (
	// maxDoubts is the maximum number of doubts that are remembered. Beyond it, neighbors are merged: a client may
	// then be told of a hole that does not concern it, but never miss one.
	maxDoubts = 64

	// maxMissing is the maximum number of blocks in a doubt, each of which costs an eval when a client comes back. If
	// there are more, any block of the workchain counts as missing.
	maxMissing = 32
)

// remember notes a hole and numbers it. Called with mu held, after the readers whom it concerns have been ended.
func (l *Log[B]) remember(d doubt[B]) {
	d.number, d.holes = l.gaps.Add(1), 1
	if d.until <= d.before || len(d.missing) > 0 && d.until < d.missing[0].cursor {
		return // nobody has had anything from behind it
	}
	if len(d.missing) > maxMissing {
		d.missing = nil
	}
	var doubts []doubt[B]
	if known := l.doubts.Load(); known != nil {
		doubts = slices.Clone(*known)
	}
	i, _ := slices.BinarySearchFunc(doubts, d, func(a, b doubt[B]) int { return cmp.Compare(a.before, b.before) })
	doubts = slices.Insert(doubts, i, d)
	if len(doubts) > maxDoubts {
		doubts = mergeNeighbors(doubts)
	}
	l.doubts.Store(&doubts)
}

// mergeNeighbors makes one of two neighbors in the older half, the first that stand for the fewest holes.
func mergeNeighbors[B any](doubts []doubt[B]) []doubt[B] {
	best := 0
	for i := range len(doubts) / 2 {
		if doubts[i].holes+doubts[i+1].holes < doubts[best].holes+doubts[best+1].holes {
			best = i
		}
	}
	a, b := doubts[best], doubts[best+1]
	doubts[best] = doubt[B]{
		number: max(a.number, b.number),
		before: a.before, // the list ascends by it
		until:  max(a.until, b.until),
		holes:  a.holes + b.holes,
	}
	return slices.Delete(doubts, best+1, best+2)
}

// lacks tells whether a block may be missing from what somebody who comes with a cursor has had.
func (d *doubt[B]) lacks(i *Interest[B]) (may bool) {
	if *i.After <= d.before || *i.After > d.until || d.number <= i.Mark.gaps() {
		return false
	}
	err := guard(func() {
		may = d.holes > 1 || len(d.missing) == 0 && (i.Concerns == nil || i.Concerns(d.workchain))
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
	for _, d := range *doubts { // they ascend by before
		if d.lacks(i) {
			return d.before, true
		}
	}
	return "", false
}
