package blocklog

import (
	"slices"
	"sort"
)

const (
	// maxEvidence is the maximum number of blocks that Complete examines on each side of a page.
	maxEvidence = 128

	// maxPageSpan is the maximum number of blocks in the window between the two cursors, including blocks that a page
	// with these bounds omits because of its filter.
	maxPageSpan = 512
)

// Complete reports whether the blocks of w prove that no block is missing between the cursors after and before, both
// exclusive. If workchain is not nil, only blocks in that workchain count; otherwise, blocks in all workchains that the
// Log has seen count.
//
// The proof uses sequence numbers. Every shard of the workchain must have a block at the first cursor or before it, and
// a block at the second cursor or after it, and no number may be skipped between them. If shards merge between the
// cursors, Complete returns false, because the merged shard continues only the higher of two numbers.
func (l *Log[B]) Complete(w Window[B], workchain *int32, after, before string) bool {
	if l.src.Place == nil || after < w.After {
		return false
	}
	place := func(cursor string) int {
		return sort.Search(len(w.Blocks), func(i int) bool { return l.src.Cursor(w.Blocks[i]) >= cursor })
	}
	first, next := place(after), place(before)
	if next < first || next-first > maxPageSpan {
		return false
	}
	heads, entered := make(shardHeads), false
	for _, b := range w.Blocks[max(0, first-maxEvidence):min(len(w.Blocks), next+maxEvidence)] {
		at, cursor := l.src.Place(b), l.src.Cursor(b)
		if workchain != nil && at.Workchain != *workchain {
			continue
		}
		if cursor > after {
			if !entered && !(heads.complete() && (workchain != nil || len(heads) == len(*l.workchains.Load()))) {
				return false
			}
			entered = true
			if cursor >= before && heads.continued(before) {
				return true
			}
			if heads.check(at) != verdictContinues {
				return false
			}
		}
		heads.set(at, cursor)
	}
	return entered && heads.continued(before)
}

// complete reports whether ls has at least one workchain, and knows the newest block of every shard in each of them.
func (ls shardHeads) complete() bool {
	for _, heads := range ls {
		covered := uint64(0)
		for _, h := range heads {
			if h.unknown {
				return false
			}
			covered += lowestBit(h.shard) // 1<<63 for a whole workchain, 1<<62 for each half of it
		}
		if covered != wholeShard {
			return false
		}
	}
	return len(ls) > 0
}

// continued reports whether the newest block of every shard is at the cursor or after it.
func (ls shardHeads) continued(cursor string) bool {
	return ls.all(func(h shardHead) bool { return h.cursor >= cursor })
}

// addWorkchain records that the Log has seen a block of the workchain.
func (l *Log[B]) addWorkchain(workchain int32) {
	if known := *l.workchains.Load(); !slices.Contains(known, workchain) {
		known = append(slices.Clone(known), workchain)
		l.workchains.Store(&known)
	}
}
