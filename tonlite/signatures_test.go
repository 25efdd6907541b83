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

	tvm "github.com/xssnick/tonutils-go/tvm/cell"

	"github.com/chaingql/chaingql/internal/testkit"
	"github.com/chaingql/chaingql/tonlite/internal/cell"
	"github.com/chaingql/chaingql/tonlite/internal/lite"
)

// TestRecordedProofsAreValid checks the proofs that a node of TON's mainnet stored for the first
// 199 masterchain blocks and for 606 shard blocks. The masterchain blocks must be signed by the
// validators in a state that was recorded later. This works because the configuration did not
// change in between.
func TestRecordedProofsAreValid(t *testing.T) {
	files, err := filepath.Glob("testdata/packs/*.pack.gz")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recorded packs: got %v and error %v", files, err)
	}
	state, err := cell.Parse(testkit.ReadGzip(t, "testdata/states/2660.gz"), 1, maxTreeCells)
	if err != nil {
		t.Fatal(err)
	}
	config := child(t, state[0], 3, 1) // reference 0 is the shards
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
			roots, err := cell.Parse(body, 1, maxTreeCells)
			if err != nil {
				t.Fatalf("recorded proof %s: got error %v", title, err)
			}
			id, root := recordedProof(t, title, roots[0])
			h, err := parseHeader(root, id)
			if err != nil {
				t.Fatalf("recorded proof %s: got error %v", title, err)
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
				t.Fatalf("recorded proof %s: got validator set hash %08x, want %08x as in the block", title, got, h.set)
			}
			l := lite.Link{To: id, Signatures: recordedSignatures(t, roots[0])}
			if err := checkSignatures(l, validators); err != nil {
				t.Errorf("recorded proof %s: got error %v", title, err)
			}
			few := l
			few.Signatures = l.Signatures[:2]
			if err := checkSignatures(few, validators); err == nil {
				t.Errorf("recorded proof %s was accepted with two signatures", title)
			}
			few.Signatures = append(l.Signatures[:len(l.Signatures)-1:len(l.Signatures)-1], l.Signatures[0])
			if err := checkSignatures(few, validators); err == nil {
				t.Errorf("recorded proof %s was accepted with a repeated signature", title)
			}
			other := l
			other.To.File[0]++
			if err := checkSignatures(other, validators); err == nil {
				t.Errorf("recorded proof %s: the signatures were accepted for another block", title)
			}
			signedBlocks++
		}
	}
	if signedBlocks != 199 || links != 606 {
		t.Errorf("checked %d signed blocks and %d shard blocks, want 199 and 606", signedBlocks, links)
	}
}

// TestMoreThanTwoThirdsOfTheWeightMustSign uses validators with different weights.
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
				l.Signatures = append(l.Signatures, lite.Signature{
					Node: lite.KeyID(public), Sign: ed25519.Sign(private, text),
				})
			}
		}
		if err := checkSignatures(l, validators); (err == nil) != row.enough {
			t.Errorf("signatures of the first %d validators with the weights %d: got error %v",
				row.signing, row.weights, err)
		}
	}
}

// TestTemporaryValidatorsReplaceElectedOnes uses a configuration with temporary validators, which
// replace the elected ones in an emergency. A proof that omits the temporary validators does not
// prove that there are none.
func TestTemporaryValidatorsReplaceElectedOnes(t *testing.T) {
	set := func(key byte) *tvm.Cell {
		list := tvm.NewDict(16)
		v := tvm.BeginCell().MustStoreUInt(0x53, 8).MustStoreUInt(0x8e81278a, 32).
			MustStoreSlice(bytes.Repeat([]byte{key}, 32), 256).MustStoreUInt(1, 64).EndCell()
		if err := list.SetIntKey(new(big.Int), v); err != nil {
			t.Fatal(err)
		}
		return tvm.BeginCell().MustStoreUInt(0x12, 8).MustStoreUInt(0, 64).MustStoreUInt(1, 16).
			MustStoreUInt(1, 16).MustStoreUInt(1, 64).MustStoreDict(list).EndCell()
	}
	for _, row := range []struct {
		name   string
		params map[int64]*tvm.Cell
		shown  []int64
		want   byte
	}{
		{"elected validators", map[int64]*tvm.Cell{34: set(34)}, []int64{28, 34, 35}, 34},
		{"temporary validators", map[int64]*tvm.Cell{34: set(34), 35: set(35)}, []int64{28, 34, 35}, 35},
		{"omitted temporary validators", map[int64]*tvm.Cell{34: set(34), 35: set(35)}, []int64{28, 34}, 0},
	} {
		config, sk := tvm.NewDict(32), tvm.CreateProofSkeleton()
		row.params[28] = tvm.BeginCell().MustStoreUInt(0xc1, 8).MustStoreUInt(0, 128).EndCell()
		for n, c := range row.params {
			if err := config.SetIntKey(big.NewInt(n), tvm.BeginCell().MustStoreRef(c).EndCell()); err != nil {
				t.Fatal(err)
			}
		}
		for _, n := range row.shown {
			if _, at, err := config.LoadValueWithProof(tvm.BeginCell().MustStoreInt(n, 32).EndCell(), sk); err == nil {
				at.SetRecursive()
			}
		}
		proof, err := config.AsCell().CreateProof(sk)
		if err != nil {
			t.Fatal(err)
		}
		got, err := validatorsOf(child(t, parsed(t, proof), 0), 1)
		switch {
		case row.want == 0 && !errors.Is(err, errPruned):
			t.Errorf("%s: got %v and error %v, want errPruned", row.name, got, err)
		case row.want != 0 && (err != nil || len(got) != 1 || got[0].key[0] != row.want):
			t.Errorf("%s: got %v and error %v, want one validator", row.name, got, err)
		}
	}
}

// recordedProof parses a proof stored by a node. It returns the id of the proven block and the
// root of the proof's tree.
func recordedProof(t *testing.T, title string, c *cell.Cell) (id lite.BlockID, root *cell.Cell) {
	t.Helper()
	in := cellReader{Slice: c.Open()}
	in.expect(8, 0xc3, "block_proof")
	in.expect(2, 0, "shard_ident")
	prefix := in.readUint(6)
	id.Workchain, id.Shard = int32(in.readUint(32)), in.readUint(64)|1<<(63-prefix)
	id.SeqNo, id.Root, id.File = uint32(in.readUint(32)), in.readHash(), in.readHash()
	if in.err != nil {
		t.Fatalf("recorded proof %s: got error %v", title, in.err)
	}
	root, err := unwrapProof(child(t, c, 0), id.Root)
	if err != nil {
		t.Fatalf("recorded proof %s: got error %v", title, err)
	}
	return id, root
}

// recordedSignatures parses the signatures in a proof stored by a node.
func recordedSignatures(t *testing.T, c *cell.Cell) (signatures []lite.Signature) {
	t.Helper()
	s := child(t, c, 1).Open()
	in := cellReader{Slice: s}
	in.expect(8, 0x11, "block_signatures")
	in.readUint(32 + 32) // validators, session
	in.readUint(32)      // number of signatures
	in.readUint(64)      // total weight
	if !in.readBool() || in.err != nil {
		t.Fatalf("the recorded proof contains no signatures: error %v", in.err)
	}
	dict, err := s.Ref()
	if err != nil {
		t.Fatal(err)
	}
	err = forEach(dict, 16, 100, func(_ uint64, s *cell.Slice) error {
		in := cellReader{Slice: s}
		one := lite.Signature{Node: in.readHash()}
		in.expect(4, 5, "ed25519_signature")
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
