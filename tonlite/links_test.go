package tonlite

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"net"
	"testing"

	"github.com/chaingql/chaingql/tonlite/internal/lite"
	"github.com/chaingql/chaingql/tonlite/liteservertest"
	"github.com/xssnick/tonutils-go/tvm/cell"
)

// linker starts a lite server and returns two functions that query it. id returns the id of a
// masterchain block. link returns the first link of the proof from one masterchain block to
// another.
func linker(t *testing.T) (id func(seqNo uint32) lite.BlockID, link func(from, to uint32) lite.Link) {
	t.Helper()
	s, err := liteservertest.Start(liteservertest.GenerateSimplex(30))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	var config struct {
		Liteservers []struct{ ID struct{ Key string } }
	}
	if err := json.Unmarshal(s.Config(), &config); err != nil {
		t.Fatal(err)
	}
	key, err := base64.StdEncoding.DecodeString(config.Liteservers[0].ID.Key)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	c, err := lite.Connect(t.Context(), conn, ed25519.PublicKey(key), new(lite.Window))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	id = func(seqNo uint32) lite.BlockID {
		a, err := c.Ask(t.Context(), lite.LookupBlock{Workchain: masterchain, Shard: wholeShard, SeqNo: seqNo})
		if err != nil {
			t.Fatal(err)
		}
		return a.(lite.BlockHeader).ID
	}
	link = func(from, to uint32) lite.Link {
		a, err := c.Ask(t.Context(), lite.GetBlockProof{Known: id(from), Target: id(to)})
		if err != nil {
			t.Fatal(err)
		}
		return a.(lite.BlockProof).Links[0]
	}
	return id, link
}

// TestProofThatMakesNoProgressIsRejected uses only valid links. The key blocks are 1, 8, 15, 22 and 29.
func TestProofThatMakesNoProgressIsRejected(t *testing.T) {
	id, link := linker(t)
	for _, row := range []struct {
		name     string
		from, to uint32
		path     []uint32 // blocks to which the links lead
		reached  bool
	}{
		{"forward to the target", 1, 18, []uint32{8, 15, 18}, true},
		{"forward to a key block before the target", 1, 18, []uint32{8, 15}, true},
		{"from a block that is not a key block", 10, 18, []uint32{8, 15, 18}, true},
		{"back from the next key block, as nodes do", 8, 11, []uint32{15, 11}, true},
		{"from a block that is not a key block, and back from the next key block", 10, 11, []uint32{8, 15, 11}, true},
		{"forward to the key block after the target", 1, 14, []uint32{8, 15}, true},
		{"back to the target", 30, 10, []uint32{10}, true},
		{"no links", 1, 18, nil, false},
		{"forward to a block that is not a key block", 1, 18, []uint32{2}, false},
		{"back and forward to a block that is not a key block", 2, 18, []uint32{1, 3}, false},
		{"back to a key block after the target", 30, 10, []uint32{15}, false},
		{"back past the target and forward", 30, 10, []uint32{8, 10}, false},
		{"back to a block that is not a key block", 30, 10, []uint32{28}, false},
		{"in a cycle", 1, 18, []uint32{8, 1, 8, 15, 18}, false},
		{"past the target and back", 1, 8, []uint32{8, 15, 8}, false},
		{"through an earlier key block than the previous one", 16, 18, []uint32{1, 8, 15, 18}, false},
		{"far past the target and back", 8, 11, []uint32{15, 22, 11}, false},
		{"away from the target", 8, 18, []uint32{1}, false},
		{"past the target, no closer than before", 9, 12, []uint32{8, 15}, false},
	} {
		p, at := lite.BlockProof{}, row.from
		for _, next := range row.path {
			p.Links, at = append(p.Links, link(at, next)), next
		}
		for _, p.Complete = range []bool{false, at == row.to} {
			reached, _, err := followLinks(p, id(row.from), id(row.to))
			if (err == nil) != row.reached || err == nil && reached != id(at) {
				t.Errorf("path %q: reached %v with error %v", row.name, reached, err)
			}
		}
	}
}

// TestAlteredLinkIsRejected alters each part of a valid link.
func TestAlteredLinkIsRejected(t *testing.T) {
	id, link := linker(t)
	check := func(l lite.Link) error {
		return recoverPanics(func() error {
			if l.Back {
				return checkBack(l)
			}
			return checkForward(l)
		})
	}
	for _, row := range []struct {
		name        string
		good, other lite.Link
	}{
		{"forward to a key block", link(1, 8), link(8, 15)},
		{"forward, with signatures of the block id", link(8, 11), link(8, 12)},
		{"forward, with Simplex votes", link(15, 18), link(15, 19)},
		{"back", link(30, 10), link(29, 25)},
		{"back to a key block", link(30, 8), link(30, 15)},
	} {
		if err := check(row.good); err != nil {
			t.Errorf("valid link %q: got error %v", row.name, err)
		}
		for what, alter := range map[string]func(l *lite.Link){
			"other source":    func(l *lite.Link) { l.From = id(22) },
			"other target":    func(l *lite.Link) { l.To = row.other.To },
			"other file hash": func(l *lite.Link) { l.To.File[0]++ },
			"other root hash": func(l *lite.Link) { l.To.Root[0]++ },
			"other seq_no":    func(l *lite.Link) { l.To.SeqNo++ },
			"inverted ToKey":  func(l *lite.Link) { l.ToKey = !l.ToKey },
			"other header proof": func(l *lite.Link) {
				l.Dest, l.Block, l.State = row.other.Dest, row.other.Block, nil
			},
			"other configuration": func(l *lite.Link) {
				l.Config, l.State = link(22, 25).Config, link(28, 11).State
			},
			"other state":         func(l *lite.Link) { l.Config = nil; l.State = link(28, 11).State },
			"other validator set": func(l *lite.Link) { l.SetHash++; l.Block = nil },
			"other session":       func(l *lite.Link) { l.Catchain++; l.Block = nil },
			"half of the signatures": func(l *lite.Link) {
				l.Signatures, l.Block = l.Signatures[:len(l.Signatures)/2], nil
			},
			"signatures of another block": func(l *lite.Link) {
				l.Signatures, l.State = row.other.Signatures, row.other.Config
			},
			"state below a pruned branch": func(l *lite.Link) {
				l.Config, l.State = hung(t, l.Config), hung(t, l.State)
			},
			"block below a pruned branch": func(l *lite.Link) {
				l.Dest, l.Block = hung(t, l.Dest), hung(t, l.Block)
			},
			"other kind of signatures": func(l *lite.Link) { l.Simplex = !l.Simplex; l.Block = nil },
		} {
			l := row.good
			alter(&l)
			if check(l) == nil {
				t.Errorf("link %q, altered: %s: got no error", row.name, what)
			}
		}
	}
}

// hung returns a proof with the same content, in which the content is below a pruned branch.
func hung(t *testing.T, proof []byte) []byte {
	t.Helper()
	if proof == nil {
		return nil
	}
	c, err := cell.FromBOC(proof)
	if err != nil {
		t.Fatal(err)
	}
	root, top := c.MustPeekRef(0), c.ToRawUnsafe()
	data := binary.BigEndian.AppendUint16(append([]byte{1, 1}, root.Hash(0)...), root.Depth(0))
	top.Refs = []*cell.Cell{cell.FromRawUnsafe(cell.RawUnsafeCell{
		IsSpecial: true, LevelMask: cell.LevelMask{Mask: 1}, BitsSz: uint(8 * len(data)), Data: data,
		Refs: root.ToRawUnsafe().Refs,
	})}
	return cell.FromRawUnsafe(top).ToBOC()
}
