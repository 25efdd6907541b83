package tonlite

import (
	"errors"
	"fmt"
	"math/bits"
	"time"

	"github.com/chaingql/chaingql/tonlite/internal/lite"
	"github.com/xssnick/tonutils-go/tvm/cell"
)

const (
	masterchain = -1
	wholeShard  = 1 << 63
)

// A header is what a block says of itself, and of those that it goes on from:
// one, or two where shards were merged.
type header struct {
	time time.Time
	prev []lite.BlockID
	key  bool
	// Of the masterchain alone: the newest key block before it, and whose
	// signatures it needs.
	prevKey, set, session uint32
}

var errOther = errors.New("it is another block than the one asked for")

// parseHeader reads the header of the block with an id, whose hash is known to
// be right. errPruned says that a proof leaves the predecessors out.
func parseHeader(root *cell.Cell, id lite.BlockID) (h header, err error) {
	s, err := open(root)
	if err != nil {
		return h, err
	}
	top := scan{Slice: s}
	top.expect(32, 0x11ef55aa, "block")
	if top.err != nil {
		return h, top.err
	}
	info, err := root.PeekRef(0)
	if err != nil {
		return h, err
	}
	if s, err = open(info); err != nil {
		return h, err
	}
	in := scan{Slice: s}
	in.expect(32, 0x9bc7a987, "block header")
	in.number(32) // version
	notMaster, merged, _, split := in.flag(), in.flag(), in.flag(), in.flag()
	in.number(2) // wants to split, to merge
	h.key = in.flag()
	in.number(1 + 8) // vertical, flags
	seqNo := uint32(in.number(32))
	in.number(32) // vertical
	in.expect(2, 0, "shard")
	prefix, workchain := in.number(6), int32(in.number(32))
	shard := in.number(64)
	if prefix > 60 {
		return h, errors.New("a shard's prefix is too long")
	}
	shard |= 1 << (63 - prefix)
	h.time = time.Unix(int64(in.number(32)), 0).UTC()
	in.number(64) // start_lt
	in.number(64) // end_lt
	h.set, h.session = uint32(in.number(32)), uint32(in.number(32))
	in.number(32) // min_ref_mc_seqno
	h.prevKey = uint32(in.number(32))
	if in.err != nil {
		return h, in.err
	}
	if workchain != id.Workchain || shard != id.Shard || seqNo != id.SeqNo || notMaster != (workchain != masterchain) {
		return h, fmt.Errorf("%w: (%d,%016x,%d) for %v", errOther, workchain, shard, seqNo, id)
	}
	at := 0
	if notMaster {
		at = 1 // behind the reference to the masterchain
	}
	prev, err := info.PeekRef(at)
	if err != nil {
		return h, err
	}
	h.prev, err = parsePrevious(prev, id, split, merged)
	return h, err
}

// parsePrevious reads the blocks that one goes on from. Where its shard was
// split off or merged they are of other shards than its own.
func parsePrevious(c *cell.Cell, id lite.BlockID, split, merged bool) ([]lite.BlockID, error) {
	own := id.Shard & -id.Shard // ends the shard's prefix
	if !merged {
		shard := id.Shard
		if split {
			shard = id.Shard&^own | own<<1
		}
		b, err := parseReference(c, id.Workchain, shard)
		return []lite.BlockID{b}, err
	}
	if own == 1 || split {
		return nil, errors.New("a shard was merged that cannot be")
	}
	if _, err := open(c); err != nil {
		return nil, err
	}
	var prev []lite.BlockID
	for i, shard := range []uint64{id.Shard - own/2, id.Shard + own/2} {
		r, err := c.PeekRef(i)
		if err != nil {
			return nil, err
		}
		b, err := parseReference(r, id.Workchain, shard)
		if err != nil {
			return nil, err
		}
		prev = append(prev, b)
	}
	return prev, nil
}

func parseReference(c *cell.Cell, workchain int32, shard uint64) (id lite.BlockID, err error) {
	s, err := open(c)
	if err != nil {
		return id, err
	}
	in := scan{Slice: s}
	in.number(64) // end_lt
	id = lite.BlockID{Workchain: workchain, Shard: shard, SeqNo: uint32(in.number(32)), Root: in.hash(), File: in.hash()}
	if in.err == nil && bits.OnesCount64(shard) == 0 {
		in.err = errors.New("a shard has no parent")
	}
	return id, in.err
}

// parseShards reads the newest block of each shard, as a masterchain block
// commits to them.
func parseShards(root *cell.Cell) (tops []lite.BlockID, err error) {
	extra, err := root.PeekRef(3)
	if err != nil {
		return nil, err
	}
	s, err := open(extra)
	if err != nil {
		return nil, err
	}
	in := scan{Slice: s}
	in.expect(32, 0x4a33f6fd, "block extra")
	in.hash() // random seed
	in.hash() // creator
	if !in.flag() {
		return nil, errors.New("a masterchain block has nothing of the masterchain")
	}
	custom, err := extra.PeekRef(3)
	if err != nil {
		return nil, err
	}
	if s, err = open(custom); err != nil {
		return nil, err
	}
	in = scan{Slice: s}
	in.expect(16, 0xcca5, "masterchain extra")
	in.number(1) // key block
	if in.err != nil {
		return nil, in.err
	}
	if some, err := s.LoadBoolBit(); err != nil || !some {
		return nil, err
	}
	workchains, err := s.LoadRefCell()
	if err != nil {
		return nil, err
	}
	err = all(workchains, 32, maxShards, func(key uint64, s *cell.Slice) error {
		tree, err := s.LoadRefCell()
		if err == nil {
			tops, err = parseTree(tops, tree, int32(key), wholeShard)
		}
		return err
	})
	return tops, err
}

// maxShards is how many shards a network may have.
const maxShards = 4096

// parseTree reads the shards of one workchain. Where a shard stands in the tree
// is what says which it is.
func parseTree(tops []lite.BlockID, c *cell.Cell, workchain int32, shard uint64) ([]lite.BlockID, error) {
	s, err := open(c)
	if err != nil {
		return nil, err
	}
	in := scan{Slice: s}
	if in.flag() {
		half := (shard & -shard) / 2
		if half == 0 || len(tops) >= maxShards {
			return nil, errors.New("a workchain has too many shards")
		}
		for i, child := range []uint64{shard - half, shard + half} {
			r, err := c.PeekRef(i)
			if err != nil {
				return nil, err
			}
			if tops, err = parseTree(tops, r, workchain, child); err != nil {
				return nil, err
			}
		}
		return tops, nil
	}
	if kind := in.number(4); kind != 0xa && kind != 0xb && in.err == nil {
		in.err = errors.New("a shard is described in an unknown way")
	}
	id := lite.BlockID{Workchain: workchain, Shard: shard, SeqNo: uint32(in.number(32))}
	in.number(32) // registered at
	in.number(64) // start_lt
	in.number(64) // end_lt
	id.Root, id.File = in.hash(), in.hash()
	return append(tops, id), in.err
}
