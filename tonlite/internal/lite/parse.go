package lite

// ParseAnswer reads what a server answered. Where that is an [Error] it is the
// error. Bytes in the answer are the message's own.
func ParseAnswer(message []byte) (Message, error) {
	r := &reader{rest: message}
	var m Message
	switch r.number() {
	case idError:
		e := Error{Code: int32(r.number()), Message: string(r.text())}
		r.fail(e)
		m = e
	case idMasterchainInfo:
		a := MasterchainInfo{Last: r.blockID(), State: r.hash()}
		r.number()
		a.ZeroRoot, a.ZeroFile = r.hash(), r.hash()
		m = a
	case idBlockData:
		m = BlockData{r.blockID(), r.text()}
	case idBlockHeader:
		m = BlockHeader{r.blockID(), r.number(), r.text()}
	case idAccountState:
		m = AccountState{r.blockID(), r.blockID(), r.text(), r.text(), r.text()}
	case idAllShardsInfo:
		m = AllShardsInfo{r.blockID(), r.text(), r.text()}
	case idPartialBlockProof:
		m = r.blockProof()
	default:
		r.fail(errUnexpected)
	}
	if r.err != nil {
		return nil, r.err
	}
	return m, nil
}

// most is how many links, and how many signatures of one, are looked at.
const most = 2000

func (r *reader) blockProof() (p BlockProof) {
	p.Complete, p.From, p.To = r.truth(), r.blockID(), r.blockID()
	for n := r.count(); n > 0 && r.err == nil; n-- {
		var l Link
		switch r.number() {
		case idLinkBack:
			l.Back = true
		case idLinkForward:
		default:
			r.fail(errUnexpected)
		}
		l.ToKey, l.From, l.To, l.Dest = r.truth(), r.blockID(), r.blockID(), r.text()
		if l.Back {
			l.Block, l.State = r.text(), r.text()
		} else {
			l.Config = r.text()
			switch r.number() {
			case idSignatureSet:
				l.SetHash, l.Catchain = r.number(), r.number()
			case idSimplexSet:
				l.Simplex = true
				l.Catchain, l.SetHash = r.number(), r.number()
			default:
				r.fail(errSigned)
			}
			for n := r.count(); n > 0 && r.err == nil; n-- {
				l.Signatures = append(l.Signatures, Signature{r.hash(), r.text()})
			}
			if l.Simplex {
				l.Session, l.Slot, l.Candidate = r.hash(), r.number(), r.text()
			}
		}
		p.Links = append(p.Links, l)
	}
	return p
}

func (r *reader) count() uint32 {
	n := r.number()
	if n > most {
		r.fail(errUnexpected)
		return 0
	}
	return n
}

// parseQuery reads what a client asked.
func parseQuery(message []byte) (Message, error) {
	r := &reader{rest: message}
	if r.number() != idLite {
		return nil, errUnexpected
	}
	r = &reader{rest: r.text()}
	q := r.query()
	return q, r.err
}

func (r *reader) query() Message {
	switch r.number() {
	case idWait:
		w := Wait{SeqNo: r.number(), Timeout: r.number()}
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
		if r.number() != 1 {
			r.fail(errUnexpected)
		}
		return LookupBlock{int32(r.number()), r.long(), r.number()}
	case idGetAccountState:
		return GetAccountState{r.blockID(), int32(r.number()), r.hash()}
	case idGetAllShardsInfo:
		return GetAllShardsInfo{r.blockID()}
	case idGetBlockProof:
		if r.number() != 1 {
			r.fail(errUnexpected)
		}
		return GetBlockProof{r.blockID(), r.blockID()}
	}
	r.fail(errUnexpected)
	return nil
}
