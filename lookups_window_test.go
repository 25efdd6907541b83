package chaingql_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/backendtest"
)

// fieldsOf returns the queries for a block and its neighbors.
func fieldsOf(b chaingql.Block) (block, number, previous, next string) {
	hash := `(hash:"` + b.Hash.String() + `"){hash}`
	return "block" + hash,
		fmt.Sprintf(`block_by_seq_no(workchain:%d,shard:"%016x",seq_no:%d){hash}`, b.Workchain, b.Shard, b.SeqNo),
		"prev_shard_blocks" + hash, "next_shard_blocks" + hash
}

func inChain(field string) string { return "{blockchain{x:" + field + "}}" }

func TestBlocksOutsideTheWindowAreErrorsIfTheBackendCannotFindThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := backendtest.Chain(300, 1)
		chain := chainOf(t, blocks[:200])
		b := plain(chain)
		h, _ := newHandler(t, b, chaingql.Options{})
		startStream(t, h, chain, blocks[200])
		commit(t, chain, blocks[201:]...)
		synctest.Wait()
		calls := b.calls.Load()
		before, after := links(blocks)
		all := byHash(blocks)
		hashes := func(list []string) string {
			if len(list) == 0 {
				return "[]"
			}
			return `[{"hash":"` + strings.Join(list, `"},{"hash":"`) + `"}]`
		}
		inside := 0
		for i, stored := range blocks {
			block, number, previous, next := fieldsOf(stored)
			if i >= 100 && i < 200 {
				continue // the window begins somewhere here
			}
			if i < 100 {
				for _, field := range []string{block, number, previous, next} {
					reply := parse(t, query(h, inChain(field), nil))
					equal(t, field, reply.code(), "LOOKUP_NOT_SUPPORTED")
					equal(t, field, string(reply.Data), `{"blockchain":{"x":null}}`)
				}
				continue
			}
			hash := stored.Hash.String()
			for field, want := range map[string]string{
				block: `{"hash":"` + hash + `"}`, number: `{"hash":"` + hash + `"}`, next: hashes(after[hash]),
			} {
				if field == next && len(after[hash]) == 1 && isChild(all[after[hash][0]], stored) {
					want = "[]"
				}
				equal(t, field, query(h, inChain(field), nil), `{"data":{"blockchain":{"x":`+want+`}}}`)
			}
			if reply := parse(t, query(h, inChain(previous), nil)); reply.code() == "" {
				inside++
				equal(t, previous, string(reply.Data), `{"blockchain":{"x":`+hashes(before[hash])+`}}`)
			} else {
				equal(t, previous, reply.code(), "LOOKUP_NOT_SUPPORTED")
			}
		}
		if inside < 80 {
			t.Errorf("the predecessors of only %d of 100 blocks were found in the window", inside)
		}
		unknown, number, _, _ := fieldsOf(chaingql.Block{SeqNo: 1 << 20})
		equal(t, "unknown hash", parse(t, query(h, inChain(unknown), nil)).code(), "LOOKUP_NOT_SUPPORTED")
		equal(t, "unknown number", parse(t, query(h, inChain(number), nil)).code(), "LOOKUP_NOT_SUPPORTED")
		oldest := blocks[0].Time.Unix()
		equal(t, "time outside the window", parse(t, askRange(h, fmt.Sprint("time_start:", oldest))).code(),
			"LOOKUP_NOT_SUPPORTED")
		newest := blocks[299].Time.Unix()
		first, last := mastersOf(blocks, newest, newest)
		equal(t, "time in the window", askRange(h, fmt.Sprintf("time_start:%d,time_end:%d", newest, newest)),
			rangeIs(first, last))
		if n := b.calls.Load() - calls; n > 10 {
			t.Errorf("the queries needed %d calls of the Backend, although the window has the blocks", n)
		}
	})
}

func TestOldBlockOfLongWindowIsFoundByTheHashIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := backendtest.Chain(6000, 1)
		chain := chainOf(t, blocks[:1])
		b := withNumbers(chain)
		h, _ := newHandler(t, b, chaingql.Options{WindowSize: 8000})
		startStream(t, h, chain, blocks[1])
		commit(t, chain, blocks[2:]...)
		synctest.Wait()
		for i, calls := range map[int]int64{100: 1, 1900: 1, 1910: 0, 5999: 0} {
			b.calls.Store(0)
			block, _, _, _ := fieldsOf(blocks[i])
			want := `{"data":{"blockchain":{"x":{"hash":"` + blocks[i].Hash.String() + `"}}}}`
			equal(t, block, query(h, inChain(block), nil), want)
			equal(t, fmt.Sprint("calls for block ", i), b.calls.Load(), calls)
		}
	})
}

// Without an index, each lookup scans the window, so the scans must be bounded. A block that was not scanned must not
// be reported as missing.
func TestHashIsScannedAmongTheNewestBlocksOfLongWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := backendtest.Chain(17_000, 1)
		chain := chainOf(t, blocks[:1])
		h, _ := newHandler(t, plain(chain), chaingql.Options{WindowSize: 20_000})
		startStream(t, h, chain, blocks[1])
		commit(t, chain, blocks[2:]...)
		synctest.Wait()
		const scanned = 16_384
		for i, found := range map[int]bool{
			0: false, len(blocks) - scanned - 1: false, len(blocks) - scanned: true, len(blocks) - 1: true,
		} {
			block, _, _, _ := fieldsOf(blocks[i])
			response := query(h, inChain(block), nil)
			if strings.Contains(response, blocks[i].Hash.String()) != found ||
				strings.Contains(response, "LOOKUP_NOT_SUPPORTED") == found {
				t.Errorf("block %d of %d: got %s, want found: %v", i, len(blocks), response, found)
			}
		}
	})
}

// buildingBackend is a Backend with an incomplete index of hashes.
type buildingBackend struct{ numberedBackend }

func (b buildingBackend) BlockByHash(context.Context, chaingql.Hash) (chaingql.Block, error) {
	b.calls.Add(1)
	return chaingql.Block{}, fmt.Errorf("building the index: %w", chaingql.ErrLookupNotSupported)
}

func TestLookupInIncompleteIndexIsAnErrorInsteadOfNull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocks := backendtest.Chain(6000, 1)
		chain := chainOf(t, blocks[:500])
		h, _ := newHandler(t, buildingBackend{withNumbers(chain)}, chaingql.Options{WindowSize: 5500})
		startStream(t, h, chain, blocks[500])
		commit(t, chain, blocks[501:]...)
		synctest.Wait()
		for _, i := range []int{501, 1000, 5999} { // the first two are not among those that are scanned before the call
			block, _, _, _ := fieldsOf(blocks[i])
			want := `{"data":{"blockchain":{"x":{"hash":"` + blocks[i].Hash.String() + `"}}}}`
			equal(t, fmt.Sprint("block ", i), query(h, inChain(block), nil), want)
		}
		for _, b := range []chaingql.Block{blocks[0], {}} {
			block, _, previous, next := fieldsOf(b)
			for _, field := range []string{block, previous, next} {
				reply := parse(t, query(h, inChain(field), nil))
				equal(t, field, reply.code(), "LOOKUP_NOT_SUPPORTED")
				equal(t, field, string(reply.Data), `{"blockchain":{"x":null}}`)
			}
		}
	})
}

func TestUnknownBlocksAreNull(t *testing.T) {
	h, _ := newHandler(t, referenceChain(t), chaingql.Options{})
	for _, row := range []struct{ field, want string }{
		{`block(hash:"` + strings.Repeat("0", 64) + `"){hash}`, "null"},
		{`block(hash:"` + strings.ToUpper(hash802) + `",archive:true){seq_no}`, `{"seq_no":802}`},
		{`prev_shard_blocks(hash:"` + strings.Repeat("0", 64) + `"){hash}`, "[]"},
		{`next_shard_blocks(hash:"` + strings.Repeat("0", 64) + `",archive:false){hash}`, "[]"},
		{`next_shard_blocks(hash:"` + hash802 + `"){hash}`, "[]"},
		{`prev_shard_blocks(hash:"` + hash802 + `"){seq_no}`, `[{"seq_no":801}]`},
		{`block_by_seq_no(workchain:-1,shard:WHOLE,seq_no:801){id}`, `{"id":"block/` + hash801 + `"}`},
		{`block_by_seq_no(workchain:-1,thread:WHOLE,seq_no:801.0){id}`, `{"id":"block/` + hash801 + `"}`},
		{`block_by_seq_no(workchain:-1,shard:"",thread:WHOLE,seq_no:801){id}`, `{"id":"block/` + hash801 + `"}`},
		{`block_by_seq_no(workchain:-1,shard:WHOLE,seq_no:799){id}`, "null"},
		{`block_by_seq_no(workchain:-1,shard:WHOLE,seq_no:801.5){id}`, "null"},
		{`block_by_seq_no(workchain:-1,shard:WHOLE,seq_no:-1){id}`, "null"},
		{`block_by_seq_no(workchain:-1,shard:WHOLE,seq_no:4294968097){id}`, "null"},
		{`block_by_seq_no(workchain:-1,shard:WHOLE,seq_no:1e300){id}`, "null"},
		{`block_by_seq_no(workchain:0,shard:WHOLE,seq_no:801){id}`, "null"},
		{`block_by_seq_no(workchain:-1,shard:"4000000000000000",seq_no:801){id}`, "null"},
		{`blocks(master_seq_no_range:{start:802,end:803}){edges{node{seq_no}}}`, `{"edges":[{"node":{"seq_no":802}}]}`},
		{`blocks(master_seq_no_range:{start:802,end:802}){edges{node{seq_no}}}`, `{"edges":[]}`},
		{`blocks(master_seq_no_range:{start:900,end:950}){edges{node{seq_no}}}`, `{"edges":[]}`},
		{`blocks(master_seq_no_range:{start:-5,end:-1}){edges{node{seq_no}}}`, `{"edges":[]}`},
		{`blocks(master_seq_no_range:{end:1}){edges{node{seq_no}}}`, `{"edges":[]}`},
		{`blocks(master_seq_no_range:{start:803,end:2147483647}){edges{cursor}}`, `{"edges":[]}`},
	} {
		field := strings.ReplaceAll(row.field, "WHOLE", `"8000000000000000"`)
		equal(t, field, query(h, inChain(field), nil), `{"data":{"blockchain":{"x":`+row.want+`}}}`)
	}
}

const (
	hash801 = "5e36fc5168b1219b9809825bec966102ec1c0fd849af479ab2a97b9d80981a66"
	hash802 = "c3dd7d12ca3d1416a4b2f64c95790e472e7c0b8ecc9243c4a5e1ae7f9f94a1b0"
)

func TestInvalidLookupArgumentsAreFieldErrors(t *testing.T) {
	h, _ := newHandler(t, referenceChain(t), chaingql.Options{})
	const hashError = "Invalid hash: 64 hex digits expected"
	const timesError = "time_start should not be greater than time_end"
	for field, message := range map[string]string{
		`block(hash:""){hash}`:                                           hashError,
		`block(hash:"` + strings.Repeat("g", 64) + `"){hash}`:            hashError,
		`prev_shard_blocks(hash:"` + hash802 + `0"){hash}`:               hashError,
		`next_shard_blocks(hash:"` + hash802[1:] + `"){hash}`:            hashError,
		`block_by_seq_no(workchain:-1,seq_no:1){hash}`:                   `"shard" parameter must be defined`,
		`block_by_seq_no(workchain:-1,shard:null,seq_no:1){hash}`:        `"shard" parameter must be defined`,
		`block_by_seq_no(workchain:-1,shard:"8",seq_no:1){hash}`:         "Invalid shard: 16 hex digits expected",
		`master_seq_no_range(time_start:2,time_end:1){start}`:            timesError,
		`master_seq_no_range(time_start:-1,time_end:-2147483648){start}`: timesError,
	} {
		reply := parse(t, query(h, inChain(field), nil))
		equal(t, field, string(reply.Data), `{"blockchain":{"x":null}}`)
		equal(t, field, reply.code(), "BAD_USER_INPUT")
		equal(t, field, reply.Errors[0].Message, message)
	}
}

func TestLookupCostIsItsMaximumNumberOfBackendCalls(t *testing.T) {
	chain := referenceChain(t)
	byTime, _ := newHandler(t, chain, chaingql.Options{ShowCost: true})
	byNumber, _ := newHandler(t, withNumbers(chain), chaingql.Options{ShowCost: true})
	hash := `(hash:"` + hash802 + `"){hash}`
	for field, costs := range map[string][2]string{
		"block" + hash:             {"1 1", "1 1"},
		"prev_shard_blocks" + hash: {"5 5", "5 5"},
		"next_shard_blocks" + hash: {"5 5", "5 5"},
		`block_by_seq_no(workchain:-1,shard:"8000000000000000",seq_no:1){hash}`: {"1 1", "1 1"},
		"master_seq_no_range{start}":                                 {"0 0", "0 0"},
		"master_seq_no_range(time_start:1){start}":                   {"3 3", "24 524"},
		"master_seq_no_range(time_end:1){start}":                     {"10 802", "24 1324"},
		"master_seq_no_range(time_start:1,time_end:2){start}":        {"13 805", "48 1848"},
		"blocks(last:3,master_seq_no_range:{start:802}){__typename}": {"4 6", "4 6"},
	} {
		for i, h := range []*chaingql.Handler{byTime, byNumber} {
			var calls, blocks int
			_, cost, _ := strings.Cut(query(h, inChain(field), nil), `"cost":`)
			if _, err := fmt.Sscanf(cost, `{"calls":%d,"blocks":%d}`, &calls, &blocks); err != nil {
				t.Fatal(field, err)
			}
			equal(t, field, fmt.Sprint(calls, " ", blocks), costs[i])
		}
	}
	const two = `{blockchain{
		a:master_seq_no_range(time_start:1,time_end:2){start} b:master_seq_no_range(time_start:1){start}
	}}`
	equal(t, "two searches", parse(t, query(byNumber, two, nil)).code(), "LIMIT_EXCEEDED")
}

func TestResponseIsImmutableOnlyIfTheBlockIsFound(t *testing.T) {
	cached(t, chaingql.Options{}, func(t *testing.T, h *chaingql.Handler, c *callCounter, next func()) {
		blocks := minute(100)
		newest, old := blocks[60], blocks[10]
		ask := func(field string, b chaingql.Block) string {
			return inChain(field + `(hash:"` + b.Hash.String() + `"){seq_no}`)
		}
		for _, document := range []string{
			ask("block", newest), ask("block", old), ask("prev_shard_blocks", newest), ask("prev_shard_blocks", old),
			ask("next_shard_blocks", old),
			inChain(`block_by_seq_no(workchain:0,shard:"8000000000000000",seq_no:3){hash}`),
		} {
			w := get(h, document)
			equal(t, document, caching(w), immutable)
			tag := w.Header().Get("ETag")
			calls := c.calls
			equal(t, document, get(h, document, "If-None-Match", tag).Code, 304)
			equal(t, "calls for a response with status 304", c.calls-calls, 0)
		}
		first := ask("next_shard_blocks", newest)
		w := get(h, first)
		equal(t, "next of the newest block", w.Body.String(), `{"data":{"blockchain":{"x":[]}}}`)
		if caching(w) == immutable {
			t.Error("the empty list after the newest block is cached forever")
		}
		tag := w.Header().Get("ETag")
		next() // a block of the other workchain
		next()
		w = get(h, first, "If-None-Match", tag)
		equal(t, "next of a block that is not the newest any more", w.Body.String(),
			`{"data":{"blockchain":{"x":[{"seq_no":32}]}}}`)
		equal(t, first, caching(w), immutable)

		for _, document := range []string{
			ask("block", blocks[99]), inChain(`block_by_seq_no(workchain:0,shard:"8000000000000000",seq_no:99){hash}`),
			ask("prev_shard_blocks", blocks[0]), inChain("master_seq_no_range(time_start:1){start}"),
		} {
			if w := get(h, document); caching(w) == immutable || w.Code != 200 {
				t.Errorf("the response %s to %s is cached with %q", w.Body, document, caching(w))
			}
		}
	})
}

func TestPageOfOldMasterchainRangeIsImmutable(t *testing.T) {
	cached(t, chaingql.Options{}, func(t *testing.T, h *chaingql.Handler, c *callCounter, next func()) {
		for range 39 {
			next()
		}
		page := func(filter string) string {
			return inChain("blocks(first:50,master_seq_no_range:" + filter + "){edges{node{seq_no}}}")
		}
		for filter, want := range map[string]bool{
			"{start:33,end:36}": true, "{start:33}": false, "{start:48,end:50}": false, "{start:48,end:60}": false,
		} {
			if w := get(h, page(filter)); (caching(w) == immutable) != want || w.Code != 200 {
				t.Errorf("the response %s for the range %s is cached with %q", w.Body, filter, caching(w))
			}
		}
	})
}

// Each lookup of an unknown hash searches the whole window. A query may have 50 of them.
func TestLookupsByHashYieldTheProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	h, _ := newHandler(t, chainOf(t, backendtest.Chain(300, 1)), chaingql.Options{})
	fields := ""
	for i := range 50 {
		fields += fmt.Sprintf(`b%d:block(hash:"%064x"){seq_no} `, i, i)
	}
	text := "{blockchain{" + fields + "}}"
	query(h, text, nil)
	var turns atomic.Int64
	ended := make(chan struct{})
	go func() {
		for {
			select {
			case <-ended:
				return
			default:
				turns.Add(1)
				runtime.Gosched()
			}
		}
	}()
	runtime.Gosched()
	before := turns.Load()
	query(h, text, nil)
	got := turns.Load() - before
	close(ended)
	if got < 25 {
		t.Errorf("another goroutine ran %d times during the query, want at least 25 times", got)
	}
}
