package liteservertest

import (
	"errors"

	"github.com/xssnick/tonutils-go/tvm/cell"
)

// headerProof returns a proof of a block's header only.
func headerProof(root *cell.Cell) *cell.Cell {
	sk := cell.CreateProofSkeleton()
	sk.ProofRef(0).SetRecursive()
	return prove(root, sk)
}

// updateProof returns a proof of a block's header and state update. It does not prune the update,
// because that would change the update's hash.
func updateProof(root *cell.Cell) *cell.Cell {
	sk := cell.CreateProofSkeleton()
	sk.ProofRef(0).SetRecursive()
	sk.ProofRef(2).SetRecursive()
	return prove(root, sk)
}

// accountProof returns a proof that a state contains an account, or that the state does not
// contain it. value is the account, or nil if there is none.
func accountProof(state *cell.Cell, account [32]byte) (proof, value *cell.Cell, err error) {
	sk := cell.CreateProofSkeleton()
	dict, err := accounts(state)
	if err != nil {
		return nil, nil, err
	}
	at := sk.ProofRef(1) // reference 1 is the accounts
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

// accounts returns the dictionary of the accounts in a state, or nil if there are none.
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

// accountCell returns the account in leaf, an entry of the dictionary of accounts.
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

// prove returns a proof that contains the cells of root that sk marks. It panics if sk does not
// fit root.
func prove(root *cell.Cell, sk *cell.ProofSkeleton) *cell.Cell {
	proof, err := root.CreateProof(sk)
	if err != nil {
		panic(err)
	}
	return proof
}

func bits256(b [32]byte) *cell.Cell { return cell.BeginCell().MustStoreSlice(b[:], 256).EndCell() }
