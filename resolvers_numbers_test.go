package chaingql

import (
	"encoding/hex"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/chaingql/chaingql/internal/xsync"
)

func TestNumbersAreFormattedLikeStrconv(t *testing.T) {
	r := rand.New(rand.NewPCG(51, 52))
	for i := range 3000 {
		var id [32]byte
		for j := range id {
			id[j] = byte(r.Uint32())
		}
		id[i%32] = byte(i)
		if got, want := string(appendID([]byte("x"), &id)), "x"+hex.EncodeToString(id[:]); got != want {
			t.Fatalf("appendID appended %s, want %s", got, want)
		}
		n := new(big.Int).SetBytes(id[:r.IntN(17)])
		if i < 5 {
			n = new(big.Int).Lsh(big.NewInt(1), uint(62+i))
		}
		for range 2 {
			if got, want := string(decimal{n}.AppendLeaf(nil)), `"`+n.String()+`"`; got != want {
				t.Fatalf("the decimal balance is %s, want %s", got, want)
			}
			if got, want := string(hexadecimal{n}.AppendLeaf(nil)), `"0x`+n.Text(16)+`"`; got != want {
				t.Fatalf("the hexadecimal balance is %s, want %s", got, want)
			}
			n = new(big.Int).Sub(n, big.NewInt(1))
			if n.Sign() < 0 {
				break
			}
		}
	}
}

// BenchmarkAppendHex compares appendID, which writes eight hex digits at a time, with encoding/hex.
func BenchmarkAppendHex(b *testing.B) {
	var id [32]byte
	dst := make([]byte, 0, 64)
	b.Run("eight at a time", func(b *testing.B) {
		for b.Loop() {
			dst = appendID(dst[:0], &id)
		}
	})
	b.Run("encoding/hex", func(b *testing.B) {
		for b.Loop() {
			dst = hex.AppendEncode(dst[:0], id[:])
		}
	})
}

// BenchmarkAppendBalance compares formatting a balance of at most 64 bits without and with big.Int.
func BenchmarkAppendBalance(b *testing.B) {
	n := big.NewInt(1_234_567_890_123)
	dst := make([]byte, 0, 64)
	b.Run("as 64 bits", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			dst = decimal{n}.AppendLeaf(dst[:0])
		}
	})
	b.Run("by big.Int", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			dst = append(append(append(dst[:0], '"'), n.String()...), '"')
		}
	})
}

// BenchmarkGate measures the time for entering and leaving a gate, which each request does.
func BenchmarkGate(b *testing.B) {
	a := xsync.NewGate(10)
	for b.Loop() {
		a.Enter()
		a.Leave()
	}
}
