package tonlite

import (
	"encoding/binary"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/chaingql/chaingql/tonlite/internal/lite"
)

// widestBag returns a bag of count cells of two bytes, each with up to four
// below it. A descriptor's bits from 32 on claim a level.
func widestBag(count int, claim byte) []byte {
	data := append([]byte{}, 0xb5, 0xee, 0x9c, 0x72, 3, 4)
	for _, field := range []int{count, 1, 0} { // cells, roots, absent
		data = append(data, byte(field>>16), byte(field>>8), byte(field))
	}
	data = binary.BigEndian.AppendUint32(data, uint32(2*count+3*(count-1)))
	data = append(data, 0, 0, 0) // the root is the first
	for i := range count {
		below := min(4, max(0, count-4*i-1))
		data = append(data, byte(below)|claim, 0)
		for k := 4*i + 1; k <= 4*i+below; k++ {
			data = append(data, byte(k>>16), byte(k>>8), byte(k))
		}
	}
	return data
}

// TestAnswersAreRefusedBeforeTheyCostMemory has a server send as many cells as
// fit in half a megabyte, in place of each kind of answer.
func TestAnswersAreRefusedBeforeTheyCostMemory(t *testing.T) {
	id := lite.BlockID{Workchain: masterchain, Shard: wholeShard, SeqNo: 7}
	header := func(data []byte) error { _, err := shown(data, [32]byte{}, maxPathCells); return err }
	for _, row := range []struct {
		name string
		read func(data []byte) error
		most uint64 // bytes that reading one answer may allocate
	}{
		{"a header", header, 1 << 20},
		{"an account", func(data []byte) error {
			_, err := provenBalance(lite.AccountState{Proof: data, State: data}, id, [32]byte{})
			return err
		}, 1 << 20},
		{"signatures", func(data []byte) error { return forward(lite.Link{Dest: data, Config: data}) }, 1 << 20},
		{"an earlier block", func(data []byte) error { return back(lite.Link{Block: data, State: data}) }, 1 << 20},
		{"a block", func(data []byte) error {
			_, _, err := parseBlock(lite.BlockData{ID: id, Data: data}, id, true)
			return err
		}, 1 << 20},
		{"a block of as many cells as one may have", func(data []byte) error {
			data = widestBag(maxTreeCells, data[22]&^31)
			_, _, err := parseBlock(lite.BlockData{ID: id, Data: data}, id, true)
			return err
		}, 48 << 20},
	} {
		for name, claim := range map[string]byte{"": 0, ", with levels": 7 << 5} {
			data := widestBag(100_000, claim)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := row.read(data)
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Errorf("%s%s: it is believed", row.name, name)
			}
			if got := after.TotalAlloc - before.TotalAlloc; got > row.most {
				t.Errorf("%s%s: %d bytes of answer took %d bytes, more than %d", row.name, name, len(data), got, row.most)
			}
		}
	}
}

func TestLevelWithoutPrunedBranchIsRefused(t *testing.T) {
	if _, err := scanBag(widestBag(3, 0), 3); err != nil {
		t.Errorf("a good bag: %v", err)
	}
	for _, claim := range []byte{1 << 5, 2 << 5, 7 << 5} {
		if _, err := scanBag(widestBag(3, claim), 3); !errors.Is(err, errCells) {
			t.Errorf("a level of %b: %v", claim>>5, err)
		}
	}
	if _, err := scanBag(widestBag(4, 0), 3); !errors.Is(err, errCells) {
		t.Errorf("a cell more than may be: %v", err)
	}
}

// TestIndexMustFitTheCells has an index put two cells in one place.
func TestIndexMustFitTheCells(t *testing.T) {
	bag := func(ends ...byte) []byte {
		head := []byte{0xb5, 0xee, 0x9c, 0x72, 0x81, 1, 3, 1, 0, 8, 0}
		return append(append(head, ends...), 2, 0, 1, 2, 0, 0, 0, 0)
	}
	if cells, err := parseCells(bag(4, 6, 8), 1, 3); err != nil || len(cells) != 1 {
		t.Errorf("a good index: %v", err)
	}
	for _, ends := range [][]byte{{4, 4, 8}, {4, 8, 6}, {0, 0, 0}, {4, 6, 255}} {
		if _, err := parseCells(bag(ends...), 1, 3); !errors.Is(err, errCells) {
			t.Errorf("an index of %d: %v", ends, err)
		}
	}
}

// TestNoMoreAnswersAreParsedThanThereAreProcessors has many arrive at once.
func TestNoMoreAnswersAreParsedThanThereAreProcessors(t *testing.T) {
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
	if got := int(most.Load()); got > runtime.GOMAXPROCS(0) {
		t.Errorf("%d answers were parsed at once", got)
	}
}
