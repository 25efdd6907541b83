package tonlite

import (
	"crypto/ed25519"
	"encoding/binary"
	"fmt"

	"github.com/chaingql/chaingql/tonlite/internal/lite"
	"github.com/xssnick/tonutils-go/tvm/cell"
)

// forward checks that a block was signed by the validators whom the newest key
// block before it names.
func forward(l lite.Link) error {
	root, err := shown(l.Dest, l.To.Root, maxPathCells)
	if err != nil {
		return err
	}
	h, err := parseHeader(root, l.To)
	if err != nil {
		return err
	}
	switch {
	case h.prevKey != l.From.SeqNo:
		return fmt.Errorf("%w: a key block is passed over", errProof)
	case h.key != l.ToKey, h.set != l.SetHash, h.session != l.Catchain:
		return fmt.Errorf("%w: the block says other things of itself", errProof)
	}
	if root, err = shown(l.Config, l.From.Root, maxConfigCells); err != nil {
		return err
	}
	validators, err := parseValidators(root, h.session)
	if err != nil {
		return err
	}
	if setHash(validators, h.session) != h.set {
		return fmt.Errorf("%w: other validators than the block names", errProof)
	}
	return signed(l, validators)
}

// shown is the tree that a proof in a bag of its own shows.
func shown(data []byte, hash [32]byte, limit int) (*cell.Cell, error) {
	roots, err := parseCells(data, 1, limit)
	if err != nil {
		return nil, err
	}
	return proven(roots[0], hash)
}

// signed sees that more than two thirds of the validators' weight signed.
func signed(l lite.Link, validators []validator) error {
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
			return fmt.Errorf("%w: a signature is nobody's", errProof)
		}
		delete(known, s.Node) // nobody counts twice
		weight += v.weight
	}
	if weight <= total/3*2+total%3*2/3 {
		return fmt.Errorf("%w: too few signed it", errProof)
	}
	return nil
}

// back checks that a block is named in the state of a later one.
func back(l lite.Link) error {
	block, err := shown(l.Block, l.From.Root, maxPathCells)
	if err != nil {
		return err
	}
	hash, err := stateRoot(block)
	if err != nil {
		return err
	}
	state, err := shown(l.State, hash, maxPathCells)
	if err != nil {
		return err
	}
	extra, err := state.PeekRef(3)
	if err != nil {
		return err
	}
	s, err := open(extra)
	if err != nil {
		return err
	}
	in := scan{Slice: s}
	in.expect(16, 0xcc26, "state of the masterchain")
	at := 1 // behind the configuration
	if in.flag() {
		at++ // and the shards
	}
	if in.err != nil {
		return in.err
	}
	info, err := below(extra, at)
	if err != nil {
		return err
	}
	in = scan{Slice: info}
	in.number(16)
	in.number(32 + 32) // validators
	in.number(1)
	if !in.flag() || in.err != nil {
		return fmt.Errorf("%w: the state has no earlier blocks", errProof)
	}
	dict, err := info.LoadRefCell()
	if err != nil {
		return err
	}
	leaf, err := find(dict, binary.BigEndian.AppendUint32(nil, l.To.SeqNo))
	if err != nil {
		return fmt.Errorf("%w: %w", errProof, err)
	}
	in = scan{Slice: leaf}
	in.number(1)
	in.number(64) // max_lt
	key := in.flag()
	in.number(64) // end_lt
	seqNo, root, file := uint32(in.number(32)), in.hash(), in.hash()
	if in.err != nil {
		return in.err
	}
	if key != l.ToKey || (lite.BlockID{Workchain: masterchain, Shard: wholeShard, SeqNo: seqNo, Root: root, File: file}) != l.To {
		return fmt.Errorf("%w: the state names another block", errProof)
	}
	return nil
}
