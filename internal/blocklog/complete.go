package blocklog

import (
	"slices"
	"sort"
)

const (
	// maxEvidence is the maximum number of blocks that are looked at on either side of a page.
	maxEvidence = 128

	// maxPageSpan is the maximum number of blocks of a window between the first and the last of a page, those that
	// the page leaves out included.
	maxPageSpan = 512
)

// Complete reports whether the blocks of a window prove that none is missing between two cursors, both exclusive: none
// of a workchain or, if that is nil, none of all workchains that the Log has seen. Sequence numbers prove it if every
// shard of the workchain has a block at the first cursor or before it and one at the second cursor or after it, and no
// number is skipped from the one to the other. A merge is no proof: only the higher of two numbers shows in the merged
// shard.
func (l *Log[B]) Complete(w Window[B], workchain *int32, after, before string) bool {
	if l.src.Place == nil || after < w.After {
		return false
	}
	place := func(cursor string) int {
		return sort.Search(len(w.Blocks), func(i int) bool { return l.src.Cursor(w.Blocks[i]) >= cursor })
	}
	first, next := place(after), place(before)
	if next-first > maxPageSpan {
		return false
	}
	heads, entered := make(lines), false
	for _, b := range w.Blocks[max(0, first-maxEvidence):min(len(w.Blocks), next+maxEvidence)] {
		at, cursor := l.src.Place(b), l.src.Cursor(b)
		if workchain != nil && at.Workchain != *workchain {
			continue
		}
		if cursor > after {
			if !entered && !(heads.whole() && (workchain != nil || len(heads) == len(*l.workchains.Load()))) {
				return false
			}
			entered = true
			if cursor >= before && heads.continued(before) {
				return true
			}
			if heads.judge(at) != fits {
				return false
			}
		}
		heads.take(at, cursor)
	}
	return entered && heads.continued(before)
}

// whole reports whether there is a head of every shard of each workchain, and at least one workchain.
func (ls lines) whole() bool {
	for _, leaves := range ls {
		covered := uint64(0)
		for _, f := range leaves {
			if f.unknown {
				return false
			}
			covered += lowest(f.shard) // a whole workchain has 1<<63, each half of it 1<<62
		}
		if covered != whole {
			return false
		}
	}
	return len(ls) > 0
}

// continued reports whether each shard has a block at a cursor or after it.
func (ls lines) continued(cursor string) bool {
	for _, leaves := range ls {
		for _, f := range leaves {
			if f.cursor < cursor {
				return false
			}
		}
	}
	return true
}

// know notes that there is a workchain.
func (l *Log[B]) know(workchain int32) {
	if known := *l.workchains.Load(); !slices.Contains(known, workchain) {
		known = append(slices.Clone(known), workchain)
		l.workchains.Store(&known)
	}
}
