package blocklog

import (
	"cmp"
	"slices"

	"github.com/chaingql/chaingql/internal/guard"
)

// A lateGap records a gap that was discovered after later blocks had been delivered. A client that resumes with a
// cursor in (before, until] may have received those blocks without the missing ones.
type lateGap[B any] struct {
	number    uint32 // number of the gap in the order of discovery
	workchain int32
	missing   []entry[B] // the missing blocks; empty if the source lacks them or there are more than maxMissing
	before    string     // the position before the gap
	until     string     // the highest cursor that any client had seen when the gap was discovered
	count     int        // number of gaps that were merged into it; if more than one, any block may be missing
}

const (
	// maxLateGaps is the maximum number of late gaps in memory. If there are more, neighbors are merged. Then a reader
	// may end because of a gap that does not affect its client, but every gap is still reported to affected clients.
	maxLateGaps = 64

	// maxMissing is the maximum number of blocks in a lateGap. When a client resumes, Eval is called for each of them.
	// If more blocks are missing, any block of the workchain counts as missing.
	maxMissing = 32
)

// addLateGap numbers a gap and records it. The caller must hold l.mu, and must have ended the readers that the gap
// affects.
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

// mergeNeighbors merges two neighbors in the first half of gaps. It chooses the pair that stands for the fewest gaps,
// and the first such pair if there are several.
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
		before: a.before, // gaps is sorted by before
		until:  max(a.until, b.until),
		count:  a.count + b.count,
	}
	return slices.Delete(gaps, best+1, best+2)
}

// affects reports whether a reader with the cursor i.After may lack a block of the gap.
func (d *lateGap[B]) affects(i *Interest[B]) (may bool) {
	if *i.After <= d.before || *i.After > d.until || d.number <= i.Reported.newest() {
		return false
	}
	err := guard.Run(func() {
		may = d.count > 1 || len(d.missing) == 0 && (i.Concerns == nil || i.Concerns(d.workchain))
		for _, e := range d.missing {
			may = may || e.cursor < *i.After && i.Eval(e.block) != nil
		}
	})
	return may && err == nil // an Eval that panics now panics again when the reader reads the blocks
}

// firstLateGap returns the position before the earliest gap that affects a reader with interest i, if there is one.
func firstLateGap[B any](gaps *[]lateGap[B], i *Interest[B]) (before string, ok bool) {
	if gaps == nil || i.After == nil {
		return "", false
	}
	for _, d := range *gaps { // sorted by before
		if d.affects(i) {
			return d.before, true
		}
	}
	return "", false
}
