package blocklog

import (
	"maps"
	"math/bits"
	"slices"
)

// A Place is the position of a block in its chain. SeqNo counts the blocks of one shard. Shard is a prefix of bits
// followed by a 1: 1<<63 (and 0) is the whole workchain, which splits into 1<<62 and 3<<62, and these split further.
// The two halves of a shard may merge again. After a split both halves continue the sequence numbers of the parent.
// After a merge, the parent continues the higher one of its halves.
type Place struct {
	Workchain int32
	Shard     uint64
	SeqNo     uint32
}

// shardHeads contains the newest block of each shard, by workchain. No shard overlaps another. A block's sequence
// number and the head of its shard show whether a block between them is missing.
type shardHeads map[int32][]shardHead

type shardHead struct {
	shard   uint64
	seqNo   uint32
	unknown bool // seqNo is not valid, but all blocks up to the cursor have arrived or count as lost
	cursor  string
}

// A verdict is the result of a comparison of a block's sequence number with the heads that it continues.
type verdict int

const (
	// verdictContinues: the block has the number after that of its head.
	verdictContinues verdict = iota

	// verdictFirst: a head that the block continues is unknown, so a block before it may be missing.
	verdictFirst

	// verdictMerge: the block has the number after the higher one of two halves that merged. Its number cannot show
	// whether a block of the other half is missing.
	verdictMerge

	// verdictLower: the number is lower than expected, so it cannot show a gap.
	verdictLower

	// verdictGap: at least one block before it is missing.
	verdictGap
)

// check compares a block with the heads that it continues.
func (ls shardHeads) check(p Place) verdict {
	shard := shardOf(p)
	var known, farthest int
	var expected uint64
	child := false
	for _, h := range ls[p.Workchain] {
		if h.unknown || !overlap(h.shard, shard) {
			continue
		}
		known++
		apart := depth(h.shard) - depth(shard)
		child = apart > 0
		apart = max(apart, -apart)
		farthest = max(farthest, apart)
		expected = max(expected, uint64(h.seqNo)+uint64(max(apart, 1)))
	}
	switch seqNo := uint64(p.SeqNo); {
	case known == 0:
		return verdictFirst
	case seqNo < expected:
		return verdictLower
	case farthest > 1: // each split and each merge takes a block
		return verdictGap
	case seqNo == expected && known > 1 && child:
		return verdictMerge
	case known == 1 && child: // it is a merge, and the unknown half may be the higher one
		return verdictFirst
	case seqNo == expected:
		return verdictContinues
	}
	return verdictGap
}

// set makes a block the head of its shard, whatever its verdict.
func (ls shardHeads) set(p Place, cursor string) {
	shard, heads := shardOf(p), ls[p.Workchain]
	next := shardHead{shard: shard, seqNo: p.SeqNo, cursor: cursor}
	for i, h := range heads {
		switch {
		case h.shard == shard:
			heads[i] = next
			return
		case overlap(h.shard, shard) && depth(h.shard) < depth(shard):
			h.unknown = h.unknown || ls.check(p) > verdictMerge
			heads[i] = next
			for s := shard; s != h.shard; s = parent(s) { // the other parts keep their head
				heads = append(heads, shardHead{sibling(s), h.seqNo, h.unknown, h.cursor})
			}
			ls[p.Workchain] = heads
			return
		}
	}
	heads = slices.DeleteFunc(heads, func(h shardHead) bool { return overlap(h.shard, shard) })
	ls[p.Workchain] = append(heads, next)
}

// before returns the lowest cursor of the heads that a block may continue.
func (ls shardHeads) before(p Place) (cursor string) {
	first := true
	for _, h := range ls[p.Workchain] {
		if !h.unknown && overlap(h.shard, shardOf(p)) && (first || h.cursor < cursor) {
			first, cursor = false, h.cursor
		}
	}
	return cursor
}

// reached returns the highest cursor in a block's shard, or otherwise if there is no head.
func (ls shardHeads) reached(p Place, otherwise string) string {
	for _, h := range ls[p.Workchain] {
		if overlap(h.shard, shardOf(p)) {
			otherwise = max(otherwise, h.cursor)
		}
	}
	return otherwise
}

// passed reports whether a head in a block's shard is at a cursor or after it.
func (ls shardHeads) passed(p Place, cursor string) bool {
	return slices.ContainsFunc(ls[p.Workchain], func(h shardHead) bool {
		return overlap(h.shard, shardOf(p)) && h.cursor >= cursor
	})
}

// upTo returns the heads as they were at a cursor. If a head is after the cursor, upTo keeps only that no block of its
// shard is missing up to the cursor, and exact is false. If exact is true, the result is not a copy.
func (ls shardHeads) upTo(cursor string) (known shardHeads, exact bool) {
	if ls.all(func(h shardHead) bool { return h.cursor <= cursor }) {
		return ls, true
	}
	known = ls.clone()
	for _, heads := range known {
		for i, h := range heads {
			if h.cursor > cursor {
				heads[i] = shardHead{shard: h.shard, unknown: true, cursor: cursor}
			}
		}
	}
	return known, false
}

// fill adds the heads of those shards that have no head here.
func (ls shardHeads) fill(from shardHeads) {
	for workchain, heads := range from {
		for _, h := range heads {
			p := Place{workchain, h.shard, h.seqNo}
			known := func(of shardHead) bool { return !of.unknown && overlap(of.shard, h.shard) }
			if !h.unknown && !slices.ContainsFunc(ls[workchain], known) {
				ls.set(p, h.cursor)
			}
		}
	}
}

// lower returns the heads with those of others that are lower, and reports whether there are any. A head whose sequence
// number is unknown is higher than any other. It does not change ls.
func (ls shardHeads) lower(others shardHeads) (lower shardHeads, changed bool) {
	lower = ls
	for workchain, heads := range others {
		for i, h := range heads {
			own := lower[workchain]
			if h.unknown || i < len(own) && own[i] == h {
				continue
			}
			higher := func(of shardHead) bool { return overlap(of.shard, h.shard) && (of.unknown || of.cursor > h.cursor) }
			if !slices.ContainsFunc(own, higher) {
				continue
			}
			if !changed {
				lower, changed = ls.clone(), true
			}
			rest := slices.DeleteFunc(lower[workchain], func(of shardHead) bool { return overlap(of.shard, h.shard) })
			lower[workchain] = append(rest, h)
		}
	}
	return lower, changed
}

func (ls shardHeads) all(is func(shardHead) bool) bool {
	for _, heads := range ls {
		if slices.ContainsFunc(heads, func(h shardHead) bool { return !is(h) }) {
			return false
		}
	}
	return true
}

func (ls shardHeads) clone() shardHeads {
	c := maps.Clone(ls)
	for workchain, heads := range c {
		c[workchain] = slices.Clone(heads)
	}
	return c
}

const wholeShard = 1 << 63

func shardOf(p Place) uint64 {
	if p.Shard == 0 {
		return wholeShard
	}
	return p.Shard
}

func lowestBit(shard uint64) uint64 { return shard & -shard }
func depth(shard uint64) int        { return 63 - bits.TrailingZeros64(shard) }
func sibling(shard uint64) uint64   { return shard ^ lowestBit(shard)<<1 }

// parent returns the shard that splits into a shard and its sibling. For wholeShard it returns 0, which is no shard.
func parent(shard uint64) uint64 {
	return shard - lowestBit(shard) | lowestBit(shard)<<1
}

// overlap reports whether one shard is equal to the other or contains it.
func overlap(a, b uint64) bool {
	above := -(max(lowestBit(a), lowestBit(b)) << 1)
	return (a^b)&above == 0
}
