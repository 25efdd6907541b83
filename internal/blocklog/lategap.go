package blocklog

import (
	"cmp"
	"slices"

	"github.com/chaingql/chaingql/internal/guard"
)

// A lateGap records a gap that was discovered after later blocks had been delivered. A client that resumes with a
// cursor after before, up to until, may have received those blocks without the missing ones.
type lateGap[B any] struct {
	number    uint32 // counts the gaps, in the order of their discovery
	workchain int32
	missing   []entry[B] // the blocks that were found; empty if the source lacks them, or they are too many
	before    string     // the position before the gap
	until     string     // the highest cursor that any client had seen at the discovery
	count     int        // number of gaps that it stands for; if more than one, any block may be missing
}

const (
	// maxLateGaps is the maximum number of late gaps that are kept. Beyond it, neighbors are merged: a client may then
	// end because of a gap that does not affect it, but no client misses a gap.
	maxLateGaps = 64

	// maxMissing is the maximum number of blocks in a lateGap, each of which costs an Eval when a client resumes. If
	// there are more, any block of the workchain counts as missing.
	maxMissing = 32
)

// addLateGap records and numbers a gap. Called with mu held, after the readers that it affects have ended.
func (l *Log[B]) addLateGap(d lateGap[B]) {
	d.number, d.count = l.gaps.Add(1), 1
	if d.until <= d.before || len(d.missing) > 0 && d.until < d.missing[0].cursor {
		return // no client has received a block after the gap
	}
	if len(d.missing) > maxMissing {
		d.missing = nil
	}
	var gaps []lateGap[B]
	if known := l.lateGaps.Load(); known != nil {
		gaps = slices.Clone(*known)
	}
	i, _ := slices.BinarySearchFunc(gaps, d, func(a, b lateGap[B]) int { return cmp.Compare(a.before, b.before) })
	gaps = slices.Insert(gaps, i, d)
	if len(gaps) > maxLateGaps {
		gaps = mergeNeighbors(gaps)
	}
	l.lateGaps.Store(&gaps)
}

// mergeNeighbors merges two neighbors in the older half: the first two that stand for the fewest gaps.
func mergeNeighbors[B any](gaps []lateGap[B]) []lateGap[B] {
	best := 0
	for i := range len(gaps) / 2 {
		if gaps[i].count+gaps[i+1].count < gaps[best].count+gaps[best+1].count {
			best = i
		}
	}
	a, b := gaps[best], gaps[best+1]
	gaps[best] = lateGap[B]{
		number: max(a.number, b.number),
		before: a.before, // the list ascends by it
		until:  max(a.until, b.until),
		count:  a.count + b.count,
	}
	return slices.Delete(gaps, best+1, best+2)
}

// affects reports whether a reader with the cursor i.After may lack a block of the gap.
func (d *lateGap[B]) affects(i *Interest[B]) (may bool) {
	if *i.After <= d.before || *i.After > d.until || d.number <= i.Mark.gaps() {
		return false
	}
	err := guard.Run(func() {
		may = d.count > 1 || len(d.missing) == 0 && (i.Concerns == nil || i.Concerns(d.workchain))
		for _, e := range d.missing {
			may = may || e.cursor < *i.After && i.Eval(e.block) != nil
		}
	})
	return may && err == nil // an Eval that panics does so again when the reader reads blocks
}

// firstLateGap returns the position before the earliest gap that affects i.
func firstLateGap[B any](gaps *[]lateGap[B], i *Interest[B]) (before string, yes bool) {
	if gaps == nil || i.After == nil {
		return "", false
	}
	for _, d := range *gaps { // they ascend by before
		if d.affects(i) {
			return d.before, true
		}
	}
	return "", false
}
