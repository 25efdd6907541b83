package cell_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	tvm "github.com/xssnick/tonutils-go/tvm/cell"

	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/chaingql/chaingql/tonlite/internal/cell"
	"github.com/chaingql/chaingql/tonlite/internal/cell/celltest"
)

// random returns a random tree below the given number of Merkle cells. It has at most size cells.
func random(rng *rand.Rand, size, merkles int) *celltest.Node {
	switch k := rng.IntN(8); {
	case k == 0 && merkles < 2 && size > 1:
		return celltest.Merkle(cell.MerkleProof, random(rng, size-1, merkles+1))
	case k == 1 && merkles < 2 && size > 2:
		return celltest.Merkle(cell.MerkleUpdate, random(rng, size/2, merkles+1), random(rng, size/2, merkles+1))
	case k == 2 && merkles > 0: // a branch that was pruned for one of the Merkle cells above
		content := &celltest.Node{Data: binary.BigEndian.AppendUint64(nil, rng.Uint64())}
		for range rng.IntN(4) { // so that its depth differs between levels
			content = &celltest.Node{Data: []byte{1}, Refs: []*celltest.Node{content}}
		}
		branch := content.Prune(rng.IntN(merkles))
		if merkles == 2 && branch.Data[1] == 1 && rng.IntN(2) == 0 {
			branch = branch.Prune(1)
		}
		return branch
	}
	n := &celltest.Node{Data: binary.BigEndian.AppendUint64(nil, rng.Uint64())[:rng.IntN(9)]}
	for range min(rng.IntN(5), size-1) {
		n.Refs = append(n.Refs, random(rng, (size-1)/2, merkles))
	}
	return n
}

// pruned returns a copy of a tree in which some branches are pruned, and adds their level masks to masks.
func pruned(rng *rand.Rand, n *celltest.Node, merkles int, masks map[byte]int) *celltest.Node {
	if rng.IntN(4) == 0 && (merkles > 0 || rng.IntN(4) == 0) {
		branch := n.Prune(merkles)
		masks[branch.Mask()]++
		return branch
	}
	c := &celltest.Node{Special: n.Special, Data: n.Data}
	if n.Special && cell.Type(n.Data[0]) != cell.Pruned {
		merkles++
	}
	for _, r := range n.Refs {
		c.Refs = append(c.Refs, pruned(rng, r, merkles, masks))
	}
	return c
}

// A proof omits branches of a tree, and has the hash and the depth of the complete tree, whatever the tree contains.
func TestTreeWithPrunedBranchesHasTheHashOfTheCompleteTree(t *testing.T) {
	masks := make(map[byte]int)
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		tree := random(rng, 40, 0)
		complete, shown := tree.Parse(), pruned(rng, tree, 0, masks)
		part := shown.Parse()
		if part.Hash(0) != complete.Hash(0) || part.Depth(0) != complete.Depth(0) {
			t.Fatalf("seed %d: the tree with pruned branches has another hash or depth", seed)
		}
		proof := celltest.Merkle(cell.MerkleProof, shown)
		if got := proof.Parse(); got.Stated(0) != complete.Hash(0) {
			t.Fatalf("seed %d: the proof states another hash", seed)
		}
	}
	for mask := byte(1); mask <= 7; mask++ {
		if masks[mask] == 0 {
			t.Errorf("no pruned branch had the level mask %03b; by mask: %v", mask, masks)
		}
	}
}

// tonutilsHash returns the hash that tonutils-go computes, and reports whether it can parse the cells.
func tonutilsHash(bag []byte) (hash []byte, ok bool) {
	defer func() { ok = recover() == nil && ok }()
	c, err := tvm.FromBOC(bag)
	if err != nil {
		return nil, false
	}
	return c.Hash(0), true
}

func TestHashesAreThoseOfTonutils(t *testing.T) {
	compared := 0
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 2))
		n := pruned(rng, random(rng, 40, 0), 0, map[byte]int{})
		want, ok := tonutilsHash(n.Bag())
		if !ok {
			continue // see the package comment
		}
		compared++
		if got := n.Parse().Hash(0); !bytes.Equal(got[:], want) {
			t.Fatalf("seed %d: got hash %x, want %x", seed, got, want)
		}
	}
	if compared < 1000 {
		t.Errorf("compared %d trees, want at least 1,000", compared)
	}
}

func TestInvalidSpecialCellsAreRejected(t *testing.T) {
	leaf := &celltest.Node{Data: []byte{1}}
	hash := make([]byte, 34)
	for name, n := range map[string]*celltest.Node{
		"no type":                   {Special: true, Data: []byte{}},
		"unknown type":              {Special: true, Data: []byte{5}},
		"type of an ordinary cell":  {Special: true, Data: []byte{0}},
		"pruned, level mask 0":      {Special: true, Data: append([]byte{1, 0}, hash...)},
		"pruned, level mask 8":      {Special: true, Data: append([]byte{1, 8}, hash...)},
		"pruned, without a hash":    {Special: true, Data: []byte{1, 1}},
		"pruned, one byte too many": {Special: true, Data: append([]byte{1, 1, 0}, hash...)},
		"pruned, with a reference":  {Special: true, Data: append([]byte{1, 1}, hash...), Refs: []*celltest.Node{leaf}},
		"library, too short":        {Special: true, Data: append([]byte{2}, hash[:31]...)},
		"library, with a reference": {
			Special: true, Data: append([]byte{2}, hash[:32]...), Refs: []*celltest.Node{leaf},
		},
		"proof without reference":   {Special: true, Data: append([]byte{3}, hash...)},
		"proof of another cell":     {Special: true, Data: append([]byte{3}, hash...), Refs: []*celltest.Node{leaf}},
		"data without a mark":       {Data: []byte{0}, Marked: true},
		"a mark without data":       {Data: []byte{1, 128}, Marked: true},
		"update with one reference": {Special: true, Data: append([]byte{4}, hash...), Refs: []*celltest.Node{leaf}},
	} {
		if _, err := cell.Parse(n.Bag(), 1, 10); !errors.Is(err, cell.ErrMalformed) {
			t.Errorf("%s: got error %v, want ErrMalformed", name, err)
		}
	}
}

func TestStoredHashesAreIgnored(t *testing.T) {
	for mask := byte(0); mask <= 7; mask++ {
		n := &celltest.Node{Data: []byte("content")}
		for merkles := range 3 {
			if mask>>merkles&1 == 1 {
				n = n.Prune(merkles)
			}
		}
		plain := &celltest.Node{Data: []byte("above"), Refs: []*celltest.Node{n}}
		hashed := &celltest.Node{Data: plain.Data, Refs: plain.Refs, Hashed: true}
		if plain.Mask() != mask || hashed.Parse().Hash(3) != plain.Parse().Hash(3) {
			t.Errorf("level mask %03b: stored hashes change the hash of the cell", mask)
		}
	}
}

func TestDepthIsLimited(t *testing.T) {
	n := &celltest.Node{}
	for depth := range 1025 {
		if depth == 1024 {
			n.Parse() // the deepest valid tree
		}
		n = &celltest.Node{Refs: []*celltest.Node{n}}
	}
	if _, err := cell.Parse(n.Bag(), 1, 1<<16); !errors.Is(err, cell.ErrMalformed) {
		t.Errorf("got error %v, want ErrMalformed", err)
	}
}

// FuzzParse compares the bags that both this package and tonutils-go accept.
func FuzzParse(f *testing.F) {
	f.Add(testkit.ReadGzip(f, "../../testdata/blocks/2660.gz"))
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 3))
		f.Add(pruned(rng, random(rng, 20, 0), 0, map[byte]int{}).Bag())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		roots, err := cell.Parse(data, 1, 1<<12)
		if err != nil {
			if !errors.Is(err, cell.ErrMalformed) {
				t.Errorf("got error %v, want ErrMalformed", err)
			}
			return
		}
		got := roots[0].Hash(0)
		if want, ok := tonutilsHash(data); ok && !bytes.Equal(got[:], want) {
			t.Errorf("got hash %x, want %x", got, want)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	data := testkit.ReadGzip(b, "../../testdata/blocks/2660.gz")
	b.Run("cell", func(b *testing.B) {
		for b.Loop() {
			if _, err := cell.Parse(data, 1, 1<<16); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("tonutils", func(b *testing.B) {
		for b.Loop() {
			if _, err := tvm.FromBOC(data); err != nil {
				b.Fatal(err)
			}
		}
	})
}
