package cell_test

import (
	"errors"
	"testing"

	"github.com/chaingql/chaingql/tonlite/internal/cell"
)

// bag returns a bag of cells with references and lengths of one byte. length is the claimed size of cells.
func bag(count byte, roots []byte, length byte, cells ...byte) []byte {
	head := []byte{0xb5, 0xee, 0x9c, 0x72, 1, 1, count, byte(len(roots)), 0, length}
	return append(append(head, roots...), cells...)
}

func TestInvalidBagsAreRejected(t *testing.T) {
	two := []byte{1, 0, 1, 0, 0} // a cell that refers to another one
	valid := bag(2, []byte{0}, 5, two...)
	for _, whole := range [][]byte{valid, wideBag(4, 8), bag(1, []byte{0}, 72, prunedCell(3, 3)...)} {
		if _, err := cell.Parse(whole, 1, 10); err != nil {
			t.Errorf("valid bag %x: got error %v", whole, err)
		}
		for n := range whole {
			if _, err := cell.Parse(whole[:n:n], 1, 10); !errors.Is(err, cell.ErrMalformed) {
				t.Errorf("the first %d bytes of the valid bag %x: got error %v, want ErrMalformed", n, whole, err)
			}
		}
	}
	huge := append([]byte{0xb5, 0xee, 0x9c, 0x72, 1, 8, 2, 1, 0}, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0)
	for name, row := range map[string]struct {
		bag   []byte
		roots int
	}{
		"more than four references":       {bag(2, []byte{0}, 9, 5, 0, 1, 1, 1, 1, 1, 0, 0), 1},
		"more roots than cells":           {bag(2, []byte{0, 1, 1}, 5, two...), 3},
		"another number of roots":         {valid, 2},
		"a root past the last cell":       {bag(2, []byte{2}, 5, two...), 1},
		"no cells":                        {bag(0, nil, 0), 0},
		"a cell that no other refers to":  {bag(2, []byte{0}, 4, 0, 0, 0, 0), 1},
		"bytes after the last cell":       {bag(2, []byte{0}, 6, append(two, 0)...), 1},
		"a length of one byte too many":   {bag(2, []byte{0}, 6, two...), 1},
		"a length of one byte too few":    {bag(2, []byte{0}, 4, two...), 1},
		"a length that overflows":         {append(huge, two...), 1},
		"data past the end":               {bag(2, []byte{0}, 5, 1, 10, 1, 0, 0), 1},
		"half a cell":                     {bag(2, []byte{0}, 4, 1, 0, 1, 0), 1},
		"references of five bytes":        {wideBag(5, 1), 1},
		"lengths of nine bytes":           {wideBag(1, 9), 1},
		"another magic number":            {append([]byte{0xb5, 0xee, 0x9c, 0x73}, valid[4:]...), 1},
		"a pruned branch of level 4":      {bag(1, []byte{0}, 38, prunedCell(8, 0)...), 1},
		"a pruned branch of levels 1, 4":  {bag(1, []byte{0}, 72, prunedCell(9, 1)...), 1},
		"a pruned branch of other levels": {bag(1, []byte{0}, 72, prunedCell(3, 1)...), 1},
	} {
		if _, err := cell.Parse(row.bag, row.roots, 10); !errors.Is(err, cell.ErrMalformed) {
			t.Errorf("%s: got error %v, want ErrMalformed", name, err)
		}
	}
}

// wideBag returns a valid bag of two cells with the given numbers of bytes per reference and per length, if bags may
// have these.
func wideBag(reference, length int) []byte {
	wide := func(n, bytes int) []byte { return append(make([]byte, bytes-1), byte(n)) }
	bag := []byte{0xb5, 0xee, 0x9c, 0x72, byte(reference), byte(length)}
	for _, field := range []int{2, 1, 0} { // cells, roots, absent
		bag = append(bag, wide(field, reference)...)
	}
	bag = append(append(bag, wide(4+reference, length)...), wide(0, reference)...)
	return append(append(append(bag, 1, 0), wide(1, reference)...), 0, 0)
}

// prunedCell returns a serialized pruned branch with a level mask, and another one in its descriptor.
func prunedCell(mask, descriptor byte) []byte {
	hashes := 0
	for m := mask; m > 0; m &= m - 1 {
		hashes++
	}
	size := 2 + 34*hashes
	return append([]byte{descriptor<<5 | 8, byte(2 * size), 1, mask}, make([]byte, size-2)...)
}
