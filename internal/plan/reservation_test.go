package plan

import (
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chaingql/chaingql/internal/xsync"
	"github.com/graphql-go/graphql"
)

// A recordingReservation records the requested sizes and grants them.
type recordingReservation struct{ requests []int }

func (g *recordingReservation) Resize(n int) *Error {
	g.requests = append(g.requests, n)
	return nil
}

// objects returns a query with a response of about a hundred bytes for each of n
// objects.
func objects(t *testing.T, n int) *Bound {
	t.Helper()
	list := make([]int, n)
	for i := range list {
		list[i] = 8 // the schema's Other
	}
	c := resolverCache(t, nil, resolverField("things", "[Thing]", list, nil))
	b, errs := c.Prepare("{things{"+strings.Repeat("a", 90)+":ok}}", "", nil)
	if errs != nil {
		t.Fatal(errs)
	}
	return b
}

// A small query must not wait for hundreds of large responses.
func TestRunWithLargeResponseYieldsProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	b := objects(t, 1000)
	b.Reservation = new(recordingReservation)
	var ran atomic.Bool
	go ran.Store(true)
	b.run(nil)
	if !ran.Load() {
		t.Error("no other goroutine ran during the run")
	}
}

// A response takes no more memory than is reserved for it.
func TestResponsesGrowWithinTheirReservation(t *testing.T) {
	for _, n := range []int{50, 100, 450, 600, 1000, 10_000} {
		b, room := objects(t, n), new(recordingReservation)
		b.Reservation = room
		dst := b.run(nil)
		most := unreservedBytes
		for i, asked := range room.requests {
			if i > 0 && asked < room.requests[i-1]*5/4 {
				t.Errorf("%d objects: reserved %d, want each size to exceed the previous one by a quarter",
					n, room.requests)
			}
			most = asked
		}
		if len(dst) < xsync.SmallBytes && most > xsync.SmallBytes {
			t.Errorf("%d objects: reserved %d for %d bytes, want at most %d", n, most, len(dst), xsync.SmallBytes)
		}
		if len(dst) > xsync.SmallBytes && most > len(dst)+len(dst)/4 {
			t.Errorf("%d objects: reserved %d for %d bytes, want at most a quarter more", n, most, len(dst))
		}
		if len(dst) > most || cap(dst) > most+most/4 {
			t.Errorf("%d objects: got %d bytes with a capacity of %d, but reserved %d",
				n, len(dst), cap(dst), room.requests)
		}
	}
}

// A response in a large reused buffer needs the whole capacity of the buffer.
func TestReusedBufferIsReservedWithItsWholeCapacity(t *testing.T) {
	b, room := objects(t, 100), new(recordingReservation)
	b.Reservation = room
	b.Run(t.Context(), nil, make([]byte, 0, 32<<10))
	if !slices.Equal(room.requests, []int{32 << 10}) {
		t.Errorf("reserved %d for a buffer of 32 KiB", room.requests)
	}
}

// The tree of a host's field is garbage when the field is complete, also if the response fits into a reused buffer.
func TestTreeOfAHostFieldIsNotReservedForLong(t *testing.T) {
	table, err := Extend(table(), Extension{Query: graphql.Fields{"numbers": {Type: graphql.NewList(graphql.Int),
		Resolve: func(graphql.ResolveParams) (any, error) { return make([]int, 400), nil }}}})
	must(t, err)
	s, err := NewSchema(table)
	must(t, err)
	for _, buffer := range []int{0, 32 << 10} {
		b, errs := NewCache(s, Limits{}, masked, nil).Prepare("{numbers}", "", nil)
		if errs != nil {
			t.Fatal(errs)
		}
		room := new(recordingReservation)
		b.Reservation = room
		dst, _ := b.Run(t.Context(), nil, make([]byte, 0, buffer))
		if last := room.requests[len(room.requests)-1]; last > cap(dst) || slices.Max(room.requests) < 50_000 {
			t.Errorf("a buffer of %d bytes: reserved %d for a response with a capacity of %d",
				buffer, room.requests, cap(dst))
		}
	}
}

// A list of strings ends neither an object nor a field of its own, but takes as much memory.
func TestListsOfStringsGrowWithinTheirReservation(t *testing.T) {
	words := slices.Repeat([]string{strings.Repeat("w", 1000)}, 100)
	c := resolverCache(t, nil, resolverField("words", "[String]", words, nil))
	b, errs := c.Prepare("{"+many(10, "w%d:words ")+"}", "", nil)
	if errs != nil {
		t.Fatal(errs)
	}
	room := new(recordingReservation)
	b.Reservation = room
	if got := len(b.run(nil)); got < 1_000_000 || room.requests[0] > 32<<10 {
		t.Errorf("a response of %d bytes reserved %d, want a first request of at most 32 KiB", got, room.requests)
	}
}

// A run that does much work but appends few bytes yields the processor as often as a run that appends many bytes.
func TestRunWithManyShortFieldsYieldsProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	c := NewCache(testSchema(t), defaultLimits, masked, nil)
	nothing := many(6, "c%d:fields{x:__typename @include(if:false)}")
	b, errs := c.Prepare("{__schema{types{"+many(6, "a%d:fields{...T}")+"}}}fragment T on __Field{"+many(6,
		"b%d:type{...G}")+
		"}fragment G on __Type{"+nothing+"}", "", nil)
	if errs != nil {
		t.Fatal(errs)
	}
	var turns atomic.Int64
	var ended atomic.Bool
	go func() {
		for !ended.Load() {
			turns.Add(1)
			runtime.Gosched()
		}
	}()
	runtime.Gosched()
	before := turns.Load()
	answer := string(b.run(nil))
	ended.Store(true)
	fields := strings.Count(answer, ":")
	got := int(turns.Load() - before)
	t.Logf("another goroutine ran %d times while the run appended %d fields in %d bytes", got, fields, len(answer))
	if want := max(fields/(2*yieldFields), 10); got < want {
		t.Errorf("another goroutine ran %d times during the run, want at least %d times", got, want)
	}
}
