package liteservertest

import (
	"cmp"
	"crypto/sha256"
	"maps"
	"math/big"
	"slices"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite/internal/lite"
	"github.com/xssnick/tonutils-go/tvm/cell"
)

// KeyBlocks is the number of masterchain blocks from one key block to the next in a generated
// chain. Block 1 is the first key block. Each key block introduces new validators, which sign the
// blocks after it.
const KeyBlocks = 7

// Generate generates a chain with the given number of masterchain blocks. The chain has states,
// balances that change, signatures of validators, and shards that split and merge. The result is
// deterministic: a shorter chain is the beginning of a longer one.
func Generate(masters int) *Chain { return generate(masters, 0) }

// GenerateSimplex is like [Generate], but from the third key block on, the signatures are votes of the
// Simplex consensus.
func GenerateSimplex(masters int) *Chain { return generate(masters, 2*KeyBlocks+1) }

func generate(masters int, simplex uint32) *Chain {
	m := &maker{
		Chain: newChain(), shards: map[uint64]lite.BlockID{wholeShard: {Shard: wholeShard}},
		states: make(map[lite.BlockID]*cell.Cell), prevs: cell.NewDict(32), seen: make(map[chaingql.Address]*big.Int),
		simplex: simplex,
	}
	m.zeroRoot, m.zeroFile = sha256.Sum256([]byte("zero state")), sha256.Sum256([]byte("zero state's file"))
	m.newest = lite.BlockID{Workchain: masterchain, Shard: wholeShard, Root: m.zeroRoot, File: m.zeroFile}
	for id := range maps.Values(m.shards) {
		m.states[id] = cell.BeginCell().EndCell()
	}
	m.states[m.newest] = cell.BeginCell().EndCell()
	for n := range masters {
		m.round(uint32(n + 1))
	}
	m.init, _ = m.master(1)
	slices.SortFunc(m.facts, func(a, b chaingql.Block) int { return cmp.Compare(a.Cursor, b.Cursor) })
	return m.Chain
}

// A maker generates a chain, one masterchain block after another.
type maker struct {
	*Chain
	newest lite.BlockID            // the newest masterchain block
	shards map[uint64]lite.BlockID // the newest block of each shard
	states map[lite.BlockID]*cell.Cell
	prevs  *cell.Dictionary // the masterchain blocks before the next one
	key    uint32           // seq_no of the newest key block
	signer validators
	config *cell.Cell // the network's configuration after the newest masterchain block
	// simplex is the seq_no of the first masterchain block that is signed by Simplex votes, or 0
	// if there is none.
	simplex uint32
	seen    map[chaingql.Address]*big.Int // balances after the newest block of each shard
}

// round generates a masterchain block and the shard blocks that are new in it.
func (m *maker) round(seqNo uint32) {
	at := 1_700_000_000 + 4*seqNo
	balances := accountsAt(seqNo)
	for _, shard := range slices.Sorted(maps.Keys(m.shards)) {
		for range (seqNo + uint32(shard>>60)) % 3 {
			m.grow(blockHeader{prev: []lite.BlockID{m.shards[shard]}}, shard, seqNo, at, balances)
		}
	}
	switch seqNo % 12 { // in some rounds, shards split or merge several times
	case 2:
		m.split(wholeShard, seqNo, at, balances)
	case 4:
		m.split(0xc<<60, seqNo, at, balances)
	case 7:
		m.merge(0xc<<60, seqNo, at, balances)
	case 9:
		m.split(0x4<<60, seqNo, at, balances)
		m.split(0x6<<60, seqNo, at, balances)
	case 11:
		m.merge(0x6<<60, seqNo, at, balances)
		m.merge(0x4<<60, seqNo, at, balances)
		m.merge(wholeShard, seqNo, at, balances)
	}
	m.commit(seqNo, at, balances)
	m.balances[seqNo] = maps.Clone(m.seen)
}

// split replaces a shard with its two halves and generates the first block of each half.
func (m *maker) split(shard uint64, seqNo, at uint32, balances map[chaingql.Address]*big.Int) {
	parent := m.shards[shard]
	delete(m.shards, shard)
	half := (shard & -shard) / 2
	for _, child := range []uint64{shard - half, shard + half} {
		m.grow(blockHeader{split: true, prev: []lite.BlockID{parent}}, child, seqNo, at, balances)
	}
}

// merge replaces the two halves of a shard with the shard and generates the first block of the
// shard.
func (m *maker) merge(shard uint64, seqNo, at uint32, balances map[chaingql.Address]*big.Int) {
	half := (shard & -shard) / 2
	left, right := m.shards[shard-half], m.shards[shard+half]
	delete(m.shards, shard-half)
	delete(m.shards, shard+half)
	m.grow(blockHeader{merge: true, prev: []lite.BlockID{left, right}}, shard, seqNo, at, balances)
}

// grow generates the next block of a shard. h contains the block's predecessors.
func (m *maker) grow(h blockHeader, shard uint64, master, at uint32, balances map[chaingql.Address]*big.Int) {
	for _, id := range h.prev {
		h.id.SeqNo = max(h.id.SeqNo, id.SeqNo+1)
	}
	h.id.Shard, h.time, h.master = shard, at-1, m.newest
	state := stateCell(h.id, h.time, balances, nil)
	id := m.keep(h, m.states[h.prev[0]], state, nil, master, balances)
	m.shards[shard] = id
}

// commit generates the masterchain block of a round.
func (m *maker) commit(seqNo, at uint32, balances map[chaingql.Address]*big.Int) {
	tops := slices.SortedFunc(maps.Values(m.shards), func(a, b lite.BlockID) int {
		return cmp.Compare(a.Shard, b.Shard)
	})
	h := blockHeader{
		id: lite.BlockID{Workchain: masterchain, Shard: wholeShard, SeqNo: seqNo}, time: at,
		key: seqNo%KeyBlocks == 1, session: seqNo / 3, prevKey: m.key, prev: []lite.BlockID{m.newest},
	}
	signer := m.signer
	if seqNo == 1 {
		signer = newValidators(0) // the validators in the zero state
	}
	h.set = signer.hash(h.session)
	next := signer
	if h.key {
		next = newValidators(byte(seqNo/KeyBlocks) + 1)
		m.config = next.config()
	}
	shards := shardsDict(tops)
	must(m.prevs.SetIntKey(big.NewInt(int64(m.newest.SeqNo)), cell.BeginCell().
		MustStoreBoolBit(m.signed[m.newest.SeqNo].toKey).MustStoreUInt(uint64(m.newest.SeqNo)*1_000_000+10, 64).
		MustStoreBoolBit(m.signed[m.newest.SeqNo].toKey).MustStoreBuilder(reference(m.newest)).EndCell()))
	info := cell.BeginCell().MustStoreUInt(0, 16).MustStoreUInt(uint64(h.set), 32).MustStoreUInt(uint64(h.session), 32).
		MustStoreBoolBit(false).MustStoreDict(m.prevs).MustStoreUInt(0, 1+64).MustStoreBoolBit(h.key).
		MustStoreBoolBit(false).EndCell()
	extra := cell.BeginCell().MustStoreUInt(0xcc26, 16).MustStoreDict(shards).MustStoreSlice(make([]byte, 32), 256).
		MustStoreRef(m.config).MustStoreRef(info).MustStoreUInt(0, 4+1).EndCell()
	state := stateCell(h.id, at, balances, extra)

	custom := cell.BeginCell().MustStoreUInt(0xcca5, 16).MustStoreBoolBit(h.key).MustStoreDict(shards).
		MustStoreUInt(0, 1+10).MustStoreRef(cell.BeginCell().MustStoreUInt(0, 4).EndCell())
	if h.key {
		custom.MustStoreSlice(make([]byte, 32), 256).MustStoreRef(m.config)
	}
	id := m.keep(h, m.states[m.newest], state, custom.EndCell(), seqNo, balances)
	m.blocks[id].tops, m.blocks[id].key = tops, m.key
	signed := lite.Link{To: id, Session: session, Slot: seqNo}
	if signed.Simplex = m.simplex > 0 && seqNo >= m.simplex; signed.Simplex {
		signed.Candidate = lite.Propose(id, m.newest.Root)
	}
	m.signed[seqNo] = signature{
		toKey: h.key, set: h.set, session: h.session, signatures: signer.sign(signed), candidate: signed.Candidate,
	}
	if m.newest, m.signer = id, next; h.key {
		m.key = seqNo
	}
}

// keep creates a block from its parts, adds it to the chain, and returns its id.
func (m *maker) keep(
	h blockHeader, before, after, custom *cell.Cell, master uint32, balances map[chaingql.Address]*big.Int,
) lite.BlockID {
	id, err := m.add(h.id.Workchain, h.id.Shard, h.id.SeqNo, blockCell(h, before, after, custom).ToBOC())
	must(err)
	m.states[id], m.Chain.states[id.Root] = after, after
	for addr, nano := range balances {
		if addr.Workchain == id.Workchain && contains(id.Shard, addr.ID) {
			m.seen[addr] = nano
		}
	}
	m.facts = append(m.facts, chaingql.Block{
		Workchain: id.Workchain, Shard: id.Shard, SeqNo: id.SeqNo, Hash: id.Root,
		Time:   time.Unix(int64(h.time), 0).UTC(),
		Cursor: chaingql.ChainOrder(id.Workchain, id.Shard, id.SeqNo, master),
	})
	return id
}

// accountsAt returns the balances of all accounts of a generated chain after a round. The
// masterchain and every shard have accounts.
func accountsAt(seqNo uint32) map[chaingql.Address]*big.Int {
	balances := make(map[chaingql.Address]*big.Int)
	for i := range uint32(24) {
		addr := chaingql.Address{ID: sha256.Sum256([]byte{'a', byte(i)})}
		if i%4 == 0 {
			addr.Workchain = masterchain
		} else {
			addr.ID[0] = byte(i) * 0x0b // distributes the accounts over the shards
		}
		nano := new(big.Int).Lsh(big.NewInt(int64(1+seqNo*i)), uint(i)*4) // up to 100 bits or so
		balances[addr] = nano.Add(nano, big.NewInt(int64(seqNo)))
	}
	balances[chaingql.Address{ID: [32]byte{0x70}}] = new(big.Int) // an account that exists and has a balance of zero
	most := new(big.Int).Lsh(big.NewInt(1), 120)
	balances[chaingql.Address{ID: [32]byte{0xf0, 1}}] = most.Sub(most, big.NewInt(1))
	return balances
}
