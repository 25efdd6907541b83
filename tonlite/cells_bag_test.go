package tonlite

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/chaingql/chaingql/tonlite/internal/cell"
	"github.com/chaingql/chaingql/tonlite/internal/lite"
)

// widestBag returns a bag with count cells. Each cell has two bytes, no data, and up to four
// references. The three highest bits of claim are the level mask that each cell claims.
func widestBag(count int, claim byte) []byte {
	data := append([]byte{}, 0xb5, 0xee, 0x9c, 0x72, 3, 4)
	for _, field := range []int{count, 1, 0} { // cells, roots, absent
		data = append(data, byte(field>>16), byte(field>>8), byte(field))
	}
	data = binary.BigEndian.AppendUint32(data, uint32(2*count+3*(count-1)))
	data = append(data, 0, 0, 0) // the first cell is the root
	for i := range count {
		below := min(4, max(0, count-4*i-1))
		data = append(data, byte(below)|claim, 0)
		for k := 4*i + 1; k <= 4*i+below; k++ {
			data = append(data, byte(k>>16), byte(k>>8), byte(k))
		}
	}
	return data
}

// TestTooManyCellsAreRejectedWithoutAllocation parses a bag with as many cells as fit in half a
// megabyte, as the content of each kind of response.
func TestTooManyCellsAreRejectedWithoutAllocation(t *testing.T) {
	id := lite.BlockID{Workchain: masterchain, Shard: wholeShard, SeqNo: 7}
	other := widestBag(maxTreeCells, 0)
	header := func(data []byte) error { _, err := openProof(data, [32]byte{}, maxPathCells); return err }
	for _, row := range []struct {
		name string
		read func(data []byte) error
		most uint64 // bytes that parsing one response may allocate
	}{
		{"a header", header, 1 << 20},
		{"an account", func(data []byte) error {
			_, err := verifyBalance(lite.AccountState{Proof: data, State: data}, id, [32]byte{})
			return err
		}, 1 << 20},
		{"signatures", func(data []byte) error { return checkForward(lite.Link{Dest: data, Config: data}) }, 1 << 20},
		{"an earlier block", func(data []byte) error {
			return checkBack(lite.Link{Block: data, State: data})
		}, 1 << 20},
		{"a block", func(data []byte) error {
			id.File = sha256.Sum256(data)
			_, _, err := parseBlock(lite.BlockData{ID: id, Data: data}, id, true)
			return err
		}, 1 << 20},
		{"a block with the maximum number of cells", func(data []byte) error {
			data = widestBag(maxTreeCells, data[22]&^31)
			id.File = sha256.Sum256(data)
			_, _, err := parseBlock(lite.BlockData{ID: id, Data: data}, id, true)
			return err
		}, 48 << 20},
		{"other bytes than those of the block", func(data []byte) error {
			id.File = [32]byte{1}
			_, _, err := parseBlock(lite.BlockData{ID: id, Data: other}, id, true)
			return err
		}, 1 << 20},
	} {
		for name, claim := range map[string]byte{"": 0, ", with claimed levels": 7 << 5} {
			data := widestBag(100_000, claim)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := row.read(data)
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Errorf("%s%s with too many cells: got no error", row.name, name)
			}
			if got := after.TotalAlloc - before.TotalAlloc; got > row.most {
				t.Errorf("%s%s: parsing %d bytes allocated %d bytes, want at most %d",
					row.name, name, len(data), got, row.most)
			}
		}
	}
}

func TestLevelWithoutPrunedBranchIsRejected(t *testing.T) {
	if _, err := cell.Parse(widestBag(3, 0), 1, 3); err != nil {
		t.Errorf("valid bag: got error %v", err)
	}
	for _, claim := range []byte{1 << 5, 2 << 5, 7 << 5} {
		for _, count := range []int{3, 1} { // one cell: only the root
			if _, err := cell.Parse(widestBag(count, claim), 1, 3); !errors.Is(err, errCells) {
				t.Errorf("level mask %03b in each of %d cells: got error %v, want errCells", claim>>5, count, err)
			}
		}
	}
	if _, err := cell.Parse(widestBag(4, 0), 1, 3); !errors.Is(err, errCells) {
		t.Errorf("one cell above the limit: got error %v, want errCells", err)
	}
}

// TestBagWithWrongIndexIsRejected uses indexes that do not contain the end of each cell.
func TestBagWithWrongIndexIsRejected(t *testing.T) {
	bag := func(ends ...byte) []byte {
		head := []byte{0xb5, 0xee, 0x9c, 0x72, 0x81, 1, 3, 1, 0, 8, 0}
		return append(append(head, ends...), 2, 0, 1, 2, 0, 0, 0, 0)
	}
	if roots, err := cell.Parse(bag(4, 6, 8), 1, 3); err != nil || len(roots) != 1 {
		t.Errorf("valid index: got %d roots and error %v", len(roots), err)
	}
	for _, ends := range [][]byte{{4, 4, 8}, {4, 8, 6}, {0, 0, 0}, {4, 6, 255}} {
		if _, err := cell.Parse(bag(ends...), 1, 3); !errors.Is(err, errCells) {
			t.Errorf("index %d: got error %v, want errCells", ends, err)
		}
	}
}

// TestBagFieldsAreCheckedAtTheirBounds uses bags in which one field has its largest or smallest
// valid value, or is just outside its range.
func TestBagFieldsAreCheckedAtTheirBounds(t *testing.T) {
	head := []byte{0xb5, 0xee, 0x9c, 0x72, 1, 1, 2, 1, 0} // two cells, one root
	for _, row := range []struct {
		name string
		data []byte
		want error
	}{
		{"a root without data", []byte{0xb5, 0xee, 0x9c, 0x72, 1, 1, 1, 1, 0, 2, 0, 0, 0}, nil},
		{"a reference to the last cell", append(head, 5, 0, 1, 0, 1, 0, 0), nil},
		{"a reference to its own cell", append(head, 5, 0, 1, 0, 0, 0, 0), errCells},
		{"a reference past the last cell", append(head, 5, 0, 1, 0, 2, 0, 0), errCells},
		{"a pruned branch without a level", append(head, 6, 0, 1, 0, 1, 8, 2, 1), errCells},
		{"references of four bytes and lengths of eight bytes", []byte("\xb5\xee\x9c\x72\x04\x08" +
			"\x00\x00\x00\x02" + "\x00\x00\x00\x01" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00\x00\x00\x00\x08" +
			"\x00\x00\x00\x00" + "\x01\x00\x00\x00\x00\x01" + "\x00\x00"), nil},
	} {
		if _, err := cell.Parse(row.data, 1, 3); !errors.Is(err, row.want) {
			t.Errorf("bag with %s: got error %v, want %v", row.name, err, row.want)
		}
	}
}

// TestConcurrentParsingIsLimited checks that at most as many responses are parsed concurrently as
// there are processors, or two if there is only one processor.
func TestConcurrentParsingIsLimited(t *testing.T) {
	set := newServers(network{}, Options{})
	t.Cleanup(set.close)
	var running, most atomic.Int64
	var all sync.WaitGroup
	for range 8 * runtime.GOMAXPROCS(0) {
		all.Go(func() {
			_ = set.parse(t.Context(), func() error {
				n := running.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				runtime.Gosched()
				running.Add(-1)
				return nil
			})
		})
	}
	all.Wait()
	if got, limit := int(most.Load()), max(2, runtime.GOMAXPROCS(0)); got > limit {
		t.Errorf("%d responses were parsed concurrently, want at most %d", got, limit)
	}
}
