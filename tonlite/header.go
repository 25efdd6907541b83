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

// A header is the header of a block. It names its predecessors: one, or two after a merge of
// shards.
type header struct {
	time time.Time
	prev []lite.BlockID
	key  bool
	// Only for the masterchain: the previous key block, and the validator set and session
	// whose signatures it needs.
	prevKey, set, session uint32
}

var errWrongBlock = errors.New("it is not the requested block")

// parseHeader parses the header of a block whose root hash was checked. It returns errPruned
// if a proof omits the predecessors.
func parseHeader(root *cell.Cell, id lite.BlockID) (h header, err error) {
	s, err := openCell(root)
	if err != nil {
		return h, err
	}
	top := cellReader{Slice: s}
	top.expect(32, 0x11ef55aa, "block")
	if top.err != nil {
		return h, top.err
	}
	info, err := root.PeekRef(0)
	if err != nil {
		return h, err
	}
	if s, err = openCell(info); err != nil {
		return h, err
	}
	in := cellReader{Slice: s}
	in.expect(32, 0x9bc7a987, "block header")
	in.readUint(32) // version
	notMaster, merged, _, split := in.readBool(), in.readBool(), in.readBool(), in.readBool()
	in.readUint(2) // wants to split, to merge
	h.key = in.readBool()
	in.readUint(1 + 8) // vertical, flags
	seqNo := uint32(in.readUint(32))
	in.readUint(32) // vertical
	in.expect(2, 0, "shard")
	prefix, workchain := in.readUint(6), int32(in.readUint(32))
	shard := in.readUint(64)
	if prefix > 60 {
		return h, errors.New("a shard's prefix is too long")
	}
	shard |= 1 << (63 - prefix)
	h.time = time.Unix(int64(in.readUint(32)), 0).UTC()
	in.readUint(64) // start_lt
	in.readUint(64) // end_lt
	h.set, h.session = uint32(in.readUint(32)), uint32(in.readUint(32))
	in.readUint(32) // min_ref_mc_seqno
	h.prevKey = uint32(in.readUint(32))
	if in.err != nil {
		return h, in.err
	}
	if workchain != id.Workchain || shard != id.Shard || seqNo != id.SeqNo || notMaster != (workchain != masterchain) {
		return h, fmt.Errorf("%w: (%d,%016x,%d) for %v", errWrongBlock, workchain, shard, seqNo, id)
	}
	at := 0
	if notMaster {
		at = 1 // after the reference to the masterchain
	}
	prev, err := info.PeekRef(at)
	if err != nil {
		return h, err
	}
	h.prev, err = parsePrevious(prev, id, split, merged)
	return h, err
}

// parsePrevious parses the predecessors of a block. After a split or a merge they belong to
// other shards than the block.
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
		return nil, errors.New("impossible merge of shards")
	}
	if _, err := openCell(c); err != nil {
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
	s, err := openCell(c)
	if err != nil {
		return id, err
	}
	in := cellReader{Slice: s}
	in.readUint(64) // end_lt
	id = lite.BlockID{Workchain: workchain, Shard: shard, SeqNo: uint32(in.readUint(32))}
	id.Root, id.File = in.readHash(), in.readHash()
	if in.err == nil && bits.OnesCount64(shard) == 0 {
		in.err = errors.New("a shard has no parent")
	}
	return id, in.err
}

// parseShards parses the newest block of each shard from a masterchain block.
func parseShards(root *cell.Cell) (tops []lite.BlockID, err error) {
	extra, err := root.PeekRef(3)
	if err != nil {
		return nil, err
	}
	s, err := openCell(extra)
	if err != nil {
		return nil, err
	}
	in := cellReader{Slice: s}
	in.expect(32, 0x4a33f6fd, "block extra")
	in.readHash() // random seed
	in.readHash() // creator
	if !in.readBool() {
		return nil, errors.New("a masterchain block lacks its masterchain part")
	}
	custom, err := extra.PeekRef(3)
	if err != nil {
		return nil, err
	}
	if s, err = openCell(custom); err != nil {
		return nil, err
	}
	in = cellReader{Slice: s}
	in.expect(16, 0xcca5, "masterchain extra")
	in.readUint(1) // key block
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
	err = forEach(workchains, 32, maxShards, func(key uint64, s *cell.Slice) error {
		tree, err := s.LoadRefCell()
		if err == nil {
			tops, err = parseTree(tops, tree, int32(key), wholeShard)
		}
		return err
	})
	return tops, err
}

// maxShards is the maximum number of shards of a network.
const maxShards = 4096

// parseTree parses the shards of one workchain. A shard is identified by its position in the
// tree.
func parseTree(tops []lite.BlockID, c *cell.Cell, workchain int32, shard uint64) ([]lite.BlockID, error) {
	s, err := openCell(c)
	if err != nil {
		return nil, err
	}
	in := cellReader{Slice: s}
	if in.readBool() {
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
	if kind := in.readUint(4); kind != 0xa && kind != 0xb && in.err == nil {
		in.err = errors.New("unknown format of a shard description")
	}
	id := lite.BlockID{Workchain: workchain, Shard: shard, SeqNo: uint32(in.readUint(32))}
	in.readUint(32) // registered at
	in.readUint(64) // start_lt
	in.readUint(64) // end_lt
	id.Root, id.File = in.readHash(), in.readHash()
	return append(tops, id), in.err
}
