package chaingql_test

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
)

func TestChainOrderIsTheNetworksOwn(t *testing.T) {
	for _, row := range []struct {
		workchain     int32
		shard         uint64
		seqNo, master uint32
		want          chaingql.Cursor
	}{
		{-1, 1 << 63, 1, 0, "01m"},            // recorded
		{-1, 1 << 63, 2660, 0, "2a64m"},       // recorded
		{-1, 1 << 63, 2467080, 0, "525a508m"}, // recorded
		{-1, 1 << 63, 1, 77, "01m"},           // a masterchain block needs no other
		{0, 1 << 63, 1, 3, "03" + "00" + "01" + "01"},
		{0, 0x6000000000000000, 0x47, 0x10, "110" + "00" + "147" + "06"},
		{-2, 1 << 63, 5, 0x10, "110" + "-02" + "05" + "01"},
		{math.MinInt32, 1 << 63, 5, 0x10, "110" + "-780000000" + "05" + "01"},
		{math.MaxInt32, 1, math.MaxUint32, math.MaxUint32, "7ffffffff" + "77fffffff" + "7ffffffff" + "f8000000000000000"},
	} {
		if got := chaingql.ChainOrder(row.workchain, row.shard, row.seqNo, row.master); got != row.want {
			t.Errorf("ChainOrder(%d, %x, %d, %d) is %q, not %q", row.workchain, row.shard, row.seqNo, row.master, got, row.want)
		}
	}
}

// anyNumber is as likely to have few digits as many.
func anyNumber(rng *rand.Rand, bits uint) uint64 { return rng.Uint64() >> (64 - 1 - rng.UintN(bits)) }

func TestSeqCursorsCompareAsTheirNumbersDo(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	numbers := []uint64{0, 1, 9, 10, 15, 16, 255, 256, 1<<32 - 1, 1 << 32, 1<<63 - 1, 1 << 63, math.MaxUint64}
	for range 2000 {
		n := anyNumber(rng, 64)
		numbers = append(numbers, n, n+1)
	}
	for _, a := range numbers {
		b := numbers[rng.IntN(len(numbers))]
		if got := strings.Compare(string(chaingql.SeqCursor(a)), string(chaingql.SeqCursor(b))); got != cmp.Compare(a, b) {
			t.Errorf("cursors of %d and %d, %q and %q, compare as %d", a, b, chaingql.SeqCursor(a), chaingql.SeqCursor(b), got)
		}
	}
	if chaingql.SeqCursor(0) <= "" {
		t.Error("a cursor is not past the beginning")
	}
}

func TestChainOrdersCompareAsPlacesInTheChainDo(t *testing.T) {
	type place struct {
		workchain     int32
		shard         uint64
		seqNo, master uint32
	}
	rng := rand.New(rand.NewPCG(2, 2))
	var places []place
	for range 3000 {
		p := place{
			workchain: int32(rng.IntN(3)) - 1,
			shard:     (2*rng.Uint64N(8) + 1) << 60,
			seqNo:     uint32(anyNumber(rng, 32)),
			master:    uint32(anyNumber(rng, 32)),
		}
		if rng.IntN(2) == 0 && len(places) > 0 { // beside another
			p.master = places[rng.IntN(len(places))].master
			p.seqNo = uint32(rng.IntN(3))
		}
		if p.workchain == -1 {
			p.shard, p.seqNo = 1<<63, p.master
		}
		places = append(places, p)
	}
	// By master block, whose shards come before itself, then by workchain, by
	// seq_no, and by shard from the shallowest.
	order := func(a, b place) int {
		last := func(p place) int {
			if p.workchain == -1 {
				return 1
			}
			return 0
		}
		reversed := func(p place) (n uint64) {
			for i := range 64 {
				n |= p.shard >> i & 1 << (63 - i)
			}
			return n
		}
		return cmp.Or(cmp.Compare(a.master, b.master), cmp.Compare(last(a), last(b)),
			cmp.Compare(a.workchain, b.workchain), cmp.Compare(a.seqNo, b.seqNo), cmp.Compare(reversed(a), reversed(b)))
	}
	cursor := func(p place) string { return string(chaingql.ChainOrder(p.workchain, p.shard, p.seqNo, p.master)) }
	for range 20_000 {
		a, b := places[rng.IntN(len(places))], places[rng.IntN(len(places))]
		if got := strings.Compare(cursor(a), cursor(b)); got != order(a, b) {
			t.Fatalf("%+v and %+v, %s and %s, compare as %d", a, b, cursor(a), cursor(b), got)
		}
	}
}

func blocksAt(cursors string) (blocks []chaingql.Block) {
	for i, c := range strings.Fields(cursors) {
		blocks = append(blocks, chaingql.Block{Workchain: int32(i%2) - 1, Shard: uint64(1+i%3) << 62, Cursor: chaingql.Cursor(c)})
	}
	return blocks
}

func inOrder(blocks []chaingql.Block) string {
	var all []string
	for _, b := range blocks {
		all = append(all, string(b.Cursor))
	}
	return strings.Join(all, " ")
}

func TestPageOfAnswersEveryRange(t *testing.T) {
	master, base := int32(-1), int32(0)
	shard, none := uint64(1)<<62, uint64(7)
	for _, row := range []struct {
		name, want string
		q          chaingql.BlocksQuery
	}{
		{"the lowest", "02 04", chaingql.BlocksQuery{First: 2}},
		{"the highest", "08 0a", chaingql.BlocksQuery{Last: 2}},
		{"more than there are", "02 04 06 08 0a", chaingql.BlocksQuery{First: 9}},
		{"more than there are, from the end", "02 04 06 08 0a", chaingql.BlocksQuery{Last: 9}},
		{"behind a block", "06 08", chaingql.BlocksQuery{First: 2, After: "04"}},
		{"behind a gap", "06 08", chaingql.BlocksQuery{First: 2, After: "05"}},
		{"behind the newest", "", chaingql.BlocksQuery{First: 2, After: "0a"}},
		{"behind all", "", chaingql.BlocksQuery{Last: 2, After: "ff"}},
		{"short of a block", "02 04", chaingql.BlocksQuery{Last: 2, Before: "06"}},
		{"short of a gap", "04 06", chaingql.BlocksQuery{Last: 2, Before: "07"}},
		{"short of the oldest", "", chaingql.BlocksQuery{Last: 2, Before: "02"}},
		{"short of all", "", chaingql.BlocksQuery{First: 2, Before: "01"}},
		{"between two", "04 06", chaingql.BlocksQuery{First: 5, After: "02", Before: "08"}},
		{"between one and itself", "", chaingql.BlocksQuery{First: 5, After: "04", Before: "04"}},
		{"back to front", "", chaingql.BlocksQuery{Last: 5, After: "08", Before: "02"}},
		{"of a workchain", "02 06", chaingql.BlocksQuery{First: 2, Workchain: &master}},
		{"of a workchain, from the end", "04 08", chaingql.BlocksQuery{Last: 2, Workchain: &base}},
		{"of a shard", "02 08", chaingql.BlocksQuery{First: 5, Shard: &shard}},
		{"of both", "08", chaingql.BlocksQuery{First: 5, Shard: &shard, Workchain: &base}},
		{"of no shard there is", "", chaingql.BlocksQuery{First: 5, Shard: &none}},
		{"none at all", "", chaingql.BlocksQuery{}},
	} {
		t.Run(row.name, func(t *testing.T) {
			all := blocksAt("02 04 06 08 0a")
			page := chaingql.PageOf(all, row.q)
			if got := inOrder(page); got != row.want {
				t.Errorf("got %q, not %q", got, row.want)
			}
			for i := range page {
				page[i].Cursor = "spoilt"
			}
			if got := inOrder(all); got != "02 04 06 08 0a" {
				t.Errorf("the page is not the caller's own: %s", got)
			}
		})
	}
	if page := chaingql.PageOf(nil, chaingql.BlocksQuery{Last: 3, After: "01"}); len(page) != 0 {
		t.Errorf("a page of nothing has %s", inOrder(page))
	}
}

// reading takes down what a Follow yields, until it ends or has yielded the
// block at which it is to be left.
func reading(follow iter.Seq2[chaingql.Block, error], leaveAt chaingql.Cursor) (said func() string) {
	var mu sync.Mutex
	var all []string
	say := func(s string) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, s)
	}
	go func() {
		for b, err := range follow {
			if err != nil {
				say("(" + err.Error() + ")")
				continue
			}
			say(string(b.Cursor))
			if b.Cursor == leaveAt {
				say("left")
				return
			}
		}
		say("end")
	}()
	return func() string {
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(all, " ")
	}
}

func TestPollReadsPagesAndThenLooksNowAndThen(t *testing.T) {
	for _, row := range []struct{ every, took time.Duration }{
		{0, chaingql.DefaultPoll}, {-1, chaingql.DefaultPoll}, {3 * time.Second, 3 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			var mu sync.Mutex
			all := blocksAt("02 04 06")
			var asked []chaingql.Cursor
			blocks := func(_ context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
				mu.Lock()
				defer mu.Unlock()
				asked = append(asked, q.After)
				return chaingql.PageOf(all, q), nil
			}
			said := reading(chaingql.Poll(ctx, blocks, "02", row.every), "")
			if got := said(); got != "04 06" {
				t.Errorf("said %q", got)
			}
			mu.Lock()
			all = append(all, blocksAt("08")...)
			mu.Unlock()
			time.Sleep(row.took - 1)
			if got := said(); got != "04 06" {
				t.Errorf("said %q before its time", got)
			}
			time.Sleep(time.Nanosecond)
			if got := said(); got != "04 06 08" {
				t.Errorf("said %q", got)
			}
			cancel()
			if got := said(); got != "04 06 08 (context canceled) end" {
				t.Errorf("said %q", got)
			}
			mu.Lock()
			defer mu.Unlock()
			if want := []chaingql.Cursor{"02", "06"}; !slices.Equal(asked, want) {
				t.Errorf("asked for what is after %q, not %q", asked, want)
			}
		})
	}
}

func TestPollCatchesUpWithoutPausing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all []chaingql.Block
		for i := range 2*chaingql.MaxPage + 5 {
			all = append(all, chaingql.Block{Cursor: chaingql.SeqCursor(uint64(i))})
		}
		blocks := func(_ context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
			return chaingql.PageOf(all, q), nil
		}
		began, n := time.Now(), 0
		for b, err := range chaingql.Poll(t.Context(), blocks, "", time.Hour) {
			if err != nil || b.Cursor != all[n].Cursor {
				t.Fatalf("block %d is %q: %v", n, b.Cursor, err)
			}
			if n++; n == len(all) {
				break
			}
		}
		if passed := time.Since(began); passed != 0 {
			t.Errorf("took %v", passed)
		}
	})
}

func TestPollEndsWithOneError(t *testing.T) {
	broken := errors.New("no connection")
	for _, row := range []struct {
		name, want string
		blocks     func(cancel func()) ([]chaingql.Block, error)
		leaveAt    chaingql.Cursor
	}{
		{"when the source fails", "(no connection) end", func(func()) ([]chaingql.Block, error) { return blocksAt("04"), broken }, ""},
		{"when its context ended meanwhile", "(context canceled) end", func(cancel func()) ([]chaingql.Block, error) { cancel(); return blocksAt("04"), nil }, ""},
		{"and with none when it is left", "04 left", func(func()) ([]chaingql.Block, error) { return blocksAt("04 06"), nil }, "04"},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				blocks := func(context.Context, chaingql.BlocksQuery) ([]chaingql.Block, error) { return row.blocks(cancel) }
				if got := reading(chaingql.Poll(ctx, blocks, "", 0), row.leaveAt)(); got != row.want {
					t.Errorf("said %q, not %q", got, row.want)
				}
			})
		})
	}
}

func TestChannelIsFollowedUntilItCloses(t *testing.T) {
	broken := errors.New("no connection")
	for _, row := range []struct {
		name, want string
		cause      func() error
	}{
		{"with its cause", "02 04 (no connection) end", func() error { return broken }},
		{"without a cause", "02 04 (chaingql: block channel closed) end", nil},
		{"with a cause that has nothing to say", "02 04 (chaingql: block channel closed) end", func() error { return nil }},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				blocks := make(chan chaingql.Block)
				said := reading(chaingql.FromChannel(t.Context(), blocks, row.cause), "")
				for _, b := range blocksAt("02 04") {
					blocks <- b
				}
				if got := said(); got != "02 04" {
					t.Errorf("said %q", got)
				}
				close(blocks)
				if got := said(); got != row.want {
					t.Errorf("said %q, not %q", got, row.want)
				}
			})
		})
	}
}

func TestChannelIsFollowedUntilTheContextEndsOrItIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		blocks := make(chan chaingql.Block, 4)
		for _, b := range blocksAt("02 04 06") {
			blocks <- b
		}
		if got := reading(chaingql.FromChannel(ctx, blocks, nil), "04")(); got != "02 04 left" {
			t.Errorf("said %q", got)
		}
		said := reading(chaingql.FromChannel(ctx, blocks, nil), "")
		if got := said(); got != "06" {
			t.Errorf("said %q", got)
		}
		cancel()
		if got := said(); got != "06 (context canceled) end" {
			t.Errorf("said %q", got)
		}
	})
}
