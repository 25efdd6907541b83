package lite

import (
	"crypto/sha256"
	"errors"
)

var (
	idBlockID    = constructor("ton.blockId root_cell_hash:int256 file_hash:int256 = ton.BlockId")
	idDataToSign = constructor("consensus.dataToSign session_id:int256 data:bytes = consensus.DataToSign")
	idFinalize   = constructor("consensus.simplex.finalizeVote id:consensus.CandidateId " +
		"= consensus.simplex.UnsignedVote")
	idCandidateID = constructor("consensus.candidateId slot:int hash:int256 = consensus.CandidateId")
	idCandidate   = constructor("consensus.candidateHashDataOrdinary block:tonNode.blockIdExt " +
		"collated_file_hash:int256 parent:consensus.CandidateParent = consensus.CandidateHashData")
	idEmpty = constructor("consensus.candidateHashDataEmpty block:tonNode.blockIdExt " +
		"parent:consensus.candidateId = consensus.CandidateHashData")
)

var (
	errSigned    = errors.New("unknown kind of signatures")
	errCandidate = errors.New("the signatures are for another block")
)

// KeyID returns the hash by which the protocol identifies an Ed25519 public key.
func KeyID(key []byte) [32]byte { return sha256.Sum256(append(appendUint32(nil, idEd25519), key...)) }

// SignedText returns the text that validators signed for the block l.To. This is the block's id
// or, in the Simplex consensus, a vote that finalizes a candidate. SignedText returns an error if
// the candidate is for another block.
func (l Link) SignedText() ([]byte, error) {
	if !l.Simplex {
		return append(append(appendUint32(nil, idBlockID), l.To.Root[:]...), l.To.File[:]...), nil
	}
	r := &reader{rest: l.Candidate}
	if kind := r.readUint32(); kind != idCandidate && kind != idEmpty {
		return nil, errSigned
	}
	if id := r.blockID(); r.err != nil || id != l.To {
		return nil, errCandidate
	}
	hash := sha256.Sum256(l.Candidate)
	vote := append(appendUint32(appendUint32(appendUint32(nil, idFinalize), idCandidateID), l.Slot), hash[:]...)
	return appendBytes(append(appendUint32(nil, idDataToSign), l.Session[:]...), vote), nil
}

// Propose returns a candidate of the Simplex consensus for a block. parent is the hash of the
// previous candidate. Test servers sign the result.
func Propose(id BlockID, parent [32]byte) []byte {
	candidate := id.append(appendUint32(nil, idCandidate))
	candidate = append(candidate, make([]byte, 32)...)
	candidate = appendUint32(appendUint32(appendUint32(candidate,
		constructor("consensus.candidateParent id:consensus.CandidateId = consensus.CandidateParent")), idCandidateID),
		id.SeqNo-1)
	return append(candidate, parent[:]...)
}
