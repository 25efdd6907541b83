package tonlite

import (
	"errors"
	"fmt"
	"math/bits"
	"time"

	"github.com/chaingql/chaingql/tonlite/internal/cell"
	"github.com/chaingql/chaingql/tonlite/internal/lite"
)

const (
	masterchain = -1
	wholeShard  = 1 << 63
)

// A header contains the parts of a block's header that this package uses.
type header struct {
	time time.Time
	prev []lite.BlockID // the predecessor; two predecessors after a merge of shards
	key  bool           // whether this is a key block

	// The following fields are used for masterchain blocks only. prevKey is the seq_no of the
	// previous key block. set, a short hash, and session identify the validators that must
	// sign the block.
	prevKey, set, session uint32
}

var errWrongBlock = errors.New("the response does not contain the requested block")

// parseHeader parses the header of block id. The caller must have checked the hash of root. If
// root is from a proof that omits the block's predecessors, parseHeader returns errPruned.
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
	info, err := root.Ref(0)
	if err != nil {
		return h, err
	}
	if s, err = openCell(info); err != nil {
		return h, err
	}
	in := cellReader{Slice: s}
	in.expect(32, 0x9bc7a987, "block_info")
	in.readUint(32) // version
	notMaster, merged, _, split := in.readBool(), in.readBool(), in.readBool(), in.readBool()
	in.readUint(2) // want_split, want_merge
	h.key = in.readBool()
	in.readUint(1 + 8) // vert_seqno_incr, flags
	seqNo := uint32(in.readUint(32))
	in.readUint(32) // vert_seq_no
	in.expect(2, 0, "shard_ident")
	prefix, workchain := in.readUint(6), int32(in.readUint(32))
	shard := in.readUint(64)
	if prefix > 60 {
		return h, errors.New("the shard's prefix is too long")
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
		return h, fmt.Errorf("%w: got (%d,%016x,%d), want %v", errWrongBlock, workchain, shard, seqNo, id)
	}
	at := 0
	if notMaster {
		at = 1 // reference 0 is the masterchain block
	}
	prev, err := info.Ref(at)
	if err != nil {
		return h, err
	}
	h.prev, err = parsePrevious(prev, id, split, merged)
	return h, err
}

// parseCreation returns the seq_no of the newest masterchain block at the time when the shard block in a
// was created.
func parseCreation(a lite.BlockHeader) (uint32, error) {
	root, err := openProof(a.Proof, a.ID.Root, maxPathCells)
	if err != nil {
		return 0, err
	}
	info, err := root.Ref(0)
	if err != nil {
		return 0, err
	}
	ref, err := info.Ref(0)
	if err != nil {
		return 0, err
	}
	id, err := parseReference(ref, masterchain, wholeShard)
	return id.SeqNo, err
}

// parsePrevious parses the predecessors of block id. If the block is the first one of its shard
// after a split or a merge, as split and merged say, its predecessors belong to other shards.
func parsePrevious(c *cell.Cell, id lite.BlockID, split, merged bool) ([]lite.BlockID, error) {
	own := id.Shard & -id.Shard // the bit that ends the shard's prefix
	if !merged {
		shard := id.Shard
		if split {
			shard = id.Shard&^own | own<<1
		}
		b, err := parseReference(c, id.Workchain, shard)
		return []lite.BlockID{b}, err
	}
	if own == 1 || split {
		return nil, errors.New("the block follows a merge that is impossible for its shard")
	}
	if _, err := openCell(c); err != nil {
		return nil, err
	}
	var prev []lite.BlockID
	for i, shard := range []uint64{id.Shard - own/2, id.Shard + own/2} {
		r, err := c.Ref(i)
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
		in.err = errors.New("the block follows a split that is impossible for its shard")
	}
	return id, in.err
}

// parseShards returns the ids of the blocks that a masterchain block commits to: the newest block
// of each shard. root is the root cell of the masterchain block.
func parseShards(root *cell.Cell) (tops []lite.BlockID, err error) {
	extra, err := root.Ref(3)
	if err != nil {
		return nil, err
	}
	s, err := openCell(extra)
	if err != nil {
		return nil, err
	}
	in := cellReader{Slice: s}
	in.expect(32, 0x4a33f6fd, "block_extra")
	in.readHash() // random seed
	in.readHash() // creator
	if !in.readBool() {
		return nil, errors.New("the masterchain block lacks masterchain_block_extra")
	}
	custom, err := extra.Ref(3)
	if err != nil {
		return nil, err
	}
	if s, err = openCell(custom); err != nil {
		return nil, err
	}
	in = cellReader{Slice: s}
	in.expect(16, 0xcca5, "masterchain_block_extra")
	in.readUint(1) // key block
	if in.err != nil {
		return nil, in.err
	}
	if some, err := s.Bool(); err != nil || !some {
		return nil, err
	}
	workchains, err := s.Ref()
	if err != nil {
		return nil, err
	}
	err = forEach(workchains, 32, maxShards, func(key uint64, s *cell.Slice) error {
		tree, err := s.Ref()
		if err == nil {
			tops, err = parseTree(tops, tree, int32(key), wholeShard)
		}
		return err
	})
	return tops, err
}

// maxShards is the maximum number of shards in a network.
const maxShards = 4096

// parseTree appends to tops the newest block of each shard in c, a tree of shards. The position
// of a leaf in the tree identifies its shard. shard is the shard that the whole of c covers.
func parseTree(tops []lite.BlockID, c *cell.Cell, workchain int32, shard uint64) ([]lite.BlockID, error) {
	s, err := openCell(c)
	if err != nil {
		return nil, err
	}
	in := cellReader{Slice: s}
	if in.readBool() {
		half := (shard & -shard) / 2
		if half == 0 || len(tops) >= maxShards {
			return nil, errors.New("the network has too many shards")
		}
		for i, child := range []uint64{shard - half, shard + half} {
			r, err := c.Ref(i)
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
		in.err = errors.New("unknown format of shard description")
	}
	id := lite.BlockID{Workchain: workchain, Shard: shard, SeqNo: uint32(in.readUint(32))}
	in.readUint(32) // reg_mc_seqno
	in.readUint(64) // start_lt
	in.readUint(64) // end_lt
	id.Root, id.File = in.readHash(), in.readHash()
	return append(tops, id), in.err
}
