package cell

import (
	"fmt"
	"math/big"
)

// A Slice reads the data and the references of a cell from the beginning.
type Slice struct {
	cell *Cell
	bit  int // number of bits that were read
	ref  int // number of references that were read
}

// Open returns a Slice of c.
func (c *Cell) Open() *Slice { return &Slice{cell: c} }

// skip moves behind the next n bits and returns the position of the first one.
func (s *Slice) skip(n uint) (at int, err error) {
	if n > uint(s.cell.bits-s.bit) {
		return 0, fmt.Errorf("%w: the data of a cell ends too early", ErrMalformed)
	}
	at = s.bit
	s.bit += int(n)
	return at, nil
}

// bits8 returns the 8 bits from position at on. Bits after the end of the data are undefined.
func (s *Slice) bits8(at int) byte {
	i, shift := at/8, at%8
	b := s.cell.data[i] << shift
	if shift > 0 && i+1 < len(s.cell.data) {
		b |= s.cell.data[i+1] >> (8 - shift)
	}
	return b
}

// Uint reads an unsigned integer of n bits, at most 64.
func (s *Slice) Uint(n uint) (uint64, error) {
	at, err := s.skip(n)
	if err != nil {
		return 0, err
	}
	x := uint64(0)
	for ; n >= 8; n, at = n-8, at+8 {
		x = x<<8 | uint64(s.bits8(at))
	}
	if n > 0 {
		x = x<<n | uint64(s.bits8(at)>>(8-n))
	}
	return x, nil
}

// Bool reads one bit.
func (s *Slice) Bool() (bool, error) {
	x, err := s.Uint(1)
	return x == 1, err
}

// Bytes reads n bits. The last byte is filled with zeros.
func (s *Slice) Bytes(n uint) ([]byte, error) {
	at, err := s.skip(n)
	if err != nil {
		return nil, err
	}
	b := make([]byte, (n+7)/8)
	for i := range b {
		b[i] = s.bits8(at + 8*i)
	}
	if n%8 > 0 {
		b[len(b)-1] &= 0xff << (8 - n%8)
	}
	return b, nil
}

// Coins reads an amount of nanotons: its length in bytes, in 4 bits, and its bytes.
func (s *Slice) Coins() (*big.Int, error) {
	n, err := s.Uint(4)
	if err != nil {
		return nil, err
	}
	b, err := s.Bytes(8 * uint(n))
	if err != nil {
		return nil, err
	}
	return new(big.Int).SetBytes(b), nil
}

// Ref returns the cell to which the next reference points.
func (s *Slice) Ref() (*Cell, error) {
	c, err := s.cell.Ref(s.ref)
	if err == nil {
		s.ref++
	}
	return c, err
}
