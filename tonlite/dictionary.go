package tonlite

import (
	"errors"

	"github.com/xssnick/tonutils-go/tvm/cell"
)

// errNoKey is returned if a dictionary provably lacks a key.
var errNoKey = errors.New("a dictionary does not have a key")

// lookUp looks up a key in a dictionary in a proof. It returns errNoKey if the key is
// provably absent, and errPruned if the proof omits the path to the key.
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
		if c, err = c.PeekRef(next); err != nil {
			return nil, err
		}
		at++
	}
}

// forEach calls value for each key of the given length. It returns an error if there are
// more than most keys: a small proof can represent billions, because cells can be shared.
func forEach(c *cell.Cell, bits uint, most int, value func(key uint64, s *cell.Slice) error) error {
	s, err := openCell(c)
	if err != nil {
		return err
	}
	return forEachIn(s, bits, most, value)
}

// forEachIn is forEach for a dictionary whose root is the rest of a cell.
func forEachIn(root *cell.Slice, bits uint, most int, value func(key uint64, s *cell.Slice) error) error {
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

var errLabel = errors.New("a dictionary's label is too long")

// readLabel reads the common prefix of all keys below a node.
func readLabel(s *cell.Slice, most uint) (label []byte, n uint, err error) {
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
		n = uint(in.readUint(lengthBits(most)))
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

// lengthBits returns the number of bits of a length up to most.
func lengthBits(most uint) (n uint) {
	for ; most > 0; most >>= 1 {
		n++
	}
	return n
}
