package tonlite

import (
	"errors"
	"math/big"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite/internal/cell"
	"github.com/chaingql/chaingql/tonlite/internal/lite"
)

// stateHash returns the hash of the state after a block. It reads the hash from the block's
// Merkle update.
func stateHash(block *cell.Cell) (h [32]byte, err error) {
	update, err := block.Ref(2)
	if err != nil {
		return h, err
	}
	if update.Type() != cell.MerkleUpdate {
		return h, errPruned
	}
	return update.Stated(1), nil
}

// verifyBalance verifies a response about an account and returns the account's balance. The
// response must contain a proof of the block and a proof of the state after the block.
// verifyBalance returns ErrNotFound only if these proofs show that the account does not exist.
func verifyBalance(answer lite.AccountState, block lite.BlockID, account [32]byte) (*big.Int, error) {
	proofs, err := cell.Parse(answer.Proof, 2, maxPathCells)
	if err != nil {
		return nil, err
	}
	root, err := unwrapProof(proofs[0], block.Root)
	if err != nil {
		return nil, err
	}
	hash, err := stateHash(root)
	if err != nil {
		return nil, err
	}
	state, err := unwrapProof(proofs[1], hash)
	if err != nil {
		return nil, err
	}
	s, err := openCell(state)
	if err != nil {
		return nil, err
	}
	in := cellReader{Slice: s}
	in.expect(32, 0x9023afe2, "shard_state")
	if in.err != nil {
		return nil, in.err
	}
	accounts, err := openRef(state, 1)
	if err != nil {
		return nil, err
	}
	some, err := accounts.Bool()
	if err != nil {
		return nil, err
	}
	if !some {
		return nil, chaingql.ErrNotFound
	}
	dict, err := accounts.Ref()
	if err != nil {
		return nil, err
	}
	leaf, err := lookUp(dict, account[:])
	if errors.Is(err, errNoKey) {
		return nil, chaingql.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	if _, err := leaf.Uint(5); err != nil { // split_depth
		return nil, err
	}
	return leaf.Coins() // part of the proof, so the account's own cells are not needed
}
