package xsync

import (
	"testing"
	"testing/synctest"
	"time"
)

// An evictionCounter counts how often a Budget evicts its Reservation.
type evictionCounter struct{ times int }

func (e *evictionCounter) Evict() { e.times++ }

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
		b := NewBudget(512 << 10)
		var first, further Reservation
		if !b.Add(&first, row.used, 0) {
			t.Fatal("the budget is too small for the test")
		}
		if got := b.Add(&further, row.more, 0); got != row.want {
			t.Errorf("%s: Add returned %v, want %v", row.what, got, row.want)
		}
	}
}

func TestBudgetCutsTheSlowestClientsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(400)
		var owners [4]evictionCounter
		var all [4]Reservation
		for i := range all {
			all[i].Owner = &owners[i]
			if !b.AddEvictable(&all[i], 100, 0) {
				t.Fatal("the budget is too small for the test")
			}
		}
		for range 30 { // 3 s
			time.Sleep(time.Second / 10)
			for i := range all {
				b.Progress(&all[i], keepUpRate/10*(i+1)/3) // a third, two thirds, all and four thirds of keepUpRate
			}
		}
		var further Reservation
		want := [][4]int{{1, 0, 0, 0}, {1, 1, 0, 0}, {1, 1, 0, 0}}
		for i, want := range want {
			room := b.Add(&further, 100, time.Second/2)
			got := [4]int{owners[0].times, owners[1].times, owners[2].times, owners[3].times}
			if got != want || room != (i < 2) {
				t.Errorf("the reservations were evicted %v times, want %v; Add returned %v", got, want, room)
			}
		}
		b.Free(&further)
		for i := range all {
			b.Free(&all[i])
		}
	})
}

func TestBudgetCutsOnlyClientsThatAreFarEnoughBehind(t *testing.T) {
	for idle, want := range map[time.Duration]bool{time.Second - 1: false, time.Second: true} {
		synctest.Test(t, func(t *testing.T) {
			b, owner := NewBudget(1000), &evictionCounter{}
			first, further := Reservation{Owner: owner}, Reservation{}
			if !b.AddEvictable(&first, 1000, 0) {
				t.Fatal("the budget is too small for the test")
			}
			time.Sleep(idle)
			if got := b.Add(&further, 1, time.Second); got != want || (owner.times == 1) != want {
				t.Errorf("after %v: Add returned %v, and the reservation was evicted %d times", idle, got, owner.times)
			}
			b.Free(&first)
			b.Free(&further)
		})
	}
}

// Responses in production cannot be evicted. If they leave too little room, others must not be cut in vain.
func TestBudgetEvictsNoneIfThatCannotMakeRoom(t *testing.T) {
	const limit, evictable, more = 800, 100, 150
	for name, add := range map[string]func(b *Budget, r *Reservation) bool{
		"Add":          func(b *Budget, r *Reservation) bool { return b.Add(r, more, 0) },
		"AddEvictable": func(b *Budget, r *Reservation) bool { return b.AddEvictable(r, more, 0) },
		"AddOrEvict":   func(b *Budget, r *Reservation) bool { return b.AddOrEvict(r, more) },
		"AddOrEvict, twice": func(b *Budget, r *Reservation) bool {
			return b.AddOrEvict(r, 1) && b.AddOrEvict(r, more-1)
		},
	} {
		for free, want := range map[int]int{more - evictable - 1: 0, more - evictable: 2} {
			b, owner := NewBudget(limit), new(evictionCounter)
			producing, further := Reservation{}, Reservation{Owner: new(evictionCounter)}
			waiting := [2]Reservation{{Owner: owner, UpTo: 1}, {Owner: owner, UpTo: 1}}
			if !b.Add(&producing, limit-evictable-free, 0) {
				t.Fatal("the budget is too small for the test")
			}
			for i := range waiting {
				if !b.AddOrEvict(&waiting[i], evictable/2+10) || !b.AddOrEvict(&waiting[i], -10) {
					t.Fatal("the budget is too small for the test")
				}
			}
			if got := add(b, &further); got != (want > 0) || owner.times != want {
				t.Errorf("%s with %d bytes free: got %v, and %d clients were cut, want %d",
					name, free, got, owner.times, want)
			}
		}
	}
}

// The owner subtracts the bytes later, as if the call had succeeded.
func TestReservationWithoutRoomIsEvictedOnceAndCountsNothing(t *testing.T) {
	for name, before := range map[string]int{"the first bytes": 0, "further bytes": 400} {
		b, owner := NewBudget(1000), &evictionCounter{}
		r := Reservation{Owner: owner}
		b.AddOrEvict(&r, before)
		for range 2 {
			b.AddOrEvict(&r, 1001)
		}
		for range 2 {
			b.AddOrEvict(&r, -1001)
		}
		if b.Used() != 0 || owner.times != 1 {
			t.Errorf("%s: %d bytes are counted after %d evictions, want 0 after 1", name, b.Used(), owner.times)
		}
		if b.Free(&r) || b.Used() != 0 {
			t.Errorf("%s: Free did not report the eviction, or left %d bytes", name, b.Used())
		}
	}
}
