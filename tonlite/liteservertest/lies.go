package liteservertest

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
	"math/big"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite/internal/lite"
	"github.com/xssnick/tonutils-go/tvm/cell"
)

// A Lie is a kind of false response that a [Server] sends. Most of these responses are as
// consistent as possible. Only hashes and signatures, which the Server cannot forge, reveal that
// they are false.
type Lie int

// These are the values of [Lie].
const (
	// Truth makes all responses true.
	Truth Lie = iota
	// FalseBalance increases the balance of an account by one nano-unit, in a forged state.
	FalseBalance
	// FalseUpdate is like FalseBalance. In addition, the block's proof replaces the forged state with a pruned branch.
	FalseUpdate
	// FalseRoot is like FalseBalance. In addition, the block's proof hides the forged part below a pruned branch.
	FalseRoot
	// FalseAbsence denies that an account exists. The proof omits the path to the account.
	FalseAbsence
	// FalseShard denies that an account exists. The proof is for a shard that does not contain the account.
	FalseShard
	// FalseState sends zeros instead of the account's cells, which the balance does not need.
	FalseState
	// FalseBytes flips one bit of a block.
	FalseBytes
	// FalseBlock sends the bytes of another block.
	FalseBlock
	// FalseHeader sends a block header with a wrong time.
	FalseHeader
	// FalseNumber sends the header of another block.
	FalseNumber
	// FalseHead announces a forged block, which no validator has signed, as the newest block.
	FalseHead
	// FarHead announces the nonexistent block 4,000,000,000 as the newest block.
	FarHead
	// FalseHistory answers all lookups by seq_no with forged blocks.
	FalseHistory
	// FalsePast answers some lookups by seq_no with forged blocks.
	FalsePast
	// FalseClaims answers lookups of masterchain blocks that the Server does not have with invented ids.
	FalseClaims
	// FalseCreation answers lookups of shard blocks with forged blocks, which claim to have been created
	// after the last masterchain block.
	FalseCreation
	// FalseLinks omits the first link of a proof that has several links.
	FalseLinks
	// Circles sends proofs with valid links that form a cycle.
	Circles
	// Meander sends proofs with one valid link, which leads only to the next key block on the way to the target.
	Meander
	// FalseNetwork claims another zero state.
	FalseNetwork
	// Garbage sends bytes that are not cells.
	Garbage
	// Bomb sends a bag of cells that announces billions of cells.
	Bomb
	// Padding appends two megabytes to the cells in a response.
	Padding
	// Withheld announces and proves all blocks, but denies having masterchain blocks and accounts.
	Withheld
	// Flood sends many packets that answer no query, and no responses.
	Flood
	// WrongKind sends the response to another kind of query.
	WrongKind
	// FalseIDs answers lookups of masterchain blocks, except multiples of four, with ids of blocks that nobody has.
	FalseIDs
	// Unlisted denies having shard blocks that are looked up by seq_no.
	Unlisted
	// OtherShard answers lookups of shard blocks with invented ids of blocks of another shard.
	OtherShard
	// EarlyCreation answers lookups of shard blocks with forged blocks, which claim to have been created after
	// masterchain block 1.
	EarlyCreation
	// OldHead announces masterchain block 2 as the newest block.
	OldHead
)

// apply returns the response that the Server sends to q. a is the true response.
func (l Lie) apply(c *Chain, q, a lite.Message) lite.Message {
	if l == Flood {
		return lite.Noise(10_000)
	}
	switch a := a.(type) {
	case lite.MasterchainInfo:
		switch l {
		case FalseHead:
			a.Last, _ = c.forge(a.Last)
		case FarHead:
			a.Last.SeqNo = 4_000_000_000
			a.Last.Root[0]++
		case OldHead:
			a.Last, _ = c.master(2)
		case FalseNetwork:
			a.ZeroRoot[0]++
		case WrongKind:
			return lite.BlockData{}
		}
		return a
	case lite.BlockData:
		if l == Withheld && a.ID.Workchain == masterchain {
			return lite.Error{Code: lite.CodeNotFound, Message: errMissing.Error()}
		}
		a.Data = l.block(c, a)
		return a
	case lite.BlockHeader:
		if look, ok := q.(lite.LookupBlock); ok {
			return l.lookup(c, look, a)
		}
		return l.header(c, a)
	case lite.BlockProof:
		switch {
		case l == FalseLinks && len(a.Links) > 1:
			a.Links = a.Links[1:]
		case l == Circles:
			return c.circle(q.(lite.GetBlockProof))
		case l == Meander:
			return c.meander(q.(lite.GetBlockProof), a)
		}
		return a
	case lite.AccountState:
		if l == Withheld {
			return lite.Error{Code: lite.CodeNotFound, Message: errMissing.Error()}
		}
		return l.account(c, q, a)
	case lite.Error:
		return l.unknown(c, q, a)
	}
	return a
}

// block returns the bytes that the Server sends instead of those of the block in a.
func (l Lie) block(c *Chain, a lite.BlockData) []byte {
	switch l {
	case FalseBytes:
		data := append([]byte(nil), a.Data...)
		data[len(data)/2] ^= 1
		data = data[:len(data)-4] // the checksum, which is replaced with a matching one
		return binary.LittleEndian.AppendUint32(data, crc32.Checksum(data, crc32.MakeTable(crc32.Castagnoli)))
	case FalseBlock:
		return c.other(a.ID).data
	}
	return l.spoil(a.Data)
}

// spoil returns data, or bytes that are not valid cells if l is Garbage, Bomb or Padding.
func (l Lie) spoil(data []byte) []byte {
	switch l {
	case Garbage:
		sum := sha256.Sum256(data)
		return append(append([]byte(nil), data[:len(data)/3]...), sum[:]...)
	case Bomb: // all fields have very large values
		bomb := append([]byte{0xb5, 0xee, 0x9c, 0x72, 4, 8}, bytes.Repeat([]byte{0x7f}, 3*4+8)...)
		return append(bomb, data...)
	case Padding:
		return append(append([]byte(nil), data...), make([]byte, 2<<20)...)
	}
	return data
}

// unknown returns the response to a query for a block that is forged, or that the Server does not
// have. a is the true response, which is an error.
func (l Lie) unknown(c *Chain, q, a lite.Message) lite.Message {
	if look, ok := q.(lite.LookupBlock); ok && l == FalseClaims && look.Workchain == masterchain {
		if id, ok := c.master(look.SeqNo); ok {
			id.Root[0]++
			return lite.BlockHeader{ID: id}
		}
	}
	if l != FalseHead && l != FalseHistory && l != FalsePast {
		return a
	}
	switch q := q.(type) {
	case lite.GetBlock:
		if real, ok := c.master(q.ID.SeqNo); ok && q.ID.Workchain == masterchain {
			if id, forged := c.forge(real); id == q.ID {
				return lite.BlockData{ID: id, Data: forged.ToBOC()}
			}
		}
	case lite.GetBlockProof: // the signatures are those of the true block
		target, _ := c.master(q.Target.SeqNo)
		p := lite.BlockProof{From: q.Known, To: q.Known}
		for p.To.SeqNo != target.SeqNo {
			lead := c.forward
			if p.To.SeqNo > target.SeqNo {
				lead = c.back
			}
			link, err := lead(p.To, target)
			if err != nil {
				return a
			}
			p.Links, p.To = append(p.Links, link), link.To
		}
		last := &p.Links[len(p.Links)-1]
		id, forged := c.forge(target)
		last.To, last.Dest, p.To, p.Complete = id, headerProof(forged).ToBOC(), id, true
		return p
	}
	return a
}

// account returns the response to a query for an account state. a is the true response.
func (l Lie) account(c *Chain, q lite.Message, a lite.AccountState) lite.AccountState {
	asked := q.(lite.GetAccountState)
	block, state := c.blocks[a.Shard], c.states[a.Shard.Root]
	switch l {
	case FalseBalance, FalseUpdate, FalseRoot:
		forged, account := increaseBalance(state, chaingql.Address{Workchain: asked.Workchain, ID: asked.Account})
		if forged == nil {
			return a
		}
		proof, _, err := accountProof(forged, asked.Account)
		must(err)
		shown := updateProof(block.root)
		switch l {
		case FalseUpdate:
			shown = forgedUpdateProof(block.root, state, forged)
		case FalseRoot:
			shown = proofBelowPruned(block.root, withRef(block.root, 2, update(state, forged)))
		}
		a.Proof, a.State = bag(shown, proof), account.ToBOC()
	case FalseAbsence:
		sk := cell.CreateProofSkeleton()
		sk.ProofRef(1)
		a.Proof, a.State = bag(updateProof(block.root), prove(state, sk)), nil
	case FalseShard:
		for _, top := range c.blocks[a.ID].tops {
			if top != a.Shard && top.SeqNo > 0 {
				proof, _, err := accountProof(c.states[top.Root], asked.Account)
				must(err)
				a.Shard, a.Proof, a.State = top, bag(updateProof(c.blocks[top].root), proof), nil
				break
			}
		}
	case FalseState:
		a.State = make([]byte, 100_000)
	default:
		a.Proof = l.spoil(a.Proof)
	}
	return a
}

// increaseBalance returns a copy of state in which the balance of an account is higher by one
// nano-unit, and that account. It returns nil if the state does not contain the account.
func increaseBalance(state *cell.Cell, addr chaingql.Address) (forged, account *cell.Cell) {
	dict, err := accounts(state)
	must(err)
	if dict == nil {
		return nil, nil
	}
	key := bits256(addr.ID)
	leaf, err := dict.LoadValue(key)
	if err != nil {
		return nil, nil
	}
	_, err = leaf.LoadUInt(5)
	must(err)
	nano, err := leaf.LoadBigCoins()
	must(err)
	value := accountLeaf(addr, nano.Add(nano, big.NewInt(1)))
	must(dict.Set(key, value))
	held := cell.BeginCell().MustStoreDict(dict).MustStoreUInt(0, 5+4+1).EndCell()
	return withRef(state, 1, held), value.MustPeekRef(0)
}

// forgedUpdateProof returns a block's proof in which a pruned branch replaces the new state. At
// the level that the block's hash covers, the branch has the true hash. At the level that readers
// use, it has the forged hash.
func forgedUpdateProof(block, state, forged *cell.Cell) *cell.Cell {
	update := block.MustPeekRef(2)
	branch := update.MustPeekRef(1)
	data := append([]byte{1, 3}, forged.Hash(0)...)
	data = append(data, branch.Hash(1)...)
	data = binary.BigEndian.AppendUint16(data, forged.Depth(0))
	data = binary.BigEndian.AppendUint16(data, branch.Depth(1))
	raw := update.ToRawUnsafe()
	raw.LevelMask.Mask = 1
	raw.Refs = []*cell.Cell{raw.Refs[0], cell.FromRawUnsafe(cell.RawUnsafeCell{
		IsSpecial: true, LevelMask: cell.LevelMask{Mask: 3}, BitsSz: uint(8 * len(data)), Data: data,
	})}
	body := withRef(block, 2, cell.FromRawUnsafe(raw)).ToRawUnsafe()
	body.LevelMask.Mask = 1
	sk := cell.CreateProofSkeleton()
	sk.ProofRef(0).SetRecursive()
	sk.ProofRef(2).SetRecursive()
	return prove(cell.FromRawUnsafe(body), sk)
}

// proofBelowPruned returns a proof of c in which a pruned branch has the hash of c, but the
// references of other.
func proofBelowPruned(c, other *cell.Cell) *cell.Cell {
	branch := pruned(1, c.Hash(0), c.Depth(0)).ToRawUnsafe()
	branch.Refs = other.ToRawUnsafe().Refs
	data := binary.BigEndian.AppendUint16(append([]byte{3}, c.Hash(0)...), c.Depth(0))
	return cell.FromRawUnsafe(cell.RawUnsafeCell{
		IsSpecial: true, BitsSz: uint(8 * len(data)), Data: data, Refs: []*cell.Cell{cell.FromRawUnsafe(branch)},
	})
}

// withRef returns a copy of c in which reference i points to another cell, below.
func withRef(c *cell.Cell, i int, below *cell.Cell) *cell.Cell {
	raw := c.ToRawUnsafe()
	raw.Refs = append([]*cell.Cell(nil), raw.Refs...)
	raw.Refs[i] = below
	return cell.FromRawUnsafe(raw)
}

// forge returns a copy of a block with a wrong time, and the id of that copy.
func (c *Chain) forge(id lite.BlockID) (lite.BlockID, *cell.Cell) {
	const seconds = (32 + 32 + 8 + 8 + 32 + 32 + 2 + 6 + 32 + 64) / 8 // offset of the time in a header
	root := c.blocks[id].root
	raw := root.MustPeekRef(0).ToRawUnsafe()
	raw.Data = append([]byte(nil), raw.Data...)
	raw.Data[seconds+3] ^= 1
	root = withRef(root, 0, cell.FromRawUnsafe(raw))
	id.Root, id.File = [32]byte(root.Hash(0)), sha256.Sum256(root.ToBOC())
	return id, root
}

// other returns another block of the same workchain.
func (c *Chain) other(id lite.BlockID) *block {
	for other, b := range c.blocks {
		if other != id && other.Workchain == id.Workchain {
			return b
		}
	}
	return c.blocks[id]
}

func bag(roots ...*cell.Cell) []byte { return cell.ToBOCWithFlags(roots, true) }
