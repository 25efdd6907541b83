package chaingql

import (
	"testing"

	"github.com/chaingql/chaingql/internal/xsync"
)

// Responses that grow beyond 64 KiB in small steps must leave the last eighth of the budget to small ones.
func TestLastEighthOfBudgetIsReservedForSmallResponses(t *testing.T) {
	const limit = 1 << 20
	b := xsync.NewBudget(limit)
	o := responseShare{budget: b, minLag: stalledAfter}
	for n := freeBytes; o.Resize(n) == nil; n += freeBytes {
	}
	if free := limit - b.Used(); free < limit/8 {
		t.Errorf("a large response leaves %d bytes of %d, want at least an eighth", free, limit)
	}
	small := responseShare{budget: b, minLag: stalledAfter}
	if err := small.Resize(xsync.SmallBytes); err != nil {
		t.Errorf("a small response was refused: %v", err)
	}
}

// The body of a request counts with its response, but does not make the response a large one.
func TestSmallResponseWithABodyMayUseTheLastEighth(t *testing.T) {
	b := xsync.NewBudget(1 << 20)
	var large xsync.Reservation
	o := responseShare{budget: b, base: 1 << 10}
	if !b.Add(&large, 7<<17, 0) || !b.Add(&o.Reservation, maxPooled, 0) {
		t.Fatal("the budget is too small for the test")
	}
	if o.Resize(xsync.SmallBytes) != nil {
		t.Error("a response of 64 KiB was refused")
	}
}
