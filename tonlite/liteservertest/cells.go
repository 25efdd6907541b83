package liteservertest

import (
	"encoding/binary"
	"math/big"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite/internal/lite"
	"github.com/xssnick/tonutils-go/tvm/cell"
)

// This file creates blocks and states as the network's schema (block.tlb) defines them. Parts that no
// client of the Server reads are empty.

// A blockHeader contains the fields of a block's header.
type blockHeader struct {
	id           lite.BlockID
	time         uint32
	split, merge bool   // whether the block is the first one after a split or a merge
	key          bool   // whether the block is a key block
	set          uint32 // short hash of the validators that sign the block
	session      uint32
	prevKey      uint32       // seq_no of the previous key block
	master       lite.BlockID // newest masterchain block when the block was created
	prev         []lite.BlockID
}

func (h blockHeader) cell() *cell.Cell {
	notMaster := h.id.Workchain != masterchain
	b := cell.BeginCell().MustStoreUInt(0x9bc7a987, 32).MustStoreUInt(0, 32).
		MustStoreBoolBit(notMaster).MustStoreBoolBit(h.merge).MustStoreBoolBit(false).MustStoreBoolBit(h.split).
		MustStoreUInt(0, 2).MustStoreBoolBit(h.key).MustStoreUInt(0, 1+8).
		MustStoreUInt(uint64(h.id.SeqNo), 32).MustStoreUInt(0, 32)
	storeShard(b, h.id.Workchain, h.id.Shard)
	lt := uint64(h.id.SeqNo) * 1_000_000
	b.MustStoreUInt(uint64(h.time), 32).MustStoreUInt(lt, 64).MustStoreUInt(lt+10, 64).
		MustStoreUInt(uint64(h.set), 32).MustStoreUInt(uint64(h.session), 32).
		MustStoreUInt(0, 32).MustStoreUInt(uint64(h.prevKey), 32)
	if notMaster {
		b.MustStoreRef(reference(h.master).EndCell())
	}
	if h.merge {
		both := cell.BeginCell()
		for _, id := range h.prev {
			both.MustStoreRef(reference(id).EndCell())
		}
		return b.MustStoreRef(both.EndCell()).EndCell()
	}
	return b.MustStoreRef(reference(h.prev[0]).EndCell()).EndCell()
}

func storeShard(b *cell.Builder, workchain int32, shard uint64) {
	bits := uint64(0)
	for shard<<bits != wholeShard {
		bits++
	}
	b.MustStoreUInt(0, 2).MustStoreUInt(bits, 6).MustStoreInt(int64(workchain), 32).MustStoreUInt(shard&(shard-1), 64)
}

func reference(id lite.BlockID) *cell.Builder {
	return cell.BeginCell().MustStoreUInt(uint64(id.SeqNo)*1_000_000+10, 64).MustStoreUInt(uint64(id.SeqNo), 32).
		MustStoreSlice(id.Root[:], 256).MustStoreSlice(id.File[:], 256)
}

// blockCell returns the root cell of a block. before and after are the states before and after
// the block. custom is the part that only masterchain blocks have, and nil for others.
func blockCell(h blockHeader, before, after *cell.Cell, custom *cell.Cell) *cell.Cell {
	empty := cell.BeginCell().EndCell()
	extra := cell.BeginCell().MustStoreUInt(0x4a33f6fd, 32).MustStoreSlice(make([]byte, 64), 512).
		MustStoreBoolBit(custom != nil).
		MustStoreRef(empty).MustStoreRef(empty).MustStoreRef(empty)
	if custom != nil {
		extra.MustStoreRef(custom)
	}
	return cell.BeginCell().MustStoreUInt(0x11ef55aa, 32).MustStoreInt(-1999, 32).
		MustStoreRef(h.cell()).MustStoreRef(empty).MustStoreRef(update(before, after)).MustStoreRef(extra.EndCell()).
		EndCell()
}

// update returns a Merkle update from one state to another. The contents of both states are
// pruned.
func update(before, after *cell.Cell) *cell.Cell {
	data := append([]byte{4}, before.Hash(0)...)
	data = append(data, after.Hash(0)...)
	data = binary.BigEndian.AppendUint16(data, before.Depth(0))
	data = binary.BigEndian.AppendUint16(data, after.Depth(0))
	return cell.FromRawUnsafe(cell.RawUnsafeCell{
		IsSpecial: true, BitsSz: uint(8 * len(data)), Data: data,
		Refs: []*cell.Cell{pruned(1, before.Hash(0), before.Depth(0)), pruned(1, after.Hash(0), after.Depth(0))},
	})
}

// pruned returns a pruned branch with the given level mask. It stands for a cell with the given
// hash and depth.
func pruned(level byte, hash []byte, depth uint16) *cell.Cell {
	data := append([]byte{1, level}, hash...)
	data = binary.BigEndian.AppendUint16(data, depth)
	return cell.FromRawUnsafe(cell.RawUnsafeCell{
		IsSpecial: true, LevelMask: cell.LevelMask{Mask: level}, BitsSz: uint(8 * len(data)), Data: data,
	})
}

// stateCell returns the state of a shard after block id. extra is the part that only the
// masterchain's state has, and nil for others.
func stateCell(id lite.BlockID, time uint32, balances map[chaingql.Address]*big.Int, extra *cell.Cell) *cell.Cell {
	empty := cell.BeginCell().EndCell()
	dict := cell.NewDict(256)
	for addr, nano := range balances {
		if addr.Workchain == id.Workchain && contains(id.Shard, addr.ID) {
			must(dict.Set(bits256(addr.ID), accountLeaf(addr, nano)))
		}
	}
	accounts := cell.BeginCell().MustStoreDict(dict).MustStoreUInt(0, 5+4+1).EndCell()
	b := cell.BeginCell().MustStoreUInt(0x9023afe2, 32).MustStoreInt(-1999, 32)
	storeShard(b, id.Workchain, id.Shard)
	b.MustStoreUInt(uint64(id.SeqNo), 32).MustStoreUInt(0, 32).MustStoreUInt(uint64(time), 32).
		MustStoreUInt(uint64(id.SeqNo)*1_000_000+10, 64).MustStoreUInt(0, 32).
		MustStoreRef(empty).MustStoreBoolBit(false).MustStoreRef(accounts).MustStoreRef(empty)
	return b.MustStoreMaybeRef(extra).EndCell()
}

// accountLeaf returns an account with its balance, as an entry of the dictionary of accounts in a
// state.
func accountLeaf(addr chaingql.Address, nano *big.Int) *cell.Cell {
	account := cell.BeginCell().MustStoreBoolBit(true).
		MustStoreUInt(0b100, 3).MustStoreInt(int64(addr.Workchain), 8).MustStoreSlice(addr.ID[:], 256).
		MustStoreVarUInt(1, 7).MustStoreVarUInt(100, 7).MustStoreVarUInt(0, 7).MustStoreUInt(0, 32).
		MustStoreBoolBit(false).MustStoreUInt(1, 64).MustStoreBigCoins(nano).MustStoreBoolBit(false).
		MustStoreUInt(0, 2).EndCell()
	return cell.BeginCell().MustStoreUInt(0, 5).MustStoreBigCoins(nano).MustStoreBoolBit(false).
		MustStoreRef(account).MustStoreSlice(make([]byte, 32), 256).MustStoreUInt(1, 64).EndCell()
}

// shardsDict returns a dictionary with one entry, for workchain 0: a tree of the workchain's
// shards, which contains the newest block of each shard.
func shardsDict(tops []lite.BlockID) *cell.Dictionary {
	dict := cell.NewDict(32)
	if len(tops) > 0 {
		must(dict.SetIntKey(new(big.Int), cell.BeginCell().MustStoreRef(shardTree(tops, wholeShard)).EndCell()))
	}
	return dict
}

func shardTree(tops []lite.BlockID, shard uint64) *cell.Cell {
	for _, id := range tops {
		if id.Shard == shard {
			return shardLeaf(id)
		}
	}
	half := (shard & -shard) / 2
	return cell.BeginCell().MustStoreBoolBit(true).
		MustStoreRef(shardTree(tops, shard-half)).MustStoreRef(shardTree(tops, shard+half)).EndCell()
}

func shardLeaf(id lite.BlockID) *cell.Cell {
	return cell.BeginCell().MustStoreBoolBit(false).MustStoreUInt(0xb, 4).MustStoreUInt(uint64(id.SeqNo), 32).
		MustStoreUInt(0, 32).MustStoreUInt(0, 64).MustStoreUInt(0, 64).
		MustStoreSlice(id.Root[:], 256).MustStoreSlice(id.File[:], 256).
		MustStoreUInt(0, 5+3).MustStoreUInt(0, 32).MustStoreUInt(id.Shard, 64).
		MustStoreUInt(0, 32).MustStoreUInt(0, 32).
		MustStoreUInt(0, 1).MustStoreUInt(0, 5).MustStoreUInt(0, 5).EndCell()
}

func must(err error) {
	if err != nil {
		panic(err) // generated cells are valid
	}
}
