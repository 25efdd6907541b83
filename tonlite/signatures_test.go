package tonlite

import (
	"bytes"
	"crypto/ed25519"
	"encoding/binary"
	"errors"
	"math/big"
	"path/filepath"
	"strings"
	"testing"

	"github.com/xssnick/tonutils-go/tvm/cell"

	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/chaingql/chaingql/tonlite/internal/lite"
)

// TestRecordedProofsAreValid checks the proofs that a node of the public network stored for its first 199
// masterchain blocks and for 606 others. They must be signed by the validators in a state recorded later,
// between which and the blocks the configuration did not change.
func TestRecordedProofsAreValid(t *testing.T) {
	files, err := filepath.Glob("testdata/packs/*.pack.gz")
	if err != nil || len(files) == 0 {
		t.Fatalf("got packs %v, %v", files, err)
	}
	state, err := parseCells(testkit.ReadGzip(t, "testdata/states/2660.gz"), 1, maxTreeCells)
	if err != nil {
		t.Fatal(err)
	}
	config := state[0].MustPeekRef(3).MustPeekRef(1) // after the shards
	signedBlocks, links := 0, 0
	for _, file := range files {
		data := testkit.ReadGzip(t, file)
		for rest := data[4:]; len(rest) > 0; {
			named, sized := int(binary.LittleEndian.Uint16(rest[2:])), int(binary.LittleEndian.Uint32(rest[4:]))
			title, body := string(rest[8:8+named]), rest[8+named:8+named+sized]
			rest = rest[8+named+sized:]
			if strings.HasPrefix(title, "block_") {
				continue
			}
			roots, err := parseCells(body, 1, maxTreeCells)
			if err != nil {
				t.Fatalf("%s: %v", title, err)
			}
			id, root := recordedProof(t, title, roots[0])
			h, err := parseHeader(root, id)
			if err != nil {
				t.Fatalf("%s: %v", title, err)
			}
			if strings.HasPrefix(title, "prooflink_") {
				links++
				continue
			}
			validators, err := validatorsOf(config, h.session)
			if err != nil {
				t.Fatal(err)
			}
			if got := setHash(validators, h.session); got != h.set {
				t.Fatalf("%s: got validator set hash %08x, want %08x as in the block", title, got, h.set)
			}
			l := lite.Link{To: id, Signatures: recordedSignatures(t, roots[0])}
			if err := checkSignatures(l, validators); err != nil {
				t.Errorf("%s: %v", title, err)
			}
			few := l
			few.Signatures = l.Signatures[:2]
			if err := checkSignatures(few, validators); err == nil {
				t.Errorf("%s: two signatures are accepted", title)
			}
			few.Signatures = append(l.Signatures[:len(l.Signatures)-1:len(l.Signatures)-1], l.Signatures[0])
			if err := checkSignatures(few, validators); err == nil {
				t.Errorf("%s: a signature counts twice", title)
			}
			other := l
			other.To.File[0]++
			if err := checkSignatures(other, validators); err == nil {
				t.Errorf("%s: the signatures are accepted for another block", title)
			}
			signedBlocks++
		}
	}
	if signedBlocks != 199 || links != 606 {
		t.Errorf("checked %d signed blocks and %d others", signedBlocks, links)
	}
}

// TestMoreThanTwoThirdsOfTheWeightMustSign uses validators of various weights.
func TestMoreThanTwoThirdsOfTheWeightMustSign(t *testing.T) {
	for _, row := range []struct {
		weights []uint64
		signing int // number of signatures, by the first validators
		enough  bool
	}{
		{[]uint64{1, 1, 1}, 2, false},
		{[]uint64{1, 1, 1}, 3, true},
		{[]uint64{2, 1}, 1, false},
		{[]uint64{3, 1}, 1, true},
		{[]uint64{4, 2, 1}, 1, false},
		{[]uint64{5, 2}, 1, true},
		{[]uint64{1 << 62, 1 << 62, 1 << 62}, 2, false},
		{[]uint64{1 << 62, 1<<62 + 1, 1 << 62}, 2, true},
		{[]uint64{1 << 63, 1 << 63}, 2, false}, // the sum overflows
	} {
		l := lite.Link{To: lite.BlockID{Workchain: masterchain, Shard: wholeShard, SeqNo: 7}}
		text, err := l.SignedText()
		if err != nil {
			t.Fatal(err)
		}
		var validators []validator
		for i, weight := range row.weights {
			public, private, err := ed25519.GenerateKey(nil)
			if err != nil {
				t.Fatal(err)
			}
			validators = append(validators, validator{key: [32]byte(public), weight: weight})
			if i < row.signing {
				l.Signatures = append(l.Signatures, lite.Signature{Node: lite.KeyID(public), Sign: ed25519.Sign(private, text)})
			}
		}
		if err := checkSignatures(l, validators); (err == nil) != row.enough {
			t.Errorf("the first %d of the weights %d: got error %v", row.signing, row.weights, err)
		}
	}
}

// TestTemporaryValidatorsSign uses a configuration with temporary validators, which replace the elected ones
// in an emergency. A proof that omits them does not prove their absence.
func TestTemporaryValidatorsSign(t *testing.T) {
	set := func(key byte) *cell.Cell {
		list := cell.NewDict(16)
		v := cell.BeginCell().MustStoreUInt(0x53, 8).MustStoreUInt(0x8e81278a, 32).
			MustStoreSlice(bytes.Repeat([]byte{key}, 32), 256).MustStoreUInt(1, 64).EndCell()
		if err := list.SetIntKey(new(big.Int), v); err != nil {
			t.Fatal(err)
		}
		return cell.BeginCell().MustStoreUInt(0x12, 8).MustStoreUInt(0, 64).MustStoreUInt(1, 16).
			MustStoreUInt(1, 16).MustStoreUInt(1, 64).MustStoreDict(list).EndCell()
	}
	for _, row := range []struct {
		name   string
		params map[int64]*cell.Cell
		shown  []int64
		want   byte
	}{
		{"elected", map[int64]*cell.Cell{34: set(34)}, []int64{28, 34, 35}, 34},
		{"stand-ins", map[int64]*cell.Cell{34: set(34), 35: set(35)}, []int64{28, 34, 35}, 35},
		{"stand-ins who are left out", map[int64]*cell.Cell{34: set(34), 35: set(35)}, []int64{28, 34}, 0},
	} {
		config, sk := cell.NewDict(32), cell.CreateProofSkeleton()
		row.params[28] = cell.BeginCell().MustStoreUInt(0xc1, 8).MustStoreUInt(0, 128).EndCell()
		for n, c := range row.params {
			if err := config.SetIntKey(big.NewInt(n), cell.BeginCell().MustStoreRef(c).EndCell()); err != nil {
				t.Fatal(err)
			}
		}
		for _, n := range row.shown {
			if _, at, err := config.LoadValueWithProof(cell.BeginCell().MustStoreInt(n, 32).EndCell(), sk); err == nil {
				at.SetRecursive()
			}
		}
		proof, err := config.AsCell().CreateProof(sk)
		if err != nil {
			t.Fatal(err)
		}
		got, err := validatorsOf(proof.MustPeekRef(0), 1)
		switch {
		case row.want == 0 && !errors.Is(err, errPruned):
			t.Errorf("%s: got %v and error %v", row.name, got, err)
		case row.want != 0 && (err != nil || len(got) != 1 || got[0].key[0] != row.want):
			t.Errorf("%s: got %v and error %v", row.name, got, err)
		}
	}
}

// recordedProof parses a proof stored by a node. It returns the block and the tree.
func recordedProof(t *testing.T, title string, c *cell.Cell) (id lite.BlockID, root *cell.Cell) {
	t.Helper()
	in := cellReader{Slice: c.BeginParse()}
	in.expect(8, 0xc3, "proof")
	in.expect(2, 0, "shard")
	prefix := in.readUint(6)
	id.Workchain, id.Shard = int32(in.readUint(32)), in.readUint(64)|1<<(63-prefix)
	id.SeqNo, id.Root, id.File = uint32(in.readUint(32)), in.readHash(), in.readHash()
	if in.err != nil {
		t.Fatalf("%s: %v", title, in.err)
	}
	root, err := unwrapProof(c.MustPeekRef(0), id.Root)
	if err != nil {
		t.Fatalf("%s: %v", title, err)
	}
	return id, root
}

func recordedSignatures(t *testing.T, c *cell.Cell) (signatures []lite.Signature) {
	t.Helper()
	s := c.MustPeekRef(1).BeginParse()
	in := cellReader{Slice: s}
	in.expect(8, 0x11, "signatures")
	in.readUint(32 + 32) // validators, session
	in.readUint(32)      // number of signatures
	in.readUint(64)      // total weight
	if !in.readBool() || in.err != nil {
		t.Fatal("no signatures", in.err)
	}
	dict, err := s.LoadRefCell()
	if err != nil {
		t.Fatal(err)
	}
	err = forEach(dict, 16, 100, func(_ uint64, s *cell.Slice) error {
		in := cellReader{Slice: s}
		one := lite.Signature{Node: in.readHash()}
		in.expect(4, 5, "signature")
		r, z := in.readHash(), in.readHash()
		one.Sign = append(r[:], z[:]...)
		signatures = append(signatures, one)
		return in.err
	})
	if err != nil {
		t.Fatal(err)
	}
	return signatures
}
