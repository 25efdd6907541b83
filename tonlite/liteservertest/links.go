package liteservertest

import (
	"errors"
	"math/big"

	"github.com/chaingql/chaingql/tonlite/internal/lite"
	"github.com/xssnick/tonutils-go/tvm/cell"
)

// maxLinks is the maximum number of links in one response. Nodes send 16. It is smaller so that more
// proofs need several responses.
const maxLinks = 8

// blockProof returns a proof from one masterchain block to another. A proof of an earlier block
// is one backward link. A proof of a later block consists of forward links from key block to key
// block, which contain signatures.
func (s *Server) blockProof(q lite.GetBlockProof) (lite.Message, error) {
	known, err := s.linked(q.Known)
	if err != nil {
		return nil, err
	}
	if _, err := s.linked(q.Target); err != nil {
		return nil, err
	}
	p := lite.BlockProof{From: q.Known, To: q.Known}
	for p.To != q.Target && len(p.Links) < maxLinks {
		var l lite.Link
		b := known
		if p.To != q.Known {
			b = s.chain.blocks[p.To]
		}
		if p.To.SeqNo > q.Target.SeqNo {
			l, err = s.chain.back(p.To, q.Target)
		} else if !s.chain.signed[p.To.SeqNo].toKey {
			id, _ := s.chain.master(b.key)
			l, err = s.chain.back(p.To, id)
		} else {
			l, err = s.chain.forward(p.To, q.Target)
		}
		if err != nil {
			return nil, err
		}
		p.Links, p.To = append(p.Links, l), l.To
	}
	p.Complete = p.To == q.Target
	return p, nil
}

// linked returns a masterchain block that may be part of a proof. A key block may be part of a
// proof even after Forget, because lite servers never delete key blocks.
func (s *Server) linked(id lite.BlockID) (*block, error) {
	s.mu.Lock()
	head := s.head
	s.mu.Unlock()
	if b, ok := s.chain.blocks[id]; ok && s.chain.signed[id.SeqNo].toKey && id.SeqNo <= head {
		return b, nil
	}
	return s.block(id)
}

// session is the id of the session in which all Simplex votes are made.
var session = [32]byte{'s', 'e', 's', 's', 'i', 'o', 'n'}

// forward returns a forward link from a key block to the target or, if there is another key block
// before the target, to the next key block.
func (c *Chain) forward(from, target lite.BlockID) (l lite.Link, err error) {
	to := target
	for c.blocks[to].key != from.SeqNo {
		to, _ = c.master(c.blocks[to].key)
	}
	signed, ok := c.signed[to.SeqNo]
	if !ok {
		return l, errors.New("the block has no signatures")
	}
	sk := cell.CreateProofSkeleton()
	sk.ProofRef(0).SetRecursive()
	sk.ProofRef(3).ProofRef(3).SetRecursive() // the masterchain part with the configuration
	return lite.Link{
		ToKey: signed.toKey, From: from, To: to,
		Dest: headerProof(c.blocks[to].root).ToBOC(), Config: prove(c.blocks[from].root, sk).ToBOC(),
		SetHash: signed.set, Catchain: signed.session, Signatures: signed.signatures,
		Simplex: signed.candidate != nil, Session: session, Slot: to.SeqNo, Candidate: signed.candidate,
	}, nil
}

// back returns a backward link from a block to an earlier block, which the state after the first
// block lists.
func (c *Chain) back(from, to lite.BlockID) (l lite.Link, err error) {
	state, ok := c.states[from.Root]
	if !ok {
		return l, errMissing
	}
	sk := cell.CreateProofSkeleton()
	extra := sk.ProofRef(3)
	at := 0
	if custom := state.MustPeekRef(3); custom.RefsNum() == 3 {
		at = 1 // reference 0 is the shards
	}
	extra.ProofRef(at) // the configuration
	info := extra.ProofRef(at + 1)
	dict := state.MustPeekRef(3).MustPeekRef(at + 1).MustPeekRef(0).AsDict(32)
	key := cell.BeginCell().MustStoreBigUInt(big.NewInt(int64(to.SeqNo)), 32).EndCell()
	if _, _, err := dict.LoadValueWithProof(key, info.ProofRef(0)); err != nil {
		return l, err
	}
	return lite.Link{
		Back: true, ToKey: c.signed[to.SeqNo].toKey, From: from, To: to,
		Dest: headerProof(c.blocks[to].root).ToBOC(), Block: updateProof(c.blocks[from].root).ToBOC(),
		State: prove(state, sk).ToBOC(),
	}, nil
}

// shardProof returns a proof of the shards in the state after a masterchain block.
func (s *Server) shardProof(id lite.BlockID, b *block) []byte {
	state := s.chain.states[id.Root]
	sk := cell.CreateProofSkeleton()
	sk.ProofRef(3).SetRecursive()
	return cell.ToBOCWithFlags([]*cell.Cell{updateProof(b.root), prove(state, sk)}, true)
}

// shardsInfo returns the newest block of each shard to which a masterchain block commits, with a
// proof.
func shardsInfo(id lite.BlockID, b *block) (lite.Message, error) {
	sk := cell.CreateProofSkeleton()
	sk.ProofRef(0).SetRecursive()
	sk.ProofRef(3).ProofRef(3) // the masterchain part
	s := b.root.MustPeekRef(3).MustPeekRef(3).BeginParse()
	if _, err := s.LoadUInt(17); err != nil {
		return nil, err
	}
	shards, err := s.LoadDict(32)
	if err != nil {
		return nil, err
	}
	data := cell.BeginCell().MustStoreDict(shards).EndCell().ToBOC()
	return lite.AllShardsInfo{ID: id, Proof: prove(b.root, sk).ToBOC(), Data: data}, nil
}

// circle returns a proof with one link. The link leads from the first key block to the next one,
// or from any other block back to the first key block.
func (c *Chain) circle(q lite.GetBlockProof) lite.Message {
	link, err := c.forward(q.Known, q.Target)
	if q.Known != c.init {
		link, err = c.back(q.Known, c.init)
	}
	must(err)
	return lite.BlockProof{From: q.Known, To: link.To, Links: []lite.Link{link}}
}

// meander returns a proof with one link, which leads from a block to the next key block on the way to the target. If
// there is none, it returns a.
func (c *Chain) meander(q lite.GetBlockProof, a lite.BlockProof) lite.BlockProof {
	if first := a.Links[0]; len(a.Links) > 1 && !first.Back {
		return lite.BlockProof{From: q.Known, To: first.To, Links: a.Links[:1]}
	}
	for n := q.Known.SeqNo - 1; n > q.Target.SeqNo && n < q.Known.SeqNo; n-- {
		if c.signed[n].toKey {
			key, _ := c.master(n)
			link, err := c.back(q.Known, key)
			must(err)
			return lite.BlockProof{From: q.Known, To: key, Links: []lite.Link{link}}
		}
	}
	return a
}
