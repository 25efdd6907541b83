package liteservertest

import (
	"errors"

	"github.com/xssnick/tonutils-go/tvm/cell"
)

// headerProof proves only a block's header.
func headerProof(root *cell.Cell) *cell.Cell {
	sk := cell.CreateProofSkeleton()
	sk.ProofRef(0).SetRecursive()
	return prove(root, sk)
}

// updateProof proves a block's header and its state update. The update is complete: pruning it would
// change its hash.
func updateProof(root *cell.Cell) *cell.Cell {
	sk := cell.CreateProofSkeleton()
	sk.ProofRef(0).SetRecursive()
	sk.ProofRef(2).SetRecursive()
	return prove(root, sk)
}

// accountProof proves an account in a state, or its absence.
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

// accounts returns the dictionary of a state's accounts, nil if there are none.
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

// accountCell returns the account of a leaf.
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

// prove creates a proof. It panics if the skeleton does not fit the cell.
func prove(root *cell.Cell, sk *cell.ProofSkeleton) *cell.Cell {
	proof, err := root.CreateProof(sk)
	if err != nil {
		panic(err)
	}
	return proof
}

func bits256(b [32]byte) *cell.Cell { return cell.BeginCell().MustStoreSlice(b[:], 256).EndCell() }
