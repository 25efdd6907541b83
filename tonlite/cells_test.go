package tonlite

import (
	"encoding/binary"
	"errors"
	"math/big"
	"testing"

	"github.com/xssnick/tonutils-go/tvm/cell"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/chaingql/chaingql/tonlite/internal/lite"
)

// FuzzCells parses arbitrary bytes as bags of cells in server responses. No response must be
// accepted, and recoverPanics must recover all panics.
func FuzzCells(f *testing.F) {
	leaf := cell.BeginCell().MustStoreUInt(0x11ef55aa, 32).EndCell()
	f.Add(leaf.ToBOC())
	f.Add(cell.ToBOCWithFlags([]*cell.Cell{leaf, leaf}, true))
	f.Add([]byte{0xb5, 0xee, 0x9c, 0x72, 4, 8, 0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0})
	f.Add(testkit.ReadGzip(f, "testdata/blocks/2660.gz"))
	id := lite.BlockID{Workchain: masterchain, Shard: wholeShard, SeqNo: 2660}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, read := range []func() error{
			func() error {
				_, err := verifyBalance(lite.AccountState{Proof: data, State: data}, id, [32]byte{1})
				return err
			},
			func() error { _, _, err := parseBlock(lite.BlockData{ID: id, Data: data}, id, true); return err },
			func() error { return checkForward(lite.Link{To: id, From: id, Dest: data, Config: data}) },
			func() error { return checkBack(lite.Link{To: id, From: id, Block: data, State: data}) },
			func() error { // a block with the right hash may still be malformed
				roots, err := parseCells(data, 1, maxTreeCells)
				if err != nil {
					return err
				}
				_, _ = parseHeader(roots[0], id)
				_, _ = parseShards(roots[0])
				_, _ = parseValidators(roots[0], 1)
				return errProof
			},
		} {
			err := recoverPanics(read)
			if err == nil || errors.Is(err, chaingql.ErrNotFound) {
				t.Errorf("a false response was accepted: got error %v", err)
			}
		}
	})
}

// TestExpansionOfSharedCellsIsLimited reads a dictionary of a few shared cells that represents
// four billion keys, and a similar tree of shards.
func TestExpansionOfSharedCellsIsLimited(t *testing.T) {
	c := cell.BeginCell().MustStoreUInt(0, 2).EndCell() // an empty label
	for range 32 {
		c = cell.BeginCell().MustStoreUInt(0, 2).MustStoreRef(c).MustStoreRef(c).EndCell()
	}
	n := 0
	err := forEach(c, 32, 1000, func(uint64, *cell.Slice) error { n++; return nil })
	if err == nil || n != 1000 {
		t.Errorf("dictionary: got %d keys and error %v, want 1000 keys and an error", n, err)
	}
	tree := cell.BeginCell().MustStoreUInt(0, 1).MustStoreSlice(make([]byte, 100), 800).EndCell()
	for range 60 {
		tree = cell.BeginCell().MustStoreUInt(1, 1).MustStoreRef(tree).MustStoreRef(tree).EndCell()
	}
	if tops, err := parseTree(nil, tree, 0, wholeShard); err == nil {
		t.Errorf("tree of shards: got %d shards and no error", len(tops))
	}
}

// TestBagWithTooManyCellsIsRejected uses a bag with the maximum number of cells and a bag with
// one cell more.
func TestBagWithTooManyCellsIsRejected(t *testing.T) {
	for n, want := range map[int]error{maxTreeCells: nil, maxTreeCells + 1: errCells} {
		if _, err := parseCells(widestBag(n, 0), 1, maxTreeCells); !errors.Is(err, want) {
			t.Errorf("bag with %d cells: got error %v, want %v", n, err, want)
		}
	}
}

// TestUnreferencedCellsAreRejected adds unreferenced cells to a bag. A proof in such a bag would
// still be valid, but parsing it would be expensive.
func TestUnreferencedCellsAreRejected(t *testing.T) {
	for stray, want := range map[byte]error{0: nil, 1: errCells, 3: errCells} {
		data := []byte{0xb5, 0xee, 0x9c, 0x72, 1, 1, 2 + stray, 1, 0, 5 + 2*stray, 0, 1, 0, 1, 0, 0}
		data = append(data, make([]byte, 2*stray)...)
		if _, err := parseCells(data, 1, maxTreeCells); !errors.Is(err, want) {
			t.Errorf("%d unreferenced cells: got error %v, want %v", stray, err, want)
		}
	}
}

func TestMerkleCellWithWrongHashOrDepthIsRejected(t *testing.T) {
	held := cell.BeginCell().MustStoreUInt(7, 8).EndCell()
	for name, alter := range map[string]func(data []byte){
		"":            func([]byte) {},
		"wrong hash":  func(data []byte) { data[1]++ },
		"wrong depth": func(data []byte) { data[34]++ },
	} {
		data := append(append([]byte{3}, held.Hash(0)...), 0, 0)
		alter(data)
		proof := cell.FromRawUnsafe(cell.RawUnsafeCell{
			IsSpecial: true, BitsSz: uint(8 * len(data)), Data: data, Refs: []*cell.Cell{held},
		})
		within := cell.BeginCell().MustStoreRef(proof).EndCell()
		if _, err := parseCells(within.ToBOC(), 1, maxTreeCells); (err == nil) != (name == "") {
			t.Errorf("Merkle cell with fault %q: got error %v", name, err)
		}
	}
}

// TestPrunedKeyIsNotReportedAsAbsent looks up several keys in a proof that contains only the path
// to key 2.
func TestPrunedKeyIsNotReportedAsAbsent(t *testing.T) {
	dict := cell.NewDict(32)
	value := cell.BeginCell().MustStoreUInt(7, 8).MustStoreRef(cell.BeginCell().EndCell()).EndCell()
	for _, key := range []int64{1, 2, 3, 1 << 20, 1 << 30, 3 << 30} {
		if err := dict.SetIntKey(big.NewInt(key), value); err != nil {
			t.Fatal(err)
		}
	}
	sk := cell.CreateProofSkeleton()
	key := func(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
	if _, _, err := dict.LoadValueWithProof(cell.BeginCell().MustStoreSlice(key(2), 32).EndCell(), sk); err != nil {
		t.Fatal(err)
	}
	root := dict.AsCell()
	proof, err := root.CreateProof(sk)
	if err != nil {
		t.Fatal(err)
	}
	shown, err := unwrapProof(proof, [32]byte(root.Hash()))
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range map[uint32]error{
		2: nil, 1: errPruned, 1 << 30: errPruned, 1<<30 + 1: errPruned, 2 << 30: errPruned, 1 << 29: errNoKey,
	} {
		if _, err := lookUp(shown, key(n)); !errors.Is(err, want) {
			t.Errorf("key %x: got error %v, want %v", n, err, want)
		}
	}
}
