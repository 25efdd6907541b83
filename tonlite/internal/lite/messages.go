package lite

import (
	"errors"
	"fmt"
)

var errUnexpected = errors.New("unexpected or malformed message")

// These are the constructor ids of the messages that this package uses.
var (
	idEd25519      = constructor("pub.ed25519 key:int256 = PublicKey")
	idQuery        = constructor("adnl.message.query query_id:int256 query:bytes = adnl.Message")
	idAnswer       = constructor("adnl.message.answer query_id:int256 answer:bytes = adnl.Message")
	idPing         = constructor("tcp.ping random_id:long = tcp.Pong")
	idPong         = constructor("tcp.pong random_id:long = tcp.Pong")
	idAuthenticate = constructor("tcp.authentificate nonce:bytes = tcp.Message")
	idNonce        = constructor("tcp.authentificationNonce nonce:bytes = tcp.Message")
	idLite         = constructor("liteServer.query data:bytes = Object")
	idError        = constructor("liteServer.error code:int message:string = liteServer.Error")
	idWait         = constructor("liteServer.waitMasterchainSeqno seqno:int timeout_ms:int = Object")

	idGetMasterchainInfo = constructor("liteServer.getMasterchainInfo = liteServer.MasterchainInfo")
	idGetBlock           = constructor("liteServer.getBlock id:tonNode.blockIdExt = liteServer.BlockData")
	idGetBlockHeader     = constructor("liteServer.getBlockHeader id:tonNode.blockIdExt mode:# " +
		"= liteServer.BlockHeader")
	idLookupBlock = constructor("liteServer.lookupBlock mode:# id:tonNode.blockId " +
		"lt:mode.1?long utime:mode.2?int = liteServer.BlockHeader")
	idGetAccountState = constructor("liteServer.getAccountStatePrunned id:tonNode.blockIdExt " +
		"account:liteServer.accountId = liteServer.AccountState")
	idGetWholeAccountState = constructor("liteServer.getAccountState id:tonNode.blockIdExt " +
		"account:liteServer.accountId = liteServer.AccountState")
	idGetAllShardsInfo = constructor("liteServer.getAllShardsInfo id:tonNode.blockIdExt = liteServer.AllShardsInfo")
	idGetBlockProof    = constructor("liteServer.getBlockProof mode:# known_block:tonNode.blockIdExt " +
		"target_block:mode.0?tonNode.blockIdExt = liteServer.PartialBlockProof")

	idMasterchainInfo = constructor("liteServer.masterchainInfo last:tonNode.blockIdExt state_root_hash:int256 " +
		"init:tonNode.zeroStateIdExt = liteServer.MasterchainInfo")
	idBlockData   = constructor("liteServer.blockData id:tonNode.blockIdExt data:bytes = liteServer.BlockData")
	idBlockHeader = constructor("liteServer.blockHeader id:tonNode.blockIdExt mode:# header_proof:bytes " +
		"= liteServer.BlockHeader")
	idAccountState = constructor("liteServer.accountState id:tonNode.blockIdExt shardblk:tonNode.blockIdExt " +
		"shard_proof:bytes proof:bytes state:bytes = liteServer.AccountState")
	idAllShardsInfo = constructor("liteServer.allShardsInfo id:tonNode.blockIdExt proof:bytes data:bytes " +
		"= liteServer.AllShardsInfo")
	idPartialBlockProof = constructor("liteServer.partialBlockProof complete:Bool from:tonNode.blockIdExt " +
		"to:tonNode.blockIdExt steps:vector liteServer.BlockLink = liteServer.PartialBlockProof")
	idLinkBack = constructor("liteServer.blockLinkBack to_key_block:Bool from:tonNode.blockIdExt " +
		"to:tonNode.blockIdExt dest_proof:bytes proof:bytes state_proof:bytes = liteServer.BlockLink")
	idLinkForward = constructor("liteServer.blockLinkForward to_key_block:Bool from:tonNode.blockIdExt " +
		"to:tonNode.blockIdExt dest_proof:bytes config_proof:bytes signatures:liteServer.SignatureSet " +
		"= liteServer.BlockLink")
	idSimplexSet = constructor("liteServer.signatureSet.simplex cc_seqno:int validator_set_hash:int " +
		"signatures:vector liteServer.signature session_id:int256 slot:int candidate:bytes " +
		"= liteServer.SignatureSet")
	idSignatureSet = constructor("liteServer.signatureSet validator_set_hash:int catchain_seqno:int " +
		"signatures:vector liteServer.signature = liteServer.SignatureSet")
)

const idTrue, idFalse uint32 = 0x997275b5, 0xbc799737

// These are the values of Error.Code.
const (
	CodeRateLimit = 228
	CodeNotFound  = 651
	CodeTimeout   = 652
)

// An Error is the response of a server that does not have the requested data or that rejects the
// query.
type Error struct {
	Code    int32
	Message string
}

func (e Error) Error() string {
	return fmt.Sprintf("the server responded with error %d: %.200q", e.Code, e.Message)
}

// Is reports whether target is an Error with the same code and no message.
func (e Error) Is(target error) bool { return target == Error{Code: e.Code} }

// A BlockID identifies a block by its position and its hashes.
type BlockID struct {
	Workchain int32
	Shard     uint64
	SeqNo     uint32
	Root      [32]byte // hash of the block's root cell
	File      [32]byte // SHA-256 of the serialized block
}

func (id BlockID) String() string {
	return fmt.Sprintf("(%d,%016x,%d):%x", id.Workchain, id.Shard, id.SeqNo, id.Root)
}

// Overlap reports whether one of two shards contains the other.
func Overlap(a, b uint64) bool {
	bit := max(a&-a, b&-b)
	return (a^b)&^(bit<<1-1) == 0
}

func (id BlockID) append(dst []byte) []byte {
	dst = appendUint32(appendUint64(appendUint32(dst, uint32(id.Workchain)), id.Shard), id.SeqNo)
	return append(append(dst, id.Root[:]...), id.File[:]...)
}

func (r *reader) blockID() (id BlockID) {
	id.Workchain, id.Shard, id.SeqNo = int32(r.readUint32()), r.readUint64(), r.readUint32()
	id.Root, id.File = r.readHash(), r.readHash()
	return id
}

// These types are the queries. Each is a [Message].
type (
	GetMasterchainInfo struct{}
	GetBlock           struct{ ID BlockID }
	GetBlockHeader     struct{ ID BlockID }
	LookupBlock        struct {
		Workchain int32
		Shard     uint64
		SeqNo     uint32
	}
	// GetAccountState requests the proof of an account. Unless Whole is set, the response does
	// not have the account's code and data, which may be megabytes.
	GetAccountState struct {
		ID        BlockID
		Workchain int32
		Account   [32]byte
		Whole     bool
	}
	GetAllShardsInfo struct{ ID BlockID }
	GetBlockProof    struct{ Known, Target BlockID }
	// Wait asks the server to wait until it has the masterchain block SeqNo, and then to answer
	// the query Then. After Timeout, the server responds with CodeTimeout.
	Wait struct {
		SeqNo   uint32
		Timeout uint32 // milliseconds
		Then    Message
	}
)

// These types are the responses, in addition to [Error]. Each is a [Message].
type (
	MasterchainInfo struct {
		Last               BlockID
		State              [32]byte
		ZeroRoot, ZeroFile [32]byte
	}
	BlockData struct {
		ID   BlockID
		Data []byte
	}
	BlockHeader struct {
		ID    BlockID
		Mode  uint32
		Proof []byte
	}
	AccountState struct {
		ID, Shard                BlockID
		ShardProof, Proof, State []byte
	}
	AllShardsInfo struct {
		ID          BlockID
		Proof, Data []byte
	}
	BlockProof struct {
		Complete bool
		From, To BlockID
		Links    []Link
	}
)

// A Link proves one masterchain block, To, if another one, From, is trusted. A forward link
// contains the signatures of validators for To. A backward link contains a proof that the state
// after From lists To.
type Link struct {
	ToKey    bool
	From, To BlockID
	Dest     []byte // proof of the header of the block To
	// Block and State are set in backward links only: a proof of the block From, and a proof of
	// the state after it.
	Back         bool
	Block, State []byte
	// The following fields are set in forward links only: a proof of the validators that From
	// names, and their signatures for To.
	Config     []byte
	SetHash    uint32
	Catchain   uint32
	Signatures []Signature
	// The following fields are set only if the signatures are votes of the Simplex consensus.
	// Such a vote is for a candidate, which contains the block id.
	Simplex   bool
	Session   [32]byte
	Slot      uint32
	Candidate []byte
}

// A Signature is the signature of one validator. Node is the hash of the validator's key.
type Signature struct {
	Node [32]byte
	Sign []byte
}

// A Message is a query or a response of the lite server protocol.
type Message interface{ append(dst []byte) []byte }

func (e Error) append(dst []byte) []byte {
	return appendBytes(appendUint32(appendUint32(dst, idError), uint32(e.Code)), []byte(e.Message))
}

func (GetMasterchainInfo) append(dst []byte) []byte { return appendUint32(dst, idGetMasterchainInfo) }

func (q GetBlock) append(dst []byte) []byte { return q.ID.append(appendUint32(dst, idGetBlock)) }

func (q GetBlockHeader) append(dst []byte) []byte {
	return appendUint32(q.ID.append(appendUint32(dst, idGetBlockHeader)), 0)
}

func (q LookupBlock) append(dst []byte) []byte {
	dst = appendUint32(appendUint32(dst, idLookupBlock), 1) // the lookup is by seqno
	return appendUint32(appendUint64(appendUint32(dst, uint32(q.Workchain)), q.Shard), q.SeqNo)
}

func (q GetAccountState) append(dst []byte) []byte {
	id := idGetAccountState
	if q.Whole {
		id = idGetWholeAccountState
	}
	dst = appendUint32(q.ID.append(appendUint32(dst, id)), uint32(q.Workchain))
	return append(dst, q.Account[:]...)
}

func (q GetAllShardsInfo) append(dst []byte) []byte {
	return q.ID.append(appendUint32(dst, idGetAllShardsInfo))
}

func (q GetBlockProof) append(dst []byte) []byte {
	return q.Target.append(q.Known.append(appendUint32(appendUint32(dst, idGetBlockProof), 1)))
}

func (q Wait) append(dst []byte) []byte {
	return q.Then.append(appendUint32(appendUint32(appendUint32(dst, idWait), q.SeqNo), q.Timeout))
}

func (a MasterchainInfo) append(dst []byte) []byte {
	dst = append(a.Last.append(appendUint32(dst, idMasterchainInfo)), a.State[:]...)
	dst = appendUint32(dst, 0xffffffff) // workchain -1, the masterchain
	return append(append(dst, a.ZeroRoot[:]...), a.ZeroFile[:]...)
}

func (a BlockData) append(dst []byte) []byte {
	return appendBytes(a.ID.append(appendUint32(dst, idBlockData)), a.Data)
}

func (a BlockHeader) append(dst []byte) []byte {
	return appendBytes(appendUint32(a.ID.append(appendUint32(dst, idBlockHeader)), a.Mode), a.Proof)
}

func (a AccountState) append(dst []byte) []byte {
	dst = a.Shard.append(a.ID.append(appendUint32(dst, idAccountState)))
	return appendBytes(appendBytes(appendBytes(dst, a.ShardProof), a.Proof), a.State)
}

func (a AllShardsInfo) append(dst []byte) []byte {
	return appendBytes(appendBytes(a.ID.append(appendUint32(dst, idAllShardsInfo)), a.Proof), a.Data)
}

func (a BlockProof) append(dst []byte) []byte {
	dst = a.To.append(a.From.append(appendBool(appendUint32(dst, idPartialBlockProof), a.Complete)))
	dst = appendUint32(dst, uint32(len(a.Links)))
	for _, l := range a.Links {
		id := idLinkForward
		if l.Back {
			id = idLinkBack
		}
		dst = appendBytes(l.To.append(l.From.append(appendBool(appendUint32(dst, id), l.ToKey))), l.Dest)
		if l.Back {
			dst = appendBytes(appendBytes(dst, l.Block), l.State)
			continue
		}
		if dst = appendBytes(dst, l.Config); l.Simplex { // the Simplex message has these fields in another order
			dst = appendUint32(appendUint32(appendUint32(dst, idSimplexSet), l.Catchain), l.SetHash)
		} else {
			dst = appendUint32(appendUint32(appendUint32(dst, idSignatureSet), l.SetHash), l.Catchain)
		}
		dst = appendUint32(dst, uint32(len(l.Signatures)))
		for _, s := range l.Signatures {
			dst = appendBytes(append(dst, s.Node[:]...), s.Sign)
		}
		if l.Simplex {
			dst = appendBytes(appendUint32(append(dst, l.Session[:]...), l.Slot), l.Candidate)
		}
	}
	return dst
}
