package tonlite

import (
	"crypto/ed25519"
	"encoding/binary"
	"fmt"

	"github.com/chaingql/chaingql/tonlite/internal/cell"
	"github.com/chaingql/chaingql/tonlite/internal/lite"
)

// checkForward checks a forward link, which leads from a key block to a later block: the
// validators that the key block names must have signed the later block.
func checkForward(l lite.Link) error {
	root, err := openProof(l.Dest, l.To.Root, maxPathCells)
	if err != nil {
		return err
	}
	h, err := parseHeader(root, l.To)
	if err != nil {
		return err
	}
	switch {
	case h.prevKey != l.From.SeqNo:
		return fmt.Errorf("%w: a link skips a key block", errProof)
	case h.key != l.ToKey, h.set != l.SetHash, h.session != l.Catchain:
		return fmt.Errorf("%w: a link does not match the header of its target block", errProof)
	}
	if root, err = openProof(l.Config, l.From.Root, maxConfigCells); err != nil {
		return err
	}
	validators, err := parseValidators(root, h.session)
	if err != nil {
		return err
	}
	if setHash(validators, h.session) != h.set {
		return fmt.Errorf("%w: the validator set does not match the block's header", errProof)
	}
	return checkSignatures(l, validators)
}

// openProof parses data, a bag of at most limit cells that contains one Merkle proof, and returns
// the root of the tree in that proof. It returns an error unless that root has the given hash.
func openProof(data []byte, hash [32]byte, limit int) (*cell.Cell, error) {
	roots, err := cell.Parse(data, 1, limit)
	if err != nil {
		return nil, err
	}
	return unwrapProof(roots[0], hash)
}

// checkSignatures checks that validators with more than two thirds of the total weight signed the
// target of l.
func checkSignatures(l lite.Link, validators []validator) error {
	text, err := l.SignedText()
	if err != nil {
		return fmt.Errorf("%w: %w", errProof, err)
	}
	var total, weight uint64
	known := make(map[[32]byte]validator, len(validators))
	for _, v := range validators {
		if total+v.weight < total {
			return errConfig
		}
		total += v.weight
		known[lite.KeyID(v.key[:])] = v
	}
	for _, s := range l.Signatures {
		v, ok := known[s.Node]
		if !ok || !ed25519.Verify(v.key[:], text, s.Sign) {
			return fmt.Errorf("%w: a signature is invalid, repeated, or not from a validator", errProof)
		}
		delete(known, s.Node) // each validator counts once
		weight += v.weight
	}
	if weight <= total/3*2+total%3*2/3 {
		return fmt.Errorf("%w: too few signatures", errProof)
	}
	return nil
}

// checkBack checks a backward link, which leads from a block to an earlier block: the state after
// the first block must list the earlier block.
func checkBack(l lite.Link) error {
	block, err := openProof(l.Block, l.From.Root, maxPathCells)
	if err != nil {
		return err
	}
	hash, err := stateHash(block)
	if err != nil {
		return err
	}
	state, err := openProof(l.State, hash, maxPathCells)
	if err != nil {
		return err
	}
	extra, err := state.Ref(3)
	if err != nil {
		return err
	}
	s, err := openCell(extra)
	if err != nil {
		return err
	}
	in := cellReader{Slice: s}
	in.expect(16, 0xcc26, "masterchain_state_extra")
	at := 1 // reference 0 is the configuration
	if in.readBool() {
		at++ // reference 0 is the shards, reference 1 the configuration
	}
	if in.err != nil {
		return in.err
	}
	info, err := openRef(extra, at)
	if err != nil {
		return err
	}
	in = cellReader{Slice: info}
	in.readUint(16)
	in.readUint(32 + 32) // validators
	in.readUint(1)
	if !in.readBool() || in.err != nil {
		return fmt.Errorf("%w: the state lists no earlier blocks", errProof)
	}
	dict, err := info.Ref()
	if err != nil {
		return err
	}
	leaf, err := lookUp(dict, binary.BigEndian.AppendUint32(nil, l.To.SeqNo))
	if err != nil {
		return fmt.Errorf("%w: %w", errProof, err)
	}
	in = cellReader{Slice: leaf}
	in.readUint(1)
	in.readUint(64) // max_lt
	key := in.readBool()
	in.readUint(64) // end_lt
	seqNo, root, file := uint32(in.readUint(32)), in.readHash(), in.readHash()
	if in.err != nil {
		return in.err
	}
	named := lite.BlockID{Workchain: masterchain, Shard: wholeShard, SeqNo: seqNo, Root: root, File: file}
	if key != l.ToKey || named != l.To {
		return fmt.Errorf("%w: the state lists another block with this seq_no", errProof)
	}
	return nil
}
