package liteservertest

import (
	"errors"

	"github.com/xssnick/tonutils-go/tvm/cell"
)

// headerProof shows a block's header, and nothing else of it.
func headerProof(root *cell.Cell) *cell.Cell {
	sk := cell.CreateProofSkeleton()
	sk.ProofRef(0).SetRecursive()
	return prove(root, sk)
}

// updateProof shows a block's header and what state it leads to. The update of
// the state is in it whole: pruned, its hash would be a wrong one.
func updateProof(root *cell.Cell) *cell.Cell {
	sk := cell.CreateProofSkeleton()
	sk.ProofRef(0).SetRecursive()
	sk.ProofRef(2).SetRecursive()
	return prove(root, sk)
}

// accountProof shows the way to an account in a state, or to where it would be.
func accountProof(state *cell.Cell, account [32]byte) (proof, value *cell.Cell, err error) {
	sk := cell.CreateProofSkeleton()
	dict, err := accounts(state)
	if err != nil {
		return nil, nil, err
	}
	at := sk.ProofRef(1) // the accounts
	if dict != nil {
		leaf, _, err := dict.LoadValueWithProof(bits256(account), at.ProofRef(0))
		switch {
		case errors.Is(err, cell.ErrNoSuchKeyInDict):
		case err != nil:
			return nil, nil, err
		default:
			if value, err = accountCell(leaf); err != nil {
				return nil, nil, err
			}
		}
	}
	return prove(state, sk), value, nil
}

// accounts is the dictionary of a state's accounts, nil where there are none.
func accounts(state *cell.Cell) (*cell.Dictionary, error) {
	s := state.MustPeekRef(1).BeginParse()
	some, err := s.LoadBoolBit()
	if err != nil || !some {
		return nil, err
	}
	root, err := s.LoadRefCell()
	if err != nil {
		return nil, err
	}
	return root.AsDict(256), nil
}

// accountCell takes the account out of a leaf.
func accountCell(leaf *cell.Slice) (*cell.Cell, error) {
	if _, err := leaf.LoadUInt(5); err != nil {
		return nil, err
	}
	if _, err := leaf.LoadBigCoins(); err != nil {
		return nil, err
	}
	if _, err := leaf.LoadDict(32); err != nil {
		return nil, err
	}
	return leaf.LoadRefCell()
}

// prove panics where a skeleton does not fit: it was made for this very cell.
func prove(root *cell.Cell, sk *cell.ProofSkeleton) *cell.Cell {
	proof, err := root.CreateProof(sk)
	if err != nil {
		panic(err)
	}
	return proof
}

func bits256(b [32]byte) *cell.Cell { return cell.BeginCell().MustStoreSlice(b[:], 256).EndCell() }
