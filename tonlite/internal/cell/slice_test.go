package cell_test

import (
	"bytes"
	"errors"
	"math/big"
	"math/rand/v2"
	"testing"

	tvm "github.com/xssnick/tonutils-go/tvm/cell"

	"github.com/chaingql/chaingql/tonlite/internal/cell"
)

// TestSliceReadsWhatTonutilsStored stores random values of random sizes.
func TestSliceReadsWhatTonutilsStored(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 1))
		b := tvm.BeginCell()
		var reads []func(s *cell.Slice) bool
		for b.BitsLeft() >= 140 {
			switch rng.IntN(3) {
			case 0:
				n := uint(1 + rng.IntN(64))
				x := rng.Uint64() >> (64 - n)
				b.MustStoreUInt(x, n)
				reads = append(reads, func(s *cell.Slice) bool { got, err := s.Uint(n); return err == nil && got == x })
			case 1:
				n, data := uint(rng.IntN(120)), make([]byte, 15)
				for i := range data {
					data[i] = byte(rng.Uint32())
				}
				b.MustStoreSlice(data, n)
				want := tvm.BeginCell().MustStoreSlice(data, n).EndCell().BeginParse().MustLoadSlice(n)
				reads = append(reads, func(s *cell.Slice) bool {
					got, err := s.Bytes(n)
					return err == nil && bytes.Equal(got, want)
				})
			case 2:
				x := new(big.Int).Rsh(new(big.Int).SetUint64(rng.Uint64()), uint(rng.IntN(64)))
				b.MustStoreBigCoins(x)
				reads = append(reads, func(s *cell.Slice) bool {
					got, err := s.Coins()
					return err == nil && got.Cmp(x) == 0
				})
			}
		}
		roots, err := cell.Parse(b.EndCell().ToBOC(), 1, 1)
		if err != nil {
			t.Fatal(err)
		}
		s := roots[0].Open()
		for i, read := range reads {
			if !read(s) {
				t.Fatalf("seed %d: value %d differs", seed, i)
			}
		}
		if _, err := s.Uint(1); !errors.Is(err, cell.ErrMalformed) {
			t.Errorf("seed %d: reading past the end returned error %v, want ErrMalformed", seed, err)
		}
		if _, err := s.Ref(); !errors.Is(err, cell.ErrMalformed) {
			t.Errorf("seed %d: reading a missing reference returned error %v, want ErrMalformed", seed, err)
		}
	}
}
