package blocklog

import (
	"maps"
	"math/bits"
	"slices"
)

// Place is where a block stands in its chain. SeqNo counts the blocks of one shard. Shard is a prefix of bits with a
// 1 behind it: 1<<63 is the whole workchain (and so is 0), which splits into 1<<62 and 3<<62, and these further; two
// that have split may merge again. The first blocks of a shard go on counting from that of the one it split from, or
// from the higher of the two it was merged from.
type Place struct {
	Workchain int32
	Shard     uint64
	SeqNo     uint32
}

// lines are the newest blocks of each workchain's shards as they are now: none overlaps another. A block continues a
// line, and shows by its number whether one before it is missing.
type lines map[int32][]leaf

type leaf struct {
	shard   uint64
	seqNo   uint32
	unknown bool // seqNo is not that of the shard, but all its blocks up to the cursor have come or were given up
	cursor  string
}

type verdict int

const (
	fits  verdict = iota
	first         // what it continues is not known, or one half of that: a block before it may be missing
	merge         // fits behind the higher of two that merged; one that is missing of the other does not show
	lower         // its seq_no was there before, so nothing can be said to be missing
	hole          // at least one block before it is missing
)

// judge tells what a block is to the lines.
func (ls lines) judge(p Place) verdict {
	shard := shardOf(p)
	var known, farthest int
	var expected uint64
	child := false
	for _, f := range ls[p.Workchain] {
		if f.unknown || !overlap(f.shard, shard) {
			continue
		}
		known++
		apart := depth(f.shard) - depth(shard)
		child = apart > 0
		apart = max(apart, -apart)
		farthest = max(farthest, apart)
		expected = max(expected, uint64(f.seqNo)+uint64(max(apart, 1)))
	}
	switch seqNo := uint64(p.SeqNo); {
	case known == 0:
		return first
	case seqNo < expected:
		return lower
	case farthest > 1: // each split and merge is a block
		return hole
	case seqNo == expected && known > 1 && child:
		return merge
	case known == 1 && child: // of two that merged, the one not known may be the higher
		return first
	case seqNo == expected:
		return fits
	}
	return hole
}

// take makes a block, whatever it was judged to be, the newest of its shard.
func (ls lines) take(p Place, cursor string) {
	shard, leaves := shardOf(p), ls[p.Workchain]
	next := leaf{shard: shard, seqNo: p.SeqNo, cursor: cursor}
	for i, f := range leaves {
		switch {
		case f.shard == shard:
			leaves[i] = next
			return
		case overlap(f.shard, shard) && depth(f.shard) < depth(shard):
			f.unknown = f.unknown || ls.judge(p) > merge
			leaves[i] = next
			for s := shard; s != f.shard; s = parent(s) { // the rest is where it was
				leaves = append(leaves, leaf{sibling(s), f.seqNo, f.unknown, f.cursor})
			}
			ls[p.Workchain] = leaves
			return
		}
	}
	leaves = slices.DeleteFunc(leaves, func(f leaf) bool { return overlap(f.shard, shard) })
	ls[p.Workchain] = append(leaves, next)
}

// before returns the lowest cursor among the blocks that a block may continue.
func (ls lines) before(p Place) (cursor string) {
	first := true
	for _, f := range ls[p.Workchain] {
		if !f.unknown && overlap(f.shard, shardOf(p)) && (first || f.cursor < cursor) {
			first, cursor = false, f.cursor
		}
	}
	return cursor
}

// reached returns the highest cursor in a block's shard, if there is none the other one.
func (ls lines) reached(p Place, otherwise string) string {
	for _, f := range ls[p.Workchain] {
		if overlap(f.shard, shardOf(p)) {
			otherwise = max(otherwise, f.cursor)
		}
	}
	return otherwise
}

// passed tells whether the lines have come past a cursor anywhere in a block's shard.
func (ls lines) passed(p Place, cursor string) bool {
	return slices.ContainsFunc(ls[p.Workchain], func(f leaf) bool {
		return overlap(f.shard, shardOf(p)) && f.cursor >= cursor
	})
}

func (ls lines) clone() lines {
	c := maps.Clone(ls)
	for workchain, leaves := range c {
		c[workchain] = slices.Clone(leaves)
	}
	return c
}

const whole = 1 << 63

func shardOf(p Place) uint64 {
	if p.Shard == 0 {
		return whole
	}
	return p.Shard
}

func lowest(shard uint64) uint64  { return shard & -shard }
func depth(shard uint64) int      { return 63 - bits.TrailingZeros64(shard) }
func sibling(shard uint64) uint64 { return shard ^ lowest(shard)<<1 }

// parent of the whole is 0, which is no shard.
func parent(shard uint64) uint64 {
	return shard - lowest(shard) | lowest(shard)<<1
}

// overlap tells whether one shard is the other or was a part of it.
func overlap(a, b uint64) bool {
	above := -(max(lowest(a), lowest(b)) << 1)
	return (a^b)&above == 0
}
