package lite

import (
	"bytes"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

func someID(n byte) BlockID {
	return BlockID{Workchain: -1, Shard: 1 << 63, SeqNo: uint32(n), Root: [32]byte{n}, File: [32]byte{31: n}}
}

func sign(n byte) []byte { return bytes.Repeat([]byte{n}, 64) }

var answers = []Message{
	MasterchainInfo{Last: someID(1), State: [32]byte{2}, ZeroRoot: [32]byte{3}, ZeroFile: [32]byte{4}},
	BlockData{someID(1), []byte("some bytes")},
	BlockData{someID(1), bytes.Repeat([]byte("many bytes"), 1000)},
	BlockHeader{someID(1), 7, []byte{1, 2, 3}},
	AccountState{someID(1), someID(2), []byte{1}, []byte{2, 2}, []byte{3, 3, 3}},
	AllShardsInfo{someID(1), []byte{1}, []byte{2, 2}},
	BlockProof{true, someID(1), someID(3), []Link{
		{ToKey: true, From: someID(1), To: someID(2), Dest: []byte{1}, Config: []byte{2}, SetHash: 3, Catchain: 4,
			Signatures: []Signature{{[32]byte{5}, sign(6)}, {[32]byte{7}, sign(8)}}},
		{From: someID(2), To: someID(3), Dest: []byte{1}, Back: true, Block: []byte{2}, State: []byte{3}},
		{From: someID(3), To: someID(4), Dest: []byte{1}, Config: []byte{2}, SetHash: 3, Catchain: 4,
			Signatures: []Signature{{[32]byte{5}, sign(6)}},
			Simplex:    true, Session: [32]byte{9}, Slot: 10, Candidate: []byte{11}},
	}},
}

func TestResponsesRoundTrip(t *testing.T) {
	for _, want := range answers {
		got, err := ParseAnswer(want.append(nil))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("encoded and parsed %#v: got %#v and error %v", want, got, err)
		}
	}
	if _, err := ParseAnswer(Error{651, "not in db"}.append(nil)); err != (Error{651, "not in db"}) {
		t.Errorf("response with an error: got error %v", err)
	}
}

// TestLongErrorTextsAreCutBetweenCharacters parses errors with texts around and far above the limit.
func TestLongErrorTextsAreCutBetweenCharacters(t *testing.T) {
	for text, want := range map[string]string{
		strings.Repeat("x", 200):       strings.Repeat("x", 200),
		strings.Repeat("x", 8<<20):     strings.Repeat("x", 200),
		strings.Repeat("x", 199) + "é": strings.Repeat("x", 199),
		strings.Repeat("\x80", 1000):   strings.Repeat("\x80", 196),
	} {
		if _, err := ParseAnswer(Error{621, text}.append(nil)); err != (Error{621, want}) {
			t.Errorf("error with %d bytes of text: got %v, want %d bytes", len(text), err, len(want))
		}
	}
}

// signedBy returns a forward link with n signatures.
func signedBy(n int) Link {
	l := Link{Signatures: make([]Signature, n)}
	for i := range l.Signatures {
		l.Signatures[i].Sign = sign(1)
	}
	return l
}

// TestProofsWithTooManySignaturesAreRejected spreads the signatures over two links, because each of them takes memory.
func TestProofsWithTooManySignaturesAreRejected(t *testing.T) {
	for extra, want := range map[int]error{0: nil, 1: errUnexpected} {
		p := BlockProof{Links: []Link{signedBy(maxSignatures / 2), signedBy(maxSignatures/2 + extra)}}
		if _, err := ParseAnswer(p.append(nil)); err != want {
			t.Errorf("%d signatures: got error %v, want %v", maxSignatures+extra, err, want)
		}
	}
}

// TestParsedSignaturesTakeLessMemoryThanTheirMessage measures the largest proof, and one whose signatures are empty.
func TestParsedSignaturesTakeLessMemoryThanTheirMessage(t *testing.T) {
	for name, l := range map[string]Link{
		"valid": signedBy(maxSignatures), "empty": {Signatures: make([]Signature, maxSignatures)},
	} {
		message := BlockProof{Links: []Link{l}}.append(nil)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := ParseAnswer(message)
		runtime.ReadMemStats(&after)
		if (err == nil) != (name == "valid") {
			t.Errorf("%s signatures: got error %v", name, err)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > uint64(len(message))*2/3 {
			t.Errorf("%s signatures: parsing %d bytes took %d bytes of memory", name, len(message), n)
		}
	}
}

// TestResponsesMustNotHaveMoreBytesThanNeeded appends a byte to each response.
func TestResponsesMustNotHaveMoreBytesThanNeeded(t *testing.T) {
	for _, a := range answers {
		if _, err := ParseAnswer(append(a.append(nil), 0)); err != errUnexpected {
			t.Errorf("%T and one more byte: got error %v, want %v", a, err, errUnexpected)
		}
	}
}

func TestProofsWithTooManyLinksAreRejected(t *testing.T) {
	for n, want := range map[int]error{maxLinks: nil, maxLinks + 1: errUnexpected} {
		if _, err := ParseAnswer(BlockProof{Links: make([]Link, n)}.append(nil)); err != want {
			t.Errorf("%d links: got error %v, want %v", n, err, want)
		}
	}
}

func TestQueriesRoundTrip(t *testing.T) {
	for _, want := range []Message{
		GetMasterchainInfo{}, GetBlock{someID(1)}, GetBlockHeader{someID(1)}, LookupBlock{-1, 1 << 63, 7},
		GetAccountState{someID(1), -1, [32]byte{2}, false}, GetAccountState{someID(1), 0, [32]byte{2}, true},
		GetAllShardsInfo{someID(1)}, GetBlockProof{someID(1), someID(2)},
		Wait{7, 100, GetBlock{someID(1)}},
	} {
		got, err := parseQuery(appendBytes(appendUint32(nil, idLite), want.append(nil)))
		if err != nil || got != want {
			t.Errorf("encoded and parsed %#v: got %#v and error %v", want, got, err)
		}
	}
}

// TestLengthsFrom254AreEncodedInFourBytes encodes byte strings with lengths around 254.
func TestLengthsFrom254AreEncodedInFourBytes(t *testing.T) {
	for n, head := range map[int][]byte{0: {0}, 253: {253}, 254: {254, 254, 0, 0}, 255: {254, 255, 0, 0},
		256: {254, 0, 1, 0}} {
		data := bytes.Repeat([]byte{7}, n)
		written := appendBytes(nil, data)
		if !bytes.HasPrefix(written, append(head, data...)) || len(written)%4 != 0 {
			t.Errorf("%d bytes: got %d encoded bytes that begin with % x", n, len(written), written[:4])
		}
		if r := (&reader{rest: written}); !bytes.Equal(r.readBytes(), data) || r.err != nil || len(r.rest) != 0 {
			t.Errorf("%d bytes: parsing returned other bytes or error %v", n, r.err)
		}
	}
}

// FuzzParseAnswer requires that ParseAnswer returns either a response or an error for any
// message.
func FuzzParseAnswer(f *testing.F) {
	for _, a := range answers {
		message := a.append(nil)
		f.Add(message)
		for _, n := range []int{0, 3, 4, 5, 80, len(message) / 2, len(message) - 1} {
			f.Add(message[:min(n, len(message))])
		}
	}
	f.Add(append(BlockProof{Links: nil}.append(nil)[:4+4+80+80], 0xff, 0xff, 0xff, 0xff))
	f.Fuzz(func(t *testing.T, message []byte) {
		a, err := ParseAnswer(message)
		if (a == nil) == (err == nil) {
			t.Errorf("got response %v and error %v, want exactly one of them", a, err)
		}
	})
}
