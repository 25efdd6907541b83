package plan

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
)

func TestIntegersAreFormattedLikeStrconv(t *testing.T) {
	check := func(n uint64) {
		t.Helper()
		if got, want := string(AppendUint([]byte("x"), n)), "x"+strconv.FormatUint(n, 10); got != want {
			t.Fatalf("AppendUint appended %s, want %s", got, want)
		}
		if got, want := string(AppendInt(nil, int64(n))), strconv.FormatInt(int64(n), 10); got != want {
			t.Fatalf("AppendInt appended %s, want %s", got, want)
		}
	}
	for n := range uint64(100_100) { // all pairs and quadruples of digits
		check(n)
		check(n * 1e4)
		check(n * 1e12)
	}
	for power := uint64(1); power < math.MaxUint64/10; power *= 10 {
		check(power - 1)
		check(power)
	}
	check(math.MaxInt64)
	check(math.MaxInt64 + 1)
	check(math.MaxUint64)
	r := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		check(r.Uint64() >> r.IntN(64))
	}
}
