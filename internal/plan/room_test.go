package plan

import (
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
)

// granting is a Room that has room for everything.
type granting struct{ asked []int }

func (g *granting) Grow(n int) *Error {
	g.asked = append(g.asked, n)
	return nil
}

// objects is a query whose answer has about a hundred bytes for each of n objects.
func objects(t *testing.T, n int) *Bound {
	t.Helper()
	list := make([]int, n)
	for i := range list {
		list[i] = 8 // the schema's Other
	}
	c := answering(t, nil, resolving("things", "[Thing]", list, nil))
	b, errs := c.Prepare("{things{"+strings.Repeat("a", 90)+":ok}}", "", nil)
	if errs != nil {
		t.Fatal(errs)
	}
	return b
}

// Hundreds of large answers at once must not keep small queries waiting for all of
// them.
func TestLargeAnswersLetOthersUseTheProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	b := objects(t, 1000)
	b.Room = new(granting)
	var ran atomic.Bool
	go ran.Store(true)
	b.Run(t.Context(), nil, nil)
	if !ran.Load() {
		t.Error("nobody else ran while the answer was produced")
	}
}

// What an answer takes is what its Room was asked for.
func TestAnswersGrowToWhatWasAskedFor(t *testing.T) {
	for _, n := range []int{50, 100, 1000, 10_000} {
		b, room := objects(t, n), new(granting)
		b.Room = room
		dst := b.Run(t.Context(), nil, nil)
		most := firstRoom
		for i, asked := range room.asked {
			if i > 0 && asked < 2*room.asked[i-1] {
				t.Errorf("%d objects: asked for %d", n, room.asked)
			}
			most = asked
		}
		if len(dst) > most || cap(dst) > most+most/4 {
			t.Errorf("%d objects: %d bytes in %d, and asked for %d", n, len(dst), cap(dst), room.asked)
		}
	}
}
