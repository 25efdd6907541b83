package blocklog

import (
	"maps"
	"math/bits"
	"slices"
)

// A Place is the position of a block in its workchain: its shard and its number.
type Place struct {
	// Workchain is the number of the workchain.
	Workchain int32

	// Shard identifies a shard of the workchain by a prefix of bits that is followed by a 1. 1<<63 is the whole
	// workchain, and 0 has the same meaning. The whole workchain splits into 1<<62 and 3<<62, which may split further.
	// The two halves of a shard may merge again.
	Shard uint64

	// SeqNo is the sequence number of the block in its shard. After a split, both halves continue the sequence numbers
	// of the parent. After a merge, the parent continues the higher sequence number of the two halves.
	SeqNo uint32
}

// shardHeads contains the newest block of each shard, by workchain. The shards do not overlap. The sequence number of a
// new block and the head of its shard show whether a block between them is missing.
type shardHeads map[int32][]shardHead

type shardHead struct {
	shard   uint64
	seqNo   uint32
	unknown bool // seqNo is not valid, but all blocks up to the cursor have arrived or count as lost
	cursor  string
}

// A verdict is the result of comparing a block's sequence number with the heads that the block continues.
type verdict int

const (
	// verdictContinues means that the block's number directly follows that of the newest known block of its shard.
	verdictContinues verdict = iota

	// verdictFirst means that the block before this block is not known, so it may be missing.
	verdictFirst

	// verdictMerge means that the block follows a merge and has the number after the higher one of the two halves. This
	// number cannot show whether a block of the other half is missing.
	verdictMerge

	// verdictLower means that the number is lower than expected, so it cannot show a gap.
	verdictLower

	// verdictGap means that at least one block before this block is missing.
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
	case farthest > 1: // there must be a block between two splits or merges
		return verdictGap
	case seqNo == expected && known > 1 && child:
		return verdictMerge
	case known == 1 && child: // the block follows a merge, and the unknown half may have the higher number
		return verdictFirst
	case seqNo == expected:
		return verdictContinues
	}
	return verdictGap
}

// set makes a block the head of its shard, even if its number does not continue the shard.
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
			for s := shard; s != h.shard; s = parent(s) { // the other parts of the shard keep its head
				heads = append(heads, shardHead{sibling(s), h.seqNo, h.unknown, h.cursor})
			}
			ls[p.Workchain] = heads
			return
		}
	}
	heads = slices.DeleteFunc(heads, func(h shardHead) bool { return overlap(h.shard, shard) })
	ls[p.Workchain] = append(heads, next)
}

// before returns the position before the blocks that may be missing before a block: the lowest cursor of the heads in
// its shard. If a part of the shard has no head, before returns at most since, the cursor after which every shard with
// a block has a head.
func (ls shardHeads) before(p Place, since string) string {
	shard, lowest := shardOf(p), ""
	uncovered := lowestBit(shard) // half the size of the part without a head
	for _, h := range ls[p.Workchain] {
		if overlap(h.shard, shard) {
			if uncovered -= min(uncovered, lowestBit(h.shard)); lowest == "" || h.cursor < lowest {
				lowest = h.cursor
			}
		}
	}
	if uncovered > 0 && (lowest == "" || since < lowest) {
		return since
	}
	return lowest
}

// reached returns the highest cursor of the heads in a block's shard, but at least the given cursor.
func (ls shardHeads) reached(p Place, cursor string) string {
	for _, h := range ls[p.Workchain] {
		if overlap(h.shard, shardOf(p)) {
			cursor = max(cursor, h.cursor)
		}
	}
	return cursor
}

// passed reports whether a head in a block's shard is at a cursor or after it.
func (ls shardHeads) passed(p Place, cursor string) bool {
	return slices.ContainsFunc(ls[p.Workchain], func(h shardHead) bool {
		return overlap(h.shard, shardOf(p)) && h.cursor >= cursor
	})
}

// upTo returns the heads as they were at a cursor. If a head is after the cursor, the sequence number at the cursor is
// not known. Then the result records only that no block of that shard is missing up to the cursor, and exact is false.
// If exact is true, the result is ls itself and not a copy.
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

// fill adds to ls the known heads of others, for shards that have no known head in ls.
func (ls shardHeads) fill(others shardHeads) {
	for workchain, heads := range others {
		for _, h := range heads {
			p := Place{workchain, h.shard, h.seqNo}
			known := func(of shardHead) bool { return !of.unknown && overlap(of.shard, h.shard) }
			if !h.unknown && !slices.ContainsFunc(ls[workchain], known) {
				ls.set(p, h.cursor)
			}
		}
	}
}

// lower returns a copy of ls in which heads are replaced with lower heads of the same shards in others. changed reports
// whether any head was replaced; if none was, lower returns ls itself. A head with an unknown sequence number counts
// as higher than any other head.
func (ls shardHeads) lower(others shardHeads) (lower shardHeads, changed bool) {
	lower = ls
	for workchain, heads := range others {
		for i, h := range heads {
			own := lower[workchain]
			if h.unknown || i < len(own) && own[i] == h {
				continue
			}
			higher := func(of shardHead) bool {
				return overlap(of.shard, h.shard) && (of.unknown || of.cursor > h.cursor)
			}
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

// parent returns the shard that splits into the given shard and its sibling. For wholeShard, which has no parent, it
// returns 0.
func parent(shard uint64) uint64 {
	return shard - lowestBit(shard) | lowestBit(shard)<<1
}

// overlap reports whether one shard is equal to the other or contains it.
func overlap(a, b uint64) bool {
	above := -(max(lowestBit(a), lowestBit(b)) << 1)
	return (a^b)&above == 0
}
