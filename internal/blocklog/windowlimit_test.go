package blocklog

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/chaingql/chaingql/internal/testkit"
)

// ends returns the first cursor, the last cursor and the number of blocks of a view.
func ends(v *view[[12]uint64]) string {
	return fmt.Sprint(v.stamps[0].cursor, " to ", v.newest.cursor, ", ", len(v.blocks))
}

func TestWindowKeepsAsManyBlocksAsSizeOrDurationRequires(t *testing.T) {
	start := time.Unix(1_600_000_000, 0)
	for _, row := range []struct {
		name     string
		limit    windowLimit
		interval time.Duration
		want     string
	}{
		{"size alone", windowLimit{blocks: 10, bytes: 1 << 30}, time.Second, "0990 to 0999, 10"},
		{"duration keeps more", windowLimit{10, 1 << 30, time.Minute}, time.Second, "0939 to 0999, 61"},
		{"size keeps more", windowLimit{100, 1 << 30, time.Minute}, time.Second, "0900 to 0999, 100"},
		{"blocks come slowly", windowLimit{10, 1 << 30, time.Minute}, time.Hour, "0990 to 0999, 10"},
		{"the memory is limited", windowLimit{blocks: 100, bytes: 20*stampBytes + 19, age: time.Minute}, time.Second,
			"0980 to 0999, 20"},
		{"the memory is less than a block", windowLimit{blocks: 100, bytes: 1}, time.Second, "0999 to 0999, 1"},
	} {
		var v view[[12]uint64]
		for i := range 1000 {
			v.arrived = start.Add(time.Duration(i) * row.interval)
			v.push([12]uint64{}, stamp{cursor: fmt.Sprintf("%04d", i), arrived: v.arrived}, row.limit, nil)
			if sum := len(v.blocks) * stampBytes; v.bytes != sum || v.bytes > row.limit.bytes && len(v.blocks) > 1 {
				t.Fatalf("%s: %d blocks are counted with %d bytes, want %d, at most %d",
					row.name, len(v.blocks), v.bytes, sum, row.limit.bytes)
			}
		}
		if got := ends(&v); got != row.want {
			t.Errorf("%s: the window is %s, want %s", row.name, got, row.want)
		}
	}
}

// stampBytes is the size of a block in these tests, with a cursor of 4 bytes.
const stampBytes = 2*(12*8+int(unsafe.Sizeof(stamp{}))+24) + 4

func TestWindowAgeDoesNotKeepStoredBlocks(t *testing.T) {
	v := view[[12]uint64]{arrived: time.Unix(1_600_000_000, 0)}
	for i := range 50 {
		v.push([12]uint64{}, stamp{cursor: fmt.Sprintf("%04d", i)}, windowLimit{20, 1 << 30, time.Hour}, nil)
	}
	if got := ends(&v); got != "0030 to 0049, 20" {
		t.Errorf("the window is %s", got)
	}
}

func TestWindowBytesLimitTheMemoryOfTheWindow(t *testing.T) {
	if testkit.RaceEnabled {
		t.Log("not measured: the race detector changes memory use")
		return
	}
	const limit = 4 << 20
	place := func(b [12]uint64) Place {
		return Place{Workchain: int32(b[0] % 5), Shard: wholeShard, SeqNo: uint32(b[0])}
	}
	heap := func() int {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before := heap()
	v := view[[12]uint64]{arrived: time.Unix(1_600_000_000, 0)}
	most := 0
	for i := range uint64(100_000) {
		v = v.extend()
		v.push([12]uint64{i}, stamp{cursor: fmt.Sprintf("%032d", i), arrived: v.arrived},
			windowLimit{1024, limit, time.Hour}, place)
		if i%5000 == 0 {
			most = max(most, heap()-before)
		}
	}
	if most > limit*5/4 || most < limit/3 {
		t.Errorf("a window of at most %d bytes needs %d bytes", limit, most)
	}
	runtime.KeepAlive(v)
}

func TestBlockThatTheWindowHasIsNotInsertedAgain(t *testing.T) {
	limit, v := windowLimit{blocks: 10, bytes: 1 << 20}, emptyView[int](position{})
	for _, b := range []int{1, 2, 4} {
		v.push(b, stamp{cursor: cursorOf(b)}, limit, nil)
	}
	n := v.merge([]entry[int]{{2, cursorOf(2)}, {3, cursorOf(3)}}, limit, nil)
	if want := []int{1, 2, 3, 4}; !slices.Equal(n.blocks, want) {
		t.Errorf("the window contains blocks %v, want %v", n.blocks, want)
	}
}
