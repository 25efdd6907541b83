package tonlite

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite/internal/lite"
)

// maxStep is the maximum number of shard blocks that are new in one masterchain block.
const maxStep = 10_000

var errShards = errors.New("tonlite: a masterchain block commits to shard blocks that do not lead back to those " +
	"of its predecessor")

// step returns the masterchain block m and the shard blocks that are new in it, in ascending
// order of their cursors. before is the previous masterchain block, or nil if m is the first one.
// The returned slice is cached, so callers must not modify it.
func (b *Backend) step(ctx context.Context, m, before *master) ([]chaingql.Block, error) {
	if blocks, ok := b.steps.get(m.id.SeqNo); ok {
		return blocks, nil
	}
	var known []lite.BlockID
	if before != nil {
		known = before.tops
	}
	var (
		mu   sync.Mutex
		seen = make(map[lite.BlockID]bool) // a block can be reached on several paths
	)
	for _, id := range known {
		seen[id] = true
	}
	blocks := []chaingql.Block{m.block()}
	err := parallel(ctx, len(m.tops), func(ctx context.Context, i int) error {
		for left := []lite.BlockID{m.tops[i]}; len(left) > 0; {
			id := left[0]
			left = left[1:]
			mu.Lock()
			done := seen[id] || id.SeqNo == 0 // the zero state is not a block
			seen[id] = true
			n := len(blocks)
			mu.Unlock()
			if done {
				continue
			}
			if n > maxStep || isOlder(known, id) {
				return errShards
			}
			h, ok := b.headers.get(id)
			if !ok {
				var err error
				if h, err = b.header(ctx, id, m.id.SeqNo); err != nil {
					return err
				}
				b.headers.put(id, h)
			}
			mu.Lock()
			blocks = append(blocks, shardBlock(id, h, m.id.SeqNo))
			mu.Unlock()
			left = append(left, h.prev...)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(blocks, func(a, b chaingql.Block) int {
		return strings.Compare(string(a.Cursor), string(b.Cursor))
	})
	b.steps.put(m.id.SeqNo, blocks)
	return blocks, nil
}

// isOlder reports whether a block is older than all known blocks whose shards overlap its own.
// Its predecessors then cannot lead back to a known block.
func isOlder(known []lite.BlockID, id lite.BlockID) bool {
	some := false
	for _, k := range known {
		if k.Workchain == id.Workchain && lite.Overlap(k.Shard, id.Shard) {
			if id.SeqNo >= k.SeqNo {
				return false
			}
			some = true
		}
	}
	return some
}

func (m *master) block() chaingql.Block {
	return chaingql.Block{
		Workchain: m.id.Workchain, Shard: m.id.Shard, SeqNo: m.id.SeqNo, Hash: m.id.Root, Time: m.header.time,
		Cursor: chaingql.ChainOrder(masterchain, wholeShard, m.id.SeqNo, m.id.SeqNo),
	}
}

func shardBlock(id lite.BlockID, h header, master uint32) chaingql.Block {
	return chaingql.Block{
		Workchain: id.Workchain, Shard: id.Shard, SeqNo: id.SeqNo, Hash: id.Root, Time: h.time,
		Cursor: chaingql.ChainOrder(id.Workchain, id.Shard, id.SeqNo, master),
	}
}

// header returns the header of block id, which it reads from a server's proof. If the proof omits
// the block's predecessors, header reads the whole block. master is the seq_no of a masterchain block that commits to
// the block: a server that does not have this one yet lags, so its response does not mean that the block is deleted.
func (b *Backend) header(ctx context.Context, id lite.BlockID, master uint32) (h header, err error) {
	whole := false
	err = b.servers.ask(ctx, b.servers.after(master, lite.GetBlockHeader{ID: id}), func(answer lite.Message) error {
		a, ok := answer.(lite.BlockHeader)
		if !ok {
			return errAnswer
		}
		return b.servers.parse(ctx, func() error {
			root, err := openProof(a.Proof, id.Root, maxPathCells)
			if err != nil {
				return err
			}
			h, err = parseHeader(root, id)
			if whole = errors.Is(err, errPruned); whole {
				return nil
			}
			return err
		})
	})
	if err == nil && whole {
		err = b.servers.ask(ctx, b.servers.after(master, lite.GetBlock{ID: id}), func(answer lite.Message) error {
			return b.servers.parse(ctx, func() (err error) {
				h, _, err = parseBlock(answer, id, false)
				return err
			})
		})
	}
	if err != nil {
		return h, fmt.Errorf("%w: block %v", err, id)
	}
	return h, nil
}

// prefix returns the part of an address that determines its shard.
func prefix(addr chaingql.Address) uint64 { return binary.BigEndian.Uint64(addr.ID[:8]) | 1 }
