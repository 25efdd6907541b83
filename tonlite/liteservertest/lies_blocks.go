package liteservertest

import "github.com/chaingql/chaingql/tonlite/internal/lite"

// lookup returns the response to a lookup of a block that the Server has. a is the true response.
func (l Lie) lookup(c *Chain, q lite.LookupBlock, a lite.BlockHeader) lite.Message {
	master := q.Workchain == masterchain
	switch {
	case l == FalseHistory || l == FalsePast && q.SeqNo%4 == 2:
		a.ID, _ = c.forge(a.ID)
	case l == FalseIDs && master && q.SeqNo%4 != 0:
		a.ID.Root[0]++
	case l == Unlisted && !master:
		return lite.Error{Code: lite.CodeNotFound, Message: errMissing.Error()}
	case l == OtherShard && !master:
		id := lite.BlockID{Shard: wholeShard, SeqNo: q.SeqNo, Root: [32]byte{1}}
		if q.Shard == wholeShard {
			id.Shard /= 2
		}
		return lite.BlockHeader{ID: id}
	case l == FalseCreation && !master:
		return c.creation(a, c.last)
	case l == EarlyCreation && !master:
		return c.creation(a, 1)
	default:
		a.Proof = l.spoil(a.Proof)
	}
	return a
}

// creation returns the header of a forged block, which claims to have been created after the masterchain block with
// the given seq_no. a is the true header.
func (c *Chain) creation(a lite.BlockHeader, seqNo uint32) lite.BlockHeader {
	master, _ := c.master(seqNo)
	root := c.blocks[a.ID].root
	root = withRef(root, 0, withRef(root.MustPeekRef(0), 0, reference(master).EndCell()))
	a.ID.Root, a.Proof = [32]byte(root.Hash(0)), headerProof(root).ToBOC()
	return a
}

// header returns the response to a query for the header of a block that the Server has. a is the true response.
func (l Lie) header(c *Chain, a lite.BlockHeader) lite.Message {
	switch l {
	case FalseHeader:
		_, forged := c.forge(a.ID)
		a.Proof = headerProof(forged).ToBOC()
	case FalseNumber:
		a.Proof = headerProof(c.other(a.ID).root).ToBOC()
	default:
		a.Proof = l.spoil(a.Proof)
	}
	return a
}
