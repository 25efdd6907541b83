package tonlite

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math/big"
	"reflect"
	"slices"
	"testing"

	tvm "github.com/xssnick/tonutils-go/tvm/cell"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/chaingql/chaingql/tonlite/internal/cell"
	"github.com/chaingql/chaingql/tonlite/internal/cell/celltest"
	"github.com/chaingql/chaingql/tonlite/internal/lite"
)

// parsed returns a cell of tonutils-go as one of this module.
func parsed(t testing.TB, c *tvm.Cell) *cell.Cell {
	t.Helper()
	roots, err := cell.Parse(c.ToBOC(), 1, maxTreeCells)
	if err != nil {
		t.Fatal(err)
	}
	return roots[0]
}

// child returns the cell below c to which the references lead.
func child(t testing.TB, c *cell.Cell, refs ...int) *cell.Cell {
	t.Helper()
	for _, i := range refs {
		var err error
		if c, err = c.Ref(i); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// FuzzCells parses arbitrary bytes as bags of cells in server responses. No response must be
// accepted, and none must cause a panic.
func FuzzCells(f *testing.F) {
	leaf := tvm.BeginCell().MustStoreUInt(0x11ef55aa, 32).EndCell()
	f.Add(leaf.ToBOC())
	f.Add(tvm.ToBOCWithFlags([]*tvm.Cell{leaf, leaf}, true))
	f.Add([]byte{0xb5, 0xee, 0x9c, 0x72, 4, 8, 0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0})
	f.Add(testkit.ReadGzip(f, "testdata/blocks/2660.gz"))
	id := lite.BlockID{Workchain: masterchain, Shard: wholeShard, SeqNo: 2660}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, read := range []func() error{
			func() error {
				_, err := verifyBalance(lite.AccountState{Proof: data, State: data}, id, [32]byte{1})
				return err
			},
			func() error {
				id.File = sha256.Sum256(data)
				_, _, err := parseBlock(lite.BlockData{ID: id, Data: data}, id, true)
				return err
			},
			func() error { return checkForward(lite.Link{To: id, From: id, Dest: data, Config: data}) },
			func() error { return checkBack(lite.Link{To: id, From: id, Block: data, State: data}) },
			func() error { // a block with the right hash may still be malformed
				roots, err := cell.Parse(data, 1, maxTreeCells)
				if err != nil {
					return err
				}
				_, _ = parseHeader(roots[0], id)
				_, _ = parseShards(roots[0])
				_, _ = parseValidators(roots[0], 1)
				return errProof
			},
		} {
			err := read()
			if err == nil || errors.Is(err, chaingql.ErrNotFound) {
				t.Errorf("a false response was accepted: got error %v", err)
			}
		}
	})
}

// TestExpansionOfSharedCellsIsLimited reads a dictionary of a few shared cells that represents
// four billion keys, and a similar tree of shards.
func TestExpansionOfSharedCellsIsLimited(t *testing.T) {
	c := tvm.BeginCell().MustStoreUInt(0, 2).EndCell() // an empty label
	for range 32 {
		c = tvm.BeginCell().MustStoreUInt(0, 2).MustStoreRef(c).MustStoreRef(c).EndCell()
	}
	n := 0
	err := forEach(parsed(t, c), 32, 1000, func(uint64, *cell.Slice) error { n++; return nil })
	if err == nil || n != 1000 {
		t.Errorf("dictionary: got %d keys and error %v, want 1000 keys and an error", n, err)
	}
	tree := tvm.BeginCell().MustStoreUInt(0, 1).MustStoreSlice(make([]byte, 100), 800).EndCell()
	for range 60 {
		tree = tvm.BeginCell().MustStoreUInt(1, 1).MustStoreRef(tree).MustStoreRef(tree).EndCell()
	}
	if tops, err := parseTree(nil, parsed(t, tree), 0, wholeShard); err == nil {
		t.Errorf("tree of shards: got %d shards and no error", len(tops))
	}
}

// TestBagWithTooManyCellsIsRejected uses a bag with the maximum number of cells and a bag with
// one cell more.
func TestBagWithTooManyCellsIsRejected(t *testing.T) {
	for n, want := range map[int]error{maxTreeCells: nil, maxTreeCells + 1: errCells} {
		if _, err := cell.Parse(widestBag(n, 0), 1, maxTreeCells); !errors.Is(err, want) {
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
		if _, err := cell.Parse(data, 1, maxTreeCells); !errors.Is(err, want) {
			t.Errorf("%d unreferenced cells: got error %v, want %v", stray, err, want)
		}
	}
}

func TestMerkleCellWithWrongHashOrDepthIsRejected(t *testing.T) {
	held := tvm.BeginCell().MustStoreUInt(7, 8).EndCell()
	for name, alter := range map[string]func(data []byte){
		"":            func([]byte) {},
		"wrong hash":  func(data []byte) { data[1]++ },
		"wrong depth": func(data []byte) { data[34]++ },
	} {
		data := append(append([]byte{3}, held.Hash(0)...), 0, 0)
		alter(data)
		proof := tvm.FromRawUnsafe(tvm.RawUnsafeCell{
			IsSpecial: true, BitsSz: uint(8 * len(data)), Data: data, Refs: []*tvm.Cell{held},
		})
		within := tvm.BeginCell().MustStoreRef(proof).EndCell()
		if _, err := cell.Parse(within.ToBOC(), 1, maxTreeCells); (err == nil) != (name == "") {
			t.Errorf("Merkle cell with fault %q: got error %v", name, err)
		}
	}
}

// TestPrunedKeyIsNotReportedAsAbsent looks up several keys in a proof that contains only the path
// to key 2.
func TestPrunedKeyIsNotReportedAsAbsent(t *testing.T) {
	dict := tvm.NewDict(32)
	value := tvm.BeginCell().MustStoreUInt(7, 8).MustStoreRef(tvm.BeginCell().EndCell()).EndCell()
	for _, key := range []int64{1, 2, 3, 1 << 20, 1 << 30, 3 << 30} {
		if err := dict.SetIntKey(big.NewInt(key), value); err != nil {
			t.Fatal(err)
		}
	}
	sk := tvm.CreateProofSkeleton()
	key := func(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
	if _, _, err := dict.LoadValueWithProof(tvm.BeginCell().MustStoreSlice(key(2), 32).EndCell(), sk); err != nil {
		t.Fatal(err)
	}
	root := dict.AsCell()
	proof, err := root.CreateProof(sk)
	if err != nil {
		t.Fatal(err)
	}
	shown, err := unwrapProof(parsed(t, proof), [32]byte(root.Hash()))
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

// nodeOf returns a copy of a cell of tonutils-go.
func nodeOf(c *tvm.Cell) *celltest.Node {
	raw := c.ToRawUnsafe()
	n := &celltest.Node{Special: raw.IsSpecial, Data: slices.Clone(raw.Data), Marked: raw.BitsSz%8 > 0}
	if n.Marked {
		n.Data[len(n.Data)-1] |= 0x80 >> (raw.BitsSz % 8)
	}
	for _, r := range raw.Refs {
		n.Refs = append(n.Refs, nodeOf(r))
	}
	return n
}

// A contract may store a proof within another, from which a branch was pruned. A block that changes the contract has
// a pruned branch at that place, with the level mask 6.
func TestBlockThatChangesNestedProofsIsRead(t *testing.T) {
	data := testkit.ReadGzip(t, "testdata/blocks/2660.gz")
	recorded, err := tvm.FromBOC(data)
	if err != nil {
		t.Fatal(err)
	}
	id := lite.BlockID{Workchain: masterchain, Shard: wholeShard, SeqNo: 2660, Root: [32]byte(recorded.Hash(0))}
	id.File = sha256.Sum256(data)
	wantHeader, wantTops, err := parseBlock(lite.BlockData{ID: id, Data: data}, id, true)
	if err != nil {
		t.Fatal(err)
	}
	branch := (&celltest.Node{Data: []byte("content")}).Prune(1).Prune(2)
	if branch.Mask() != 6 {
		t.Fatalf("the branch has the level mask %03b, want 110", branch.Mask())
	}
	nested := celltest.Merkle(cell.MerkleProof, celltest.Merkle(cell.MerkleProof,
		&celltest.Node{Data: []byte("proof"), Refs: []*celltest.Node{branch}}))
	block := nodeOf(recorded)
	update := block.Refs[2].Refs
	block.Refs[2] = celltest.Merkle(cell.MerkleUpdate, update[0],
		&celltest.Node{Data: []byte("state"), Refs: []*celltest.Node{update[1], nested}})
	data = block.Bag()
	id.Root, id.File = block.Parse().Hash(0), sha256.Sum256(data)
	h, tops, err := parseBlock(lite.BlockData{ID: id, Data: data}, id, true)
	if err != nil || !reflect.DeepEqual(h, wantHeader) || !slices.Equal(tops, wantTops) {
		t.Errorf("got header %+v, shards %v and error %v; want %+v and %v", h, tops, err, wantHeader, wantTops)
	}
}
