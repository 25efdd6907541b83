package chaingql

import (
	"testing"
	"testing/synctest"
	"time"
)

// An evictionCounter counts how often a budget evicts its reservation.
type evictionCounter struct{ times int }

func (e *evictionCounter) end() { e.times++ }

func TestBudgetAdmitsBytesUpToItsLimit(t *testing.T) {
	for _, row := range []struct {
		what       string
		used, more int
		want       bool
	}{
		{"a large response of seven eighths", 0, 7 << 16, true},
		{"a large response of more than seven eighths", 0, 7<<16 + 1, false},
		{"a small response in the last eighth", 7 << 16, 64 << 10, true},
		{"more than the last eighth", 7 << 16, 64<<10 + 1, false},
		{"the largest small response", 6 << 16, 64 << 10, true},
		{"the smallest large response", 6 << 16, 64<<10 + 1, false},
	} {
		b := newBudget(512 << 10)
		var first, further reservation
		if !b.add(&first, row.used, 0) {
			t.Fatal("the budget is too small for the test")
		}
		if got := b.add(&further, row.more, 0); got != row.want {
			t.Errorf("%s: add returned %v, want %v", row.what, got, row.want)
		}
	}
}

func TestBudgetCutsTheSlowestClientsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(400)
		var owners [4]evictionCounter
		var all [4]reservation
		for i := range all {
			all[i].owner = &owners[i]
			if !b.addEvictable(&all[i], 100, 0) {
				t.Fatal("the budget is too small for the test")
			}
		}
		for range 30 { // 3 s
			time.Sleep(time.Second / 10)
			for i := range all {
				b.progress(&all[i], minRate/10*(i+1)/3) // a third, two thirds, all and four thirds of minRate
			}
		}
		var further reservation
		want := [][4]int{{1, 0, 0, 0}, {1, 1, 0, 0}, {1, 1, 0, 0}}
		for i, want := range want {
			room := b.add(&further, 100, time.Second/2)
			got := [4]int{owners[0].times, owners[1].times, owners[2].times, owners[3].times}
			if got != want || room != (i < 2) {
				t.Errorf("the reservations were evicted %v times, want %v; add returned %v", got, want, room)
			}
		}
		b.free(&further)
		for i := range all {
			b.free(&all[i])
		}
	})
}

func TestBudgetCutsOnlyClientsThatAreFarEnoughBehind(t *testing.T) {
	for idle, want := range map[time.Duration]bool{time.Second - 1: false, time.Second: true} {
		synctest.Test(t, func(t *testing.T) {
			b, owner := newBudget(1000), &evictionCounter{}
			first, further := reservation{owner: owner}, reservation{}
			if !b.addEvictable(&first, 1000, 0) {
				t.Fatal("the budget is too small for the test")
			}
			time.Sleep(idle)
			if got := b.add(&further, 1, time.Second); got != want || (owner.times == 1) != want {
				t.Errorf("after %v: add returned %v, and the reservation was evicted %d times", idle, got, owner.times)
			}
			b.free(&first)
			b.free(&further)
		})
	}
}

// Responses that grow beyond 64 KiB in small steps must leave the last eighth of the budget to small ones.
func TestLastEighthOfBudgetIsReservedForSmallResponses(t *testing.T) {
	const limit = 1 << 20
	b := newBudget(limit)
	o := responseShare{budget: b, minLag: stalledAfter}
	for n := freeBytes; o.Grow(n) == nil; n += freeBytes {
	}
	if free := b.limit - b.used; free < limit/8 {
		t.Errorf("a large response leaves %d bytes of %d, want at least an eighth", free, limit)
	}
	small := responseShare{budget: b, minLag: stalledAfter}
	if err := small.Grow(smallBytes); err != nil {
		t.Errorf("a small response was refused: %v", err)
	}
}

// A response in a large reused buffer counts with the whole capacity of the buffer from its beginning.
func TestReusedBufferCountsWithItsWholeCapacity(t *testing.T) {
	b := newBudget(1 << 20)
	o := responseShare{budget: b}
	if !b.add(&o.reservation, maxPooled, 0) || o.Grow(freeBytes) != nil {
		t.Fatal("the budget has no room for the response")
	}
	if b.used != maxPooled {
		t.Errorf("%d bytes are counted for a buffer of %d", b.used, maxPooled)
	}
}
