package blocklog

import (
	"slices"
	"sort"
)

const (
	// maxEvidence is the maximum number of blocks before and after a page that are examined.
	maxEvidence = 128

	// maxPageSpan is the maximum number of blocks of a window from the first to the last of a page, including those
	// that the page leaves out.
	maxPageSpan = 512
)

// Complete reports whether the blocks of a window prove that no block is missing between two cursors, both exclusive:
// no block of the workchain, or of all workchains that the Log has seen if workchain is nil.
//
// Sequence numbers prove it if every shard of the workchain has a block at the first cursor or before it, one at the
// second cursor or after it, and no number is skipped between them. If shards merge between the cursors, Complete
// returns false: the merged shard continues only the higher of two numbers.
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

// complete reports whether each workchain has a head for every shard, and there is at least one workchain.
func (ls shardHeads) complete() bool {
	for _, heads := range ls {
		covered := uint64(0)
		for _, h := range heads {
			if h.unknown {
				return false
			}
			covered += lowestBit(h.shard) // a whole workchain has 1<<63, each half of it 1<<62
		}
		if covered != wholeShard {
			return false
		}
	}
	return len(ls) > 0
}

// continued reports whether each shard has a block at a cursor or after it.
func (ls shardHeads) continued(cursor string) bool {
	return ls.all(func(h shardHead) bool { return h.cursor >= cursor })
}

// addWorkchain adds a workchain to those that the Log has seen.
func (l *Log[B]) addWorkchain(workchain int32) {
	if known := *l.workchains.Load(); !slices.Contains(known, workchain) {
		known = append(slices.Clone(known), workchain)
		l.workchains.Store(&known)
	}
}
