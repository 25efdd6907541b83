package tonlite

import (
	"errors"

	"github.com/chaingql/chaingql/tonlite/internal/cell"
)

// errNoKey is returned if a dictionary provably lacks a key.
var errNoKey = errors.New("the dictionary does not contain the key")

// lookUp returns the value of key in the dictionary with root c, which may be part of a proof. It
// returns errNoKey if the key is provably absent, and errPruned if the proof omits the path to
// the key.
func lookUp(c *cell.Cell, key []byte) (*cell.Slice, error) {
	for at, size := uint(0), uint(8*len(key)); ; {
		s, err := openCell(c)
		if err != nil {
			return nil, err
		}
		label, n, err := readLabel(s, size-at)
		if err != nil {
			return nil, err
		}
		for i := range n {
			if bit(key, at+i) != bit(label, i) {
				return nil, errNoKey
			}
		}
		if at += n; at == size {
			return s, nil
		}
		next := 0
		if bit(key, at) {
			next = 1
		}
		if c, err = c.Ref(next); err != nil {
			return nil, err
		}
		at++
	}
}

// forEach calls value for each entry of the dictionary with root c. Keys have the given number of
// bits. forEach returns an error if there are more than limit entries. Without a limit, a small
// proof could contain billions of entries, because they can share cells.
func forEach(c *cell.Cell, bits uint, limit int, value func(key uint64, s *cell.Slice) error) error {
	s, err := openCell(c)
	if err != nil {
		return err
	}
	return forEachIn(s, bits, limit, value)
}

// forEachIn is like forEach, but the root of the dictionary is the unread part of a cell.
func forEachIn(root *cell.Slice, bits uint, limit int, value func(key uint64, s *cell.Slice) error) error {
	left := limit
	var walk func(s *cell.Slice, key uint64, rest uint) error
	walk = func(s *cell.Slice, key uint64, rest uint) error {
		label, n, err := readLabel(s, rest)
		if err != nil {
			return err
		}
		for i := range n {
			key <<= 1
			if bit(label, i) {
				key |= 1
			}
		}
		if rest -= n; rest == 0 {
			if left--; left < 0 {
				return errors.New("the dictionary has too many keys")
			}
			return value(key, s)
		}
		for i := range 2 {
			r, err := s.Ref()
			if err != nil {
				return err
			}
			next, err := openCell(r)
			if err != nil {
				return err
			}
			if err := walk(next, key<<1|uint64(i), rest-1); err != nil {
				return err
			}
		}
		return nil
	}
	return walk(root, 0, bits)
}

func bit(b []byte, i uint) bool { return b[i/8]>>(7-i%8)&1 == 1 }

var errLabel = errors.New("a label in the dictionary is too long")

// readLabel reads the label of a dictionary node: the bits that come next in all keys below the
// node. n is the number of these bits, which must be at most maxBits.
func readLabel(s *cell.Slice, maxBits uint) (label []byte, n uint, err error) {
	in := cellReader{Slice: s}
	same := false
	switch {
	case !in.readBool(): // short: its length in ones
		for in.err == nil && in.readBool() {
			n++
		}
	default:
		var fill bool
		if same = in.readBool(); same {
			fill = in.readBool()
		}
		n = uint(in.readUint(lengthBits(maxBits)))
		if same && n <= maxBits && in.err == nil {
			label = make([]byte, 32)
			for i := range label {
				if fill {
					label[i] = 0xff
				}
			}
		}
	}
	if in.err != nil {
		return nil, 0, in.err
	}
	if n > maxBits {
		return nil, 0, errLabel
	}
	if !same {
		label, err = s.Bytes(n)
	}
	return label, n, err
}

// lengthBits returns the number of bits that encode a length of up to maxBits.
func lengthBits(maxBits uint) (n uint) {
	for ; maxBits > 0; maxBits >>= 1 {
		n++
	}
	return n
}
