package tonlite

import (
	"errors"

	"github.com/xssnick/tonutils-go/tvm/cell"
)

// errNoKey says that a dictionary is proven not to have a key.
var errNoKey = errors.New("a dictionary does not have a key")

// find looks a key up in a dictionary of which a proof shows the way. Where the
// way is left out that is errPruned, and never the absence of the key.
func find(c *cell.Cell, key []byte) (*cell.Slice, error) {
	for at, size := uint(0), uint(8*len(key)); ; {
		s, err := open(c)
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
		if c, err = c.PeekRef(next); err != nil {
			return nil, err
		}
		at++
	}
}

// all calls what it is given for the value of each key of so many bits, of which
// there may be only a few: cells that many share can stand for billions.
func all(c *cell.Cell, bits uint, most int, value func(key uint64, s *cell.Slice) error) error {
	s, err := open(c)
	if err != nil {
		return err
	}
	return allBelow(s, bits, most, value)
}

// allBelow is all of a dictionary whose root is the rest of a cell.
func allBelow(root *cell.Slice, bits uint, most int, value func(key uint64, s *cell.Slice) error) error {
	left := most
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
				return errors.New("a dictionary has too many keys")
			}
			return value(key, s)
		}
		for i := range 2 {
			r, err := s.LoadRefCell()
			if err != nil {
				return err
			}
			next, err := open(r)
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

var errLabel = errors.New("a dictionary's label is too long")

// readLabel reads the part of a key that all keys below a node share.
func readLabel(s *cell.Slice, most uint) (label []byte, n uint, err error) {
	in := scan{Slice: s}
	same := false
	switch {
	case !in.flag(): // short: its length in ones
		for in.err == nil && in.flag() {
			n++
		}
	default:
		var fill bool
		if same = in.flag(); same {
			fill = in.flag()
		}
		n = uint(in.number(lengthBits(most)))
		if same && n <= most && in.err == nil {
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
	if n > most {
		return nil, 0, errLabel
	}
	if !same {
		label, err = s.LoadSlice(n)
	}
	return label, n, err
}

// lengthBits is how many bits write a length up to most.
func lengthBits(most uint) (n uint) {
	for ; most > 0; most >>= 1 {
		n++
	}
	return n
}
