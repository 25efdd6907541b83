package lite

import (
	"crypto/sha256"
	"errors"
)

var (
	idBlockID     = constructor("ton.blockId root_cell_hash:int256 file_hash:int256 = ton.BlockId")
	idDataToSign  = constructor("consensus.dataToSign session_id:int256 data:bytes = consensus.DataToSign")
	idFinalize    = constructor("consensus.simplex.finalizeVote id:consensus.CandidateId = consensus.simplex.UnsignedVote")
	idCandidateID = constructor("consensus.candidateId slot:int hash:int256 = consensus.CandidateId")
	idCandidate   = constructor("consensus.candidateHashDataOrdinary block:tonNode.blockIdExt collated_file_hash:int256 parent:consensus.CandidateParent = consensus.CandidateHashData")
	idEmpty       = constructor("consensus.candidateHashDataEmpty block:tonNode.blockIdExt parent:consensus.candidateId = consensus.CandidateHashData")
)

var (
	errSigned    = errors.New("a block is signed in a way that is not known here")
	errCandidate = errors.New("another block was signed")
)

// KeyID is the short name of a key.
func KeyID(key []byte) [32]byte { return sha256.Sum256(append(number(nil, idEd25519), key...)) }

// SignedText is what validators signed of the block that a link leads to: its
// name, or, in the Simplex consensus, a vote that finalizes a candidate by its
// hash, which must be that block's.
func (l Link) SignedText() ([]byte, error) {
	if !l.Simplex {
		return append(append(number(nil, idBlockID), l.To.Root[:]...), l.To.File[:]...), nil
	}
	r := &reader{rest: l.Candidate}
	if kind := r.number(); kind != idCandidate && kind != idEmpty {
		return nil, errSigned
	}
	if id := r.blockID(); r.err != nil || id != l.To {
		return nil, errCandidate
	}
	hash := sha256.Sum256(l.Candidate)
	vote := append(number(number(number(nil, idFinalize), idCandidateID), l.Slot), hash[:]...)
	return text(append(number(nil, idDataToSign), l.Session[:]...), vote), nil
}

// Propose makes the candidate by which a block is voted for.
func Propose(id BlockID, parent [32]byte) []byte {
	candidate := id.append(number(nil, idCandidate))
	candidate = append(candidate, make([]byte, 32)...)
	candidate = number(number(number(candidate, constructor("consensus.candidateParent id:consensus.CandidateId = consensus.CandidateParent")), idCandidateID), id.SeqNo-1)
	return append(candidate, parent[:]...)
}
