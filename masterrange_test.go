package chaingql_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
)

// mastersOf returns the first masterchain block generated at time start or later, and the first one that, like the
// blocks of shards before it, was generated at time end or later. It reads all blocks. A negative number means null.
func mastersOf(blocks []chaingql.Block, start, end int64) (first, last int64) {
	first, last = -1, -1
	oldest, newest, early := true, int64(-1), false
	for _, b := range blocks {
		unix := b.Time.Unix()
		if b.Workchain != -1 {
			early = early || unix < end
			continue
		}
		newest = int64(b.SeqNo)
		if first < 0 && unix >= start {
			if first = newest; oldest && newest != 1 {
				first = math.MaxInt64 // null, but found
			}
		}
		if last < 0 && unix >= end && !early {
			last = newest
		}
		oldest, early = false, false
	}
	switch first {
	case -1:
		first = newest + 1
	case math.MaxInt64:
		first = -1
	}
	return first, last
}

// askRange returns the response to a query for master_seq_no_range.
func askRange(h *chaingql.Handler, args string) string {
	return query(h, "{blockchain{master_seq_no_range("+args+"){start end}}}", nil)
}

func rangeIs(start, end int64) string {
	text := func(n int64) string {
		if n < 0 {
			return "null"
		}
		return strconv.FormatInt(n, 10)
	}
	return `{"data":{"blockchain":{"master_seq_no_range":{"start":` + text(start) + `,"end":` + text(end) + `}}}}`
}

func TestRangesOfTimesMatchAllRecordedBlocks(t *testing.T) {
	all, _ := recordedGenesis(t)
	pruned := chainOf(t, all)
	pruned.Prune(all[300].Cursor)
	counted := withNumbers(chainOf(t, all))
	prunedNumbers := withNumbers(pruned)
	for _, c := range []struct {
		name    string
		backend chaingql.Backend
		blocks  []chaingql.Block
		calls   *atomic.Int64
	}{
		{"all blocks, by time", chainOf(t, all), all, nil},
		{"all blocks, by number", counted, all, counted.calls},
		{"newer blocks, by time", pruned, all[300:], nil},
		{"newer blocks, by number", prunedNumbers, all[300:], prunedNumbers.calls},
	} {
		h, _ := newHandler(t, c.backend, chaingql.Options{})
		from, to := all[0].Time.Unix()-20, all[len(all)-1].Time.Unix()+20
		rng := rand.New(rand.NewPCG(1, 1))
		for range 300 {
			start := from + rng.Int64N(to-from)
			end := start + rng.Int64N(to-start+1)
			first, last := mastersOf(c.blocks, start, end)
			got := askRange(h, fmt.Sprintf("time_start:%d,time_end:%d", start, end))
			if want := rangeIs(first, last); got != want {
				t.Fatalf("%s: the range of the times %d to %d is %s, want %s", c.name, start, end, got, want)
			}
			if c.calls == nil {
				continue
			}
			for _, ask := range []string{fmt.Sprint("time_start:", start), fmt.Sprint("time_end:", end)} {
				c.calls.Store(0)
				askRange(h, ask)
				if n := c.calls.Load(); n > 24 {
					t.Fatalf("%s: %s needs %d calls of the Backend, want at most 24", c.name, ask, n)
				}
			}
		}
		first, last := mastersOf(c.blocks, math.MaxInt64, math.MaxInt64)
		equal(t, c.name+": times after the newest block", askRange(h, "time_start:2147483647,time_end:2147483647"),
			rangeIs(first, last))
		equal(t, c.name+": no time", askRange(h, "archive:true"), rangeIs(-1, -1))
	}
}

// longMasterchain is a chain of many masterchain blocks that are computed when they are read.
type longMasterchain struct {
	chaingql.Backend
	newest uint32
	timeOf func(seqNo uint32) int64
	calls  atomic.Int64
}

func (c *longMasterchain) at(n uint32) chaingql.Block {
	return chaingql.Block{Workchain: -1, Shard: wholeShard, SeqNo: n, Time: time.Unix(c.timeOf(n), 0),
		Cursor: chaingql.ChainOrder(-1, wholeShard, n, 0)}
}

func (c *longMasterchain) BlockBySeqNo(_ context.Context, w int32, shard uint64, n uint32) (chaingql.Block, error) {
	if c.calls.Add(1); w != -1 || shard != wholeShard || n < 1 || n > c.newest {
		return chaingql.Block{}, chaingql.ErrBlockNotFound
	}
	return c.at(n), nil
}

func (c *longMasterchain) Blocks(_ context.Context, q chaingql.BlocksQuery) (page []chaingql.Block, _ error) {
	c.calls.Add(1)
	number := func(cursor chaingql.Cursor) uint32 {
		n, _ := strconv.ParseUint(strings.TrimSuffix(string(cursor[1:]), "m"), 16, 32)
		return uint32(n)
	}
	from, to := uint32(1), c.newest
	if q.After != "" {
		from = number(q.After) + 1
	}
	if q.Before != "" {
		to = number(q.Before) - 1
	}
	if q.Last > 0 {
		from = max(from, to+1-uint32(q.Last))
	}
	for n := from; n <= to && len(page) < max(q.First, q.Last); n++ {
		page = append(page, c.at(n))
	}
	return page, nil
}

func (c *longMasterchain) Follow(ctx context.Context, _ chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	return func(yield func(chaingql.Block, error) bool) {
		<-ctx.Done()
		yield(chaingql.Block{}, ctx.Err())
	}
}

// Without a TimeIndex, the search must find each time with 24 calls, however irregular the blocks are.
func TestRangeOfTimesIsFoundWith24CallsInLongChains(t *testing.T) {
	for name, timeOf := range map[string]func(n uint32) int64{
		"a block every three seconds": func(n uint32) int64 { return 1e9 + 3*int64(n) },
		"a stop of ten years": func(n uint32) int64 {
			if n > 23_456_789 {
				return 1e9 + 3e8 + int64(n)
			}
			return 1e9 + int64(n)
		},
		"blocks ever faster":       func(n uint32) int64 { return 1e9 + int64(1e5*math.Sqrt(float64(n))) },
		"blocks ever slower":       func(n uint32) int64 { return 1e9 + int64(n)*int64(n)/4e6 },
		"a thousand per second":    func(n uint32) int64 { return 1e9 + int64(n)/1000 },
		"all but one at the start": func(n uint32) int64 { return 1e9 + int64(n)/60_000_000*1e9 },
		"a stop before the newest": func(n uint32) int64 { return 1e9 + int64(n)/59_999_990*1e9 + int64(n)/100 },
	} {
		synctest.Test(t, func(t *testing.T) {
			testLongChain(t, name, timeOf)
		})
	}
}

func testLongChain(t *testing.T, name string, timeOf func(n uint32) int64) {
	c := &longMasterchain{newest: 60_000_000, timeOf: timeOf}
	h, _ := newHandler(t, c, chaingql.Options{})
	query(h, newest, nil) // starts the block stream, which calls Blocks once more
	synctest.Wait()
	rng := rand.New(rand.NewPCG(1, 1))
	most := int64(0)
	for range 60 {
		from, to := timeOf(1), timeOf(c.newest)
		at := from + 1 + rng.Int64N(to-from)
		if rng.IntN(2) == 0 {
			at = max(from+1, timeOf(1+rng.Uint32N(c.newest))+rng.Int64N(3)-1)
		}
		want := int64(1 + sort.Search(int(c.newest), func(i int) bool { return timeOf(uint32(i+1)) >= at }))
		for ask, result := range map[string]string{
			fmt.Sprint("time_start:", at): rangeIs(want, -1),
			fmt.Sprint("time_end:", at):   rangeIs(-1, min(want, int64(c.newest)+1)),
		} {
			if want > int64(c.newest) && strings.HasPrefix(ask, "time_end") {
				result = rangeIs(-1, -1)
			}
			c.calls.Store(0)
			if got := askRange(h, ask); got != result {
				t.Fatalf("%s: %s is %s, want %s", name, ask, got, result)
			}
			most = max(most, c.calls.Load())
		}
	}
	if most > 24 {
		t.Errorf("%s: the search needs %d calls of the Backend, want at most 24", name, most)
	}
	t.Logf("%s: at most %d calls", name, most)
}

// rangeOf returns the blocks of the masterchain blocks start to end-1: those that come after masterchain block start-1,
// up to and including masterchain block end-1.
func rangeOf(blocks []chaingql.Block, start, end int) (selected []chaingql.Block) {
	next := 1
	for _, b := range blocks { // each recorded chain begins with masterchain block 1
		if next >= start && next < end {
			selected = append(selected, b)
		}
		if b.Workchain == -1 {
			next = int(b.SeqNo) + 1
		}
	}
	return selected
}

func TestPagesOfMasterchainRangesMatchAllRecordedBlocks(t *testing.T) {
	all, _ := recordedGenesis(t)
	h, _ := newHandler(t, withNumbers(chainOf(t, all)), chaingql.Options{})
	rng := rand.New(rand.NewPCG(1, 1))
	for range 1000 {
		start := rng.IntN(203) - 1
		end := start + rng.IntN(6)
		q := chaingql.BlocksQuery{First: 1 + rng.IntN(49)}
		var args []string
		add := func(format string, values ...any) { args = append(args, fmt.Sprintf(format, values...)) }
		add("master_seq_no_range:{start:%d,end:%d}", start, end)
		inside := all[rng.IntN(len(all))]
		if selected := rangeOf(all, start-1, end+1); len(selected) > 0 {
			inside = selected[rng.IntN(len(selected))]
		}
		if rng.IntN(3) == 0 {
			q.Workchain = &inside.Workchain
			add("workchain:%d", inside.Workchain)
		}
		if rng.IntN(3) == 0 {
			q.Shard = &inside.Shard
			add(`shard:"%016x"`, inside.Shard)
		}
		if rng.IntN(2) == 0 {
			add("first:%d", q.First)
			if rng.IntN(2) == 0 {
				q.After = inside.Cursor
				add("after:%q", q.After)
			}
		} else {
			q.First, q.Last = 0, q.First
			add("last:%d", q.Last)
			if rng.IntN(2) == 0 {
				q.Before = inside.Cursor
				add("before:%q", q.Before)
			}
		}
		selected := rangeOf(all, start, end)
		want := chaingql.PageOf(selected, q)
		more := q
		more.First, more.Last = min(q.First, 1)*(q.First+1), min(q.Last, 1)*(q.Last+1)
		hasMore := len(chaingql.PageOf(selected, more)) > len(want)

		body := query(h, "{blockchain{blocks("+strings.Join(args, ",")+
			"){edges{cursor} pageInfo{hasNextPage hasPreviousPage}}}}", nil)
		var got struct {
			Blockchain struct {
				Blocks struct {
					Edges    []struct{ Cursor chaingql.Cursor }
					PageInfo struct{ HasNextPage, HasPreviousPage bool }
				}
			}
		}
		if err := json.Unmarshal(parse(t, body).Data, &got); err != nil {
			t.Fatal(err)
		}
		var cursors, wanted []chaingql.Cursor
		for _, e := range got.Blockchain.Blocks.Edges {
			cursors = append(cursors, e.Cursor)
		}
		for _, b := range want {
			wanted = append(wanted, b.Cursor)
		}
		info := got.Blockchain.Blocks.PageInfo
		if !slices.Equal(cursors, wanted) || info.HasNextPage != (hasMore && q.First > 0) ||
			info.HasPreviousPage != (hasMore && q.Last > 0) {
			t.Fatalf("blocks(%s) is %s, want %v and more %v", strings.Join(args, ","), body, wanted, hasMore)
		}
	}
}

func TestMasterchainRangeWithPrunedBoundFailsWithCursorTooOld(t *testing.T) {
	all, _ := recordedGenesis(t)
	chain := chainOf(t, all)
	chain.Prune(all[300].Cursor)
	h, _ := newHandler(t, chain, chaingql.Options{})
	first, _ := mastersOf(all[300:], 0, 0)
	equal(t, "the number of the oldest block", first, -1)
	oldest := slices.IndexFunc(all[300:], func(b chaingql.Block) bool { return b.Workchain == -1 })
	number := all[300+oldest].SeqNo
	ask := func(bounds string) reply {
		return parse(t, query(h, "{blockchain{blocks(master_seq_no_range:"+bounds+"){edges{cursor}}}}", nil))
	}
	for _, bounds := range []string{"{start:5}", "{end:5}", fmt.Sprintf("{start:%d,end:%d}", number, number+3)} {
		reply := ask(bounds)
		equal(t, bounds, reply.code(), "CURSOR_TOO_OLD")
		equal(t, bounds, reply.Errors[0].Extensions["oldest"], any(string(all[300].Cursor)))
	}
	for _, bounds := range []string{"{start:1}", "{}", fmt.Sprintf("{start:%d}", number+1), "{start:5000}"} {
		equal(t, bounds, ask(bounds).code(), "")
	}
}
