package lite

import (
	"crypto/ed25519"
	"unicode/utf8"
)

// maxErrorText is the maximum number of bytes that are kept of the text of an [Error]. A response
// may have megabytes, and a call keeps the error of each server until another one has replied.
const maxErrorText = 200

// ParseAnswer parses a response. If the response is an [Error], ParseAnswer returns it as the
// error, with a copy of at most the first 200 bytes of its text. The byte slices in any other result
// share memory with message.
func ParseAnswer(message []byte) (Message, error) {
	r := &reader{rest: message}
	var m Message
	switch r.readUint32() {
	case idError:
		e := Error{Code: int32(r.readUint32()), Message: errorText(r.readBytes())}
		r.fail(e)
		m = e
	case idMasterchainInfo:
		a := MasterchainInfo{Last: r.blockID(), State: r.readHash()}
		r.readUint32()
		a.ZeroRoot, a.ZeroFile = r.readHash(), r.readHash()
		m = a
	case idBlockData:
		m = BlockData{r.blockID(), r.readBytes()}
	case idBlockHeader:
		m = BlockHeader{r.blockID(), r.readUint32(), r.readBytes()}
	case idAccountState:
		m = AccountState{r.blockID(), r.blockID(), r.readBytes(), r.readBytes(), r.readBytes()}
	case idAllShardsInfo:
		m = AllShardsInfo{r.blockID(), r.readBytes(), r.readBytes()}
	case idPartialBlockProof:
		m = r.blockProof()
	default:
		r.fail(errUnexpected)
	}
	if len(r.rest) > 0 {
		r.fail(errUnexpected) // no server sends more, so nobody would notice megabytes
	}
	if r.err != nil {
		return nil, r.err
	}
	return m, nil
}

// maxSmall is the maximum size in bytes of a response that is neither a block, nor a proof of a masterchain block, nor
// a whole account. It is above the size of the largest bag of cells that is accepted as a proof of one account.
const maxSmall = 512 << 10

// maxAnswer returns the maximum size in bytes of a response to q. Parts of responses are not read, and could have
// megabytes otherwise.
func maxAnswer(q Message) int {
	switch q := q.(type) {
	case Wait:
		return maxAnswer(q.Then)
	case GetBlock, GetBlockProof:
		return maxPacket
	case GetAccountState:
		if q.Whole {
			return maxPacket
		}
	}
	return maxSmall
}

// errorText returns the start of the text of an [Error], without a part of a character at its end.
func errorText(text []byte) string {
	if len(text) > maxErrorText {
		end := maxErrorText
		for end > maxErrorText-utf8.UTFMax && !utf8.RuneStart(text[end]) {
			end--
		}
		text = text[:end]
	}
	return string(text)
}

const (
	// maxLinks is the maximum number of links in a response. Nodes send 16.
	maxLinks = 32
	// maxSignatures is the maximum number of signatures in all links of a response. The links
	// may have the signatures of some hundred validators each.
	maxSignatures = 1 << 15
	// signatureSize is the number of bytes of a signature in a message. It is more than the memory of a
	// parsed Signature. Shorter signatures would need more memory than their message.
	signatureSize = 32 + 68
)

func (r *reader) blockProof() (p BlockProof) {
	p.Complete, p.From, p.To = r.truth(), r.blockID(), r.blockID()
	signatures := uint32(maxSignatures)
	for n := r.count(maxLinks); n > 0 && r.err == nil; n-- {
		var l Link
		switch r.readUint32() {
		case idLinkBack:
			l.Back = true
		case idLinkForward:
		default:
			r.fail(errUnexpected)
		}
		l.ToKey, l.From, l.To, l.Dest = r.truth(), r.blockID(), r.blockID(), r.readBytes()
		if l.Back {
			l.Block, l.State = r.readBytes(), r.readBytes()
		} else {
			l.Config = r.readBytes()
			switch r.readUint32() {
			case idSignatureSet:
				l.SetHash, l.Catchain = r.readUint32(), r.readUint32()
			case idSimplexSet:
				l.Simplex = true
				l.Catchain, l.SetHash = r.readUint32(), r.readUint32()
			default:
				r.fail(errSigned)
			}
			n := r.count(signatures)
			if len(r.rest) < int(n)*signatureSize {
				r.fail(errShort)
				return p
			}
			l.Signatures = make([]Signature, n)
			for i := range l.Signatures {
				l.Signatures[i] = Signature{r.readHash(), r.readBytes()}
				if len(l.Signatures[i].Sign) != ed25519.SignatureSize {
					r.fail(errUnexpected)
				}
			}
			signatures -= n
			if l.Simplex {
				l.Session, l.Slot, l.Candidate = r.readHash(), r.readUint32(), r.readBytes()
			}
		}
		p.Links = append(p.Links, l)
	}
	return p
}

// count reads the number of links or signatures that follow, which may be at most limit.
func (r *reader) count(limit uint32) uint32 {
	n := r.readUint32()
	if n > limit {
		r.fail(errUnexpected)
		return 0
	}
	return n
}

// parseQuery parses a query that a client has sent.
func parseQuery(message []byte) (Message, error) {
	r := &reader{rest: message}
	if r.readUint32() != idLite {
		return nil, errUnexpected
	}
	r = &reader{rest: r.readBytes()}
	q := r.query()
	return q, r.err
}

func (r *reader) query() Message {
	switch id := r.readUint32(); id {
	case idWait:
		w := Wait{SeqNo: r.readUint32(), Timeout: r.readUint32()}
		if w.Then = r.query(); w.Then == nil {
			return nil
		}
		return w
	case idGetMasterchainInfo:
		return GetMasterchainInfo{}
	case idGetBlock:
		return GetBlock{r.blockID()}
	case idGetBlockHeader:
		return GetBlockHeader{r.blockID()}
	case idLookupBlock:
		if r.readUint32() != 1 {
			r.fail(errUnexpected)
		}
		return LookupBlock{int32(r.readUint32()), r.readUint64(), r.readUint32()}
	case idGetAccountState, idGetWholeAccountState:
		return GetAccountState{r.blockID(), int32(r.readUint32()), r.readHash(), id == idGetWholeAccountState}
	case idGetAllShardsInfo:
		return GetAllShardsInfo{r.blockID()}
	case idGetBlockProof:
		if r.readUint32() != 1 {
			r.fail(errUnexpected)
		}
		return GetBlockProof{r.blockID(), r.blockID()}
	}
	r.fail(errUnexpected)
	return nil
}
