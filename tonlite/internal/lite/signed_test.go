package lite

import (
	"crypto/ed25519"
	"encoding/hex"
	"testing"
)

// TestRecordedVoteIsValid checks the vote of one validator for masterchain block 59379986 of
// TON's mainnet. The vote comes from that block's proof.
func TestRecordedVoteIsValid(t *testing.T) {
	const (
		key       = "36f7d72b8638d973e81d5d6aa6a2e09d9e5c6a6a000beed5e29718f3ba9ffe7b"
		node      = "6f65ccb5c78cc441ba926eeac41c8d453cae32bf84d7f2f1b928a5045df61b5f"
		signature = "1b1e10eaf18de60f32002bf1aa9f99638d22e489200e2f2d21ac3370da60f925" +
			"130a73df250151f39945ad27971f893c49ca30a8396792685ab9a1661c11ba0b"
		session   = "ae715c8fcddff7f52aed022770d0305ba2e25cc5e3c5ac0edb337a3766281c85"
		candidate = "dcbcf9e8ffffffff000000000000008012118a03" +
			"4a46b58c0ee1187f7a904fb27363e8dd2c49dc3a8c695632d52205201f1e69a9" +
			"cb7b0e0feb58d8fa0d705dc377a60136ba9abe5184c8bdd81acec68d1590c1b4" +
			"5cd96a51329ada920bb07525dc2c3008e95baafcb7cb4b5d2f1a250734f25b3bf19a4b1a3fcd91b665020000" +
			"d51ab08997b2c50be459f0e57a925857ac648c1147d7a6cb830b31d86638ca48"
	)
	l := Link{Simplex: true, Session: [32]byte(unhex(t, session)), Slot: 614, Candidate: unhex(t, candidate),
		To: BlockID{
			Workchain: -1, Shard: 1 << 63, SeqNo: 59379986,
			Root: [32]byte(unhex(t, "4a46b58c0ee1187f7a904fb27363e8dd2c49dc3a8c695632d52205201f1e69a9")),
			File: [32]byte(unhex(t, "cb7b0e0feb58d8fa0d705dc377a60136ba9abe5184c8bdd81acec68d1590c1b4")),
		}}
	if id := KeyID(unhex(t, key)); hex.EncodeToString(id[:]) != node {
		t.Errorf("got key id %x, want %s", id, node)
	}
	text, err := l.SignedText()
	if err != nil {
		t.Fatal(err)
	}
	if !ed25519.Verify(unhex(t, key), text, unhex(t, signature)) {
		t.Error("the signature does not match the vote")
	}
	other := l
	other.To.SeqNo++
	if _, err := other.SignedText(); err == nil {
		t.Error("the vote was accepted for another block")
	}
	other = l
	other.Candidate = append([]byte(nil), l.Candidate...)
	other.Candidate[len(other.Candidate)-1]++
	if text, err := other.SignedText(); err == nil && ed25519.Verify(unhex(t, key), text, unhex(t, signature)) {
		t.Error("the vote was accepted for another candidate")
	}
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
