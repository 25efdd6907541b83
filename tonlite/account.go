package tonlite

import (
	"errors"
	"fmt"
	"math/big"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite/internal/lite"
	"github.com/xssnick/tonutils-go/tvm/cell"
)

// stateRoot is the hash of the state after a block, as the block has it.
func stateRoot(block *cell.Cell) (h [32]byte, err error) {
	update, err := block.PeekRef(2)
	if err != nil {
		return h, err
	}
	if update.GetType() != cell.MerkleUpdateCellType {
		return h, errPruned
	}
	copy(h[:], update.ToRawUnsafe().Data[33:65])
	return h, nil
}

// provenBalance reads an account's balance off the proofs of a server's answer:
// one of the block, one of the state after it. ErrNotFound is proven as well.
func provenBalance(answer lite.AccountState, block lite.BlockID, account [32]byte) (*big.Int, error) {
	proofs, err := parseCells(answer.Proof, 2, maxPathCells)
	if err != nil {
		return nil, err
	}
	root, err := proven(proofs[0], block.Root)
	if err != nil {
		return nil, err
	}
	hash, err := stateRoot(root)
	if err != nil {
		return nil, err
	}
	state, err := proven(proofs[1], hash)
	if err != nil {
		return nil, err
	}
	s, err := open(state)
	if err != nil {
		return nil, err
	}
	in := scan{Slice: s}
	in.expect(32, 0x9023afe2, "state of a shard")
	if in.err != nil {
		return nil, in.err
	}
	accounts, err := below(state, 1)
	if err != nil {
		return nil, err
	}
	some, err := accounts.LoadBoolBit()
	if err != nil {
		return nil, err
	}
	if !some {
		return nil, chaingql.ErrNotFound
	}
	dict, err := accounts.LoadRefCell()
	if err != nil {
		return nil, err
	}
	leaf, err := find(dict, account[:])
	if errors.Is(err, errNoKey) {
		return nil, chaingql.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	if _, err := leaf.LoadUInt(5); err != nil { // depth of the split
		return nil, err
	}
	nano, err := leaf.LoadBigCoins()
	if err != nil {
		return nil, err
	}
	if len(answer.State) == 0 {
		return nil, errors.New("the account's state is missing")
	}
	return nano, sameState(answer.State, leaf)
}

// sameState sees that the state that came along is the one that was proven.
func sameState(data []byte, leaf *cell.Slice) error {
	if _, err := leaf.LoadDict(32); err != nil { // other currencies
		return err
	}
	account, err := leaf.LoadRefCell()
	if err != nil {
		return err
	}
	given, err := parseCells(data, 1, maxTreeCells)
	if err != nil {
		return err
	}
	if string(given[0].Hash(0)) != string(account.Hash(0)) {
		return fmt.Errorf("%w: the account's state is another", errProof)
	}
	return nil
}
