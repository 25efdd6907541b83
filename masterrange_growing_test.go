package chaingql_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chaingql/chaingql"
)

// A growingMasterchain has one more block after each call. Block n was generated at second n.
type growingMasterchain struct {
	longMasterchain
	growing bool
}

func (c *growingMasterchain) grow() {
	if c.growing {
		c.newest++
	}
}

func (c *growingMasterchain) BlockBySeqNo(
	ctx context.Context, w int32, shard uint64, n uint32,
) (chaingql.Block, error) {
	defer c.grow()
	return c.longMasterchain.BlockBySeqNo(ctx, w, shard, n)
}

func (c *growingMasterchain) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	defer c.grow()
	return c.longMasterchain.Blocks(ctx, q)
}

// A growingTimes is a growingMasterchain that is a TimeIndex.
type growingTimes struct{ *growingMasterchain }

func (c growingTimes) MasterBlockByTime(_ context.Context, t time.Time) (chaingql.Block, error) {
	defer c.grow()
	if n := t.Unix(); n <= int64(c.newest) {
		return c.at(uint32(n)), nil
	}
	return chaingql.Block{}, chaingql.ErrBlockNotFound
}

// inGrowingChain calls ask with Handlers of a chain that grows during each query, with and without a TimeIndex.
func inGrowingChain(t *testing.T, ask func(h *chaingql.Handler, c *growingMasterchain)) {
	for _, timed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := &growingMasterchain{}
			c.newest, c.timeOf = 1500, func(n uint32) int64 { return int64(n) }
			var b chaingql.Backend = c
			if timed {
				b = growingTimes{c}
			}
			h, _ := newHandler(t, b, chaingql.Options{})
			query(h, newest, nil) // starts the block stream, which calls Blocks once more
			synctest.Wait()
			c.growing = true
			ask(h, c)
		})
	}
}

// A range of numbers may end or begin after the newest block, which is then not pruned, even if the next ones arrive
// while the range is read.
func TestRangeOfNumbersNearTheNewestBlockIsReadWhileBlocksArrive(t *testing.T) {
	inGrowingChain(t, func(h *chaingql.Handler, c *growingMasterchain) {
		for from := -5; from <= 6; from++ {
			for size := 1; size <= 6; size++ {
				newest := int(c.newest)
				start := newest + from
				end := start + size
				what := fmt.Sprintf("blocks %d to %d, when %d is the newest", start, end-1, newest)
				c.calls.Store(0)
				body := query(h, fmt.Sprintf("{blockchain{blocks(master_seq_no_range:{start:%d,end:%d})"+
					"{edges{node{seq_no}}}}}", start, end), nil)
				var got struct {
					Blockchain struct {
						Blocks struct {
							Edges []struct{ Node struct{ Seq_no int } }
						}
					}
				}
				if r := parse(t, body); r.code() != "" || json.Unmarshal(r.Data, &got) != nil {
					t.Fatalf("%s: %s", what, body)
				}
				edges := got.Blockchain.Blocks.Edges
				for i, e := range edges {
					if want := start + i; e.Node.Seq_no != want || want >= end {
						t.Errorf("%s: %s", what, body)
					}
				}
				if want := min(newest+1, end) - start; len(edges) < want {
					t.Errorf("%s: got %d, want at least %d", what, len(edges), want)
				}
				if n := c.calls.Load(); n > 4 {
					t.Errorf("%s: %d calls, but the cost is 4", what, n)
				}
			}
		}
	})
}

// The start of a range of times must not be after a block that belongs to the range but arrives during the search.
func TestStartOfRangeOfTimesSkipsNoBlockThatArrivesMeanwhile(t *testing.T) {
	inGrowingChain(t, func(h *chaingql.Handler, c *growingMasterchain) {
		for ahead := range 8 {
			first := int(c.newest) + ahead // the first block of the range
			next := int(c.newest) + 1
			body := query(h, fmt.Sprintf("{blockchain{master_seq_no_range(time_start:%d){start}}}", first), nil)
			var got struct {
				Blockchain struct{ Master_seq_no_range struct{ Start int } }
			}
			if err := json.Unmarshal(parse(t, body).Data, &got); err != nil {
				t.Fatal(err, body)
			}
			if start := got.Blockchain.Master_seq_no_range.Start; start > first || start < min(first, next) {
				t.Errorf("block %d is the first of the range, and %d the next one: %s", first, next, body)
			}
		}
	})
}

// A range that ends after the newest masterchain block has more blocks of other workchains after the next one.
func TestETagOfARangeInAWorkchainChangesWithTheMasterchain(t *testing.T) {
	for _, end := range []int{32, 99} {
		cached(t, chaingql.Options{}, func(t *testing.T, h *chaingql.Handler, _ *callCounter, next func()) {
			// The newest block is number 31 of workchain 0. The next one is masterchain block 31, which commits it.
			document := fmt.Sprintf("{blockchain{blocks(workchain:0,master_seq_no_range:{start:31,end:%d})"+
				"{edges{node{seq_no}}}}}", end)
			before := get(h, document)
			equal(t, "blocks", strings.Count(before.Body.String(), "seq_no"), 0)
			next()
			now := get(h, document, "If-None-Match", before.Header().Get("ETag"))
			equal(t, "status after masterchain block 31", now.Code, 200)
			equal(t, "blocks", strings.Count(now.Body.String(), "seq_no"), 1)
		})
	}
}
