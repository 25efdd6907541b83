package natschain_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	natschain "github.com/chaingql/chaingql/nats"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// uneven returns a chain of n blocks in which some workchains and shards are rare. Workchain 5 has 60
// blocks at equal distances. Workchain 6 has some old blocks and the fifth newest block. Workchain 9
// has every 300th block. Workchain 7 has no block. The base workchain has 16 shards.
func uneven(n int) []chaingql.Block {
	rng := rand.New(rand.NewPCG(1, 1))
	all := make([]chaingql.Block, n)
	for i := range all {
		b := &all[i]
		b.Shard, b.SeqNo = uint64(1+2*rng.IntN(16))<<59, uint32(i)
		b.Cursor, b.Hash[0] = chaingql.SeqCursor(uint64(i)), byte(i)
		switch {
		case i%10 == 0:
			b.Workchain, b.Shard = -1, 1<<63
		case i%(n/60) == 7:
			b.Workchain, b.Shard = 5, 1<<63
		case i > n/4 && i < n/4+n/20 && i%10 == 1, i == n-5:
			b.Workchain, b.Shard = 6, 1<<63
		case i%300 == 299:
			b.Workchain, b.Shard = 9, 1<<62
		}
	}
	return all
}

// sparse returns queries for pages before and after a cursor, each of one workchain or shard. Many of
// these workchains and shards have few blocks.
func sparse(at chaingql.Cursor) (queries []chaingql.BlocksQuery) {
	base, shards := int32(0), []uint64{1 << 59, 1 << 62, 1 << 63}
	for _, w := range []int32{-1, 0, 5, 6, 7, 9} {
		queries = append(queries, chaingql.BlocksQuery{Workchain: &w, Before: at, Last: 50},
			chaingql.BlocksQuery{Workchain: &w, After: at, First: 50})
	}
	for i := range shards {
		queries = append(queries, chaingql.BlocksQuery{Shard: &shards[i], Before: at, Last: 50},
			chaingql.BlocksQuery{Workchain: &base, Shard: &shards[i], Before: at, Last: 50},
			chaingql.BlocksQuery{Workchain: &base, Shard: &shards[i], After: at, First: 50})
	}
	return queries
}

// indexedChain starts a server and stores a chain with its index. It returns the server, a Backend with
// empty caches, and the Writer that stored the chain.
func indexedChain(t testing.TB, all []chaingql.Block) (*broker, *natschain.Backend, *natschain.Writer) {
	t.Helper()
	s := newBroker(t)
	opts := natschain.Options{Timeout: time.Minute, Create: &natschain.Storage{Memory: true}}
	w := writer(t, open(t, s.ClientURL(), &opts))
	if err := w.Append(context.Background(), all...); err != nil {
		t.Fatal(err)
	}
	return s, open(t, s.ClientURL(), &opts), w
}

// expectPages reads a page for each query and compares it with the same page of all.
func expectPages(t *testing.T, b *natschain.Backend, all []chaingql.Block, queries []chaingql.BlocksQuery) {
	t.Helper()
	for _, q := range queries {
		page, err := b.Blocks(context.Background(), q)
		if want := chaingql.PageOf(all, q); err != nil || !slices.Equal(page, want) {
			t.Errorf("page %s: error %v: %s", named(q), err, difference(cursorsOf(page), cursorsOf(want)))
		}
	}
}

func named(q chaingql.BlocksQuery) string {
	name := fmt.Sprintf("after %q, before %q, first %d, last %d", q.After, q.Before, q.First, q.Last)
	if q.Workchain != nil {
		name += fmt.Sprintf(", workchain %d", *q.Workchain)
	}
	if q.Shard != nil {
		name += fmt.Sprintf(", shard %016x", *q.Shard)
	}
	return name
}

// A spy counts the requests that a server receives and the responses that it sends.
type spy struct {
	t                 testing.TB
	nc                *nats.Conn
	requests, answers *nats.Subscription
}

func newSpy(t testing.TB, url string) *spy {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	x := &spy{t: t, nc: nc}
	if x.requests, err = nc.SubscribeSync("$JS.API.>"); err == nil {
		x.answers, err = nc.SubscribeSync("_INBOX.>")
	}
	if err != nil {
		t.Fatal(err)
	}
	x.saw()
	return x
}

// saw returns the numbers of requests and responses since its last call. The result searches is the
// number of requests for which the server must search by subject.
func (x *spy) saw() (requests, searches, answers int) {
	x.t.Helper()
	if err := x.nc.FlushTimeout(patience); err != nil {
		x.t.Fatal(err)
	}
	next := func(sub *nats.Subscription) *nats.Msg {
		if n, _, err := sub.Pending(); err != nil || n == 0 {
			return nil
		}
		m, err := sub.NextMsg(patience)
		if err != nil {
			x.t.Fatal(err)
		}
		return m
	}
	for m := next(x.requests); m != nil; m = next(x.requests) {
		requests++
		var r request
		if err := json.Unmarshal(m.Data, &r); err == nil && r.Next != "" && r.Next != ">" {
			searches++
		}
	}
	for m := next(x.answers); m != nil; m = next(x.answers) {
		answers++
	}
	return requests, searches, answers
}

// TestPagesOfRareShardsNeedFewRequests reads pages before and after cursors that are not cached. The
// numbers of requests and responses may depend on the number of index levels, but not on the length of
// the chain. No request may search by subject.
func TestPagesOfRareShardsNeedFewRequests(t *testing.T) {
	all := uneven(18_000)
	s, b, _ := indexedChain(t, all)
	x := newSpy(t, s.ClientURL())
	var most [2]int
	for _, at := range []int{0, 1, 300, 5_555, 9_216, 15_000, 17_700, 17_999} {
		for _, q := range sparse(all[at].Cursor) {
			b.Forget()
			expectPages(t, b, all, []chaingql.BlocksQuery{q})
			requests, searches, answers := x.saw()
			// The limit allows a binary search of 16 steps, 7 nodes on each of 4 index levels, and 8 others.
			if requests > 16+7*4+8 || answers > 640 {
				t.Errorf("page %s: got %d requests and %d responses, want at most %d and 640", named(q), requests,
					answers, 16+7*4+8)
			}
			if searches > 0 {
				t.Errorf("page %s: got %d searches by subject, want 0", named(q), searches)
			}
			most = [2]int{max(most[0], requests), max(most[1], answers)}
		}
	}
	t.Logf("a page needed at most %d requests and %d responses", most[0], most[1])
}

// TestWriterBuildsMissingIndex uses a chain without an index. Pages must be correct before, while and
// after a Writer builds the index.
func TestWriterBuildsMissingIndex(t *testing.T) {
	all, ctx := uneven(10_000), context.Background()
	s := newBroker(t)
	b := open(t, s.ClientURL(), nil)
	js := raw(t, s.ClientURL())
	if err := js.DeleteStream(ctx, "chain_index"); err != nil {
		t.Fatal(err)
	}
	quiet := &natschain.Options{Logger: slog.New(slog.DiscardHandler)}
	if err := writer(t, open(t, s.ClientURL(), quiet)).Append(ctx, all[:9_990]...); err != nil {
		t.Fatal(err)
	}
	pages := func(known int) {
		t.Helper()
		for _, at := range []int{7_000, 9_900} {
			expectPages(t, b, all[:known], sparse(all[at].Cursor))
			b.Forget()
		}
	}
	pages(9_990)
	w := writer(t, open(t, s.ClientURL(), nil)) // open creates the index stream
	for n := 9_990; n < len(all); n++ {
		if err := w.Append(ctx, all[n]); err != nil {
			t.Fatal(err)
		}
		if n%3 == 0 {
			pages(n + 1)
		}
	}
	x := newSpy(t, s.ClientURL())
	pages(len(all))
	if _, searches, _ := x.saw(); searches > 0 {
		t.Errorf("got %d searches by subject, want 0", searches)
	}
}

// TestPagesFromIndexOmitPrunedBlocks prunes the chain several times, also to the middle of an index leaf.
func TestPagesFromIndexOmitPrunedBlocks(t *testing.T) {
	all, ctx := uneven(6_000), context.Background()
	s, b, w := indexedChain(t, all)
	expectPages(t, b, all, sparse(all[5_995].Cursor)) // caches some nodes
	for _, keep := range []int{1, 255, 256, 1_000, 2_500, 5_990} {
		if err := w.Prune(ctx, all[keep].Cursor); err != nil {
			t.Fatal(err)
		}
		var queries []chaingql.BlocksQuery
		for _, q := range sparse(all[max(keep, 5_500)].Cursor) {
			if q.After == "" {
				queries = append(queries, q)
			}
			q.First, q.Last, q.After, q.Before = 50, 0, "", ""
			queries = append(queries, q)
		}
		expectPages(t, b, all[keep:], queries)
	}
	stream, err := raw(t, s.ClientURL()).Stream(ctx, "chain_index")
	if err != nil {
		t.Fatal(err)
	}
	if n := stream.CachedInfo().State.Msgs; n > 5 { // the last leaf of both indexes and the nodes above
		t.Errorf("the index has %d nodes after pruning, want at most 5", n)
	}
}

// TestNewStreamWithSameNameHasItsOwnIndex replaces the block stream while a Backend is open. Pages that
// this Backend reads must not contain blocks of the old stream.
func TestNewStreamWithSameNameHasItsOwnIndex(t *testing.T) {
	all, ctx := uneven(6_000), context.Background()
	s, b, _ := indexedChain(t, all)
	expectPages(t, b, all, sparse(all[5_000].Cursor))
	if err := raw(t, s.ClientURL()).DeleteStream(ctx, "chain_blocks"); err != nil {
		t.Fatal(err)
	}
	other := slices.Clone(all[:5_000])
	for i := range other {
		other[i].Hash[1]++
		if other[i].Workchain == 5 {
			other[i].Workchain = 9
		}
	}
	if err := writer(t, open(t, s.ClientURL(), nil)).Append(ctx, other...); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Blocks(ctx, chaingql.BlocksQuery{Last: 1}); !errors.Is(err, chaingql.ErrChainReplaced) {
		t.Errorf("the first page: error %v, want ErrChainReplaced", err)
	}
	expectPages(t, b, other, sparse(other[4_500].Cursor))
}

// TestTwoWritersBuildOneIndex lets two Writers append blocks alternately. Their index must be complete.
func TestTwoWritersBuildOneIndex(t *testing.T) {
	all, ctx := uneven(9_000), context.Background()
	s := newBroker(t)
	b := open(t, s.ClientURL(), nil)
	writers := []*natschain.Writer{writer(t, b), writer(t, open(t, s.ClientURL(), nil))}
	for n, i := 0, 0; n < len(all); i++ {
		end := min(n+1+i*37%700, len(all))
		if err := writers[i%2].Append(ctx, all[max(0, n-10):end]...); err != nil {
			t.Fatal(err)
		}
		n = end
	}
	x := newSpy(t, s.ClientURL())
	for _, at := range []int{3_000, 8_000} {
		expectPages(t, b, all, sparse(all[at].Cursor))
	}
	if _, searches, _ := x.saw(); searches > 0 {
		t.Errorf("got %d searches by subject, want 0", searches)
	}
}

// TestIndexNodeSizeIsLimited uses a chain in which each block has a shard of its own, so that the nodes
// contain as many shard names as possible.
func TestIndexNodeSizeIsLimited(t *testing.T) {
	all := uneven(5_000)
	for i := range all {
		all[i].Workchain, all[i].Shard = 0, uint64(2*i+1)<<40
	}
	s, b, _ := indexedChain(t, all)
	stream, err := raw(t, s.ClientURL()).Stream(context.Background(), "chain_index")
	if err != nil {
		t.Fatal(err)
	}
	state, nodes := stream.CachedInfo().State, 0
	for seq := state.FirstSeq; seq <= state.LastSeq; seq++ {
		m, err := stream.GetMsg(context.Background(), seq)
		if err != nil || len(m.Data) > 256<<10 {
			t.Fatalf("index node %d: got error %v, or the node is larger than 256 KiB", seq, err)
		}
		if !strings.Contains(m.Subject, ".hash.") {
			nodes++
		}
	}
	if leaves, above := 4_999/256, 4_999/2048; nodes != leaves+above {
		t.Errorf("the index has %d nodes, want %d", nodes, leaves+above)
	}
	x := newSpy(t, s.ClientURL())
	for _, at := range []int{100, 3_000, 4_900} {
		q := chaingql.BlocksQuery{Shard: &all[at].Shard, Last: 50, Before: all[4_950].Cursor}
		expectPages(t, b, all, []chaingql.BlocksQuery{q, {Shard: q.Shard, First: 50, After: all[50].Cursor}})
	}
	if _, searches, _ := x.saw(); searches > 0 {
		t.Errorf("got %d searches by subject, want 0", searches)
	}
}

// TestChainIsServedWithoutIndex uses a Writer that has no permission to write the index.
func TestChainIsServedWithoutIndex(t *testing.T) {
	all, ctx := uneven(3_000), context.Background()
	s := newBroker(t, func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "all", Password: password},
			{Username: "noindex", Password: password, Permissions: &server.Permissions{
				Publish: &server.SubjectPermission{
					Deny: []string{"chain.index.>", "$JS.API.STREAM.CREATE.chain_index"},
				},
			}},
		}
	})
	open(t, s.as("all"), nil)
	book := &logbook{}
	b := open(t, s.as("noindex"), book.options())
	if err := writer(t, b).Append(ctx, all...); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(book.String(), "does not extend the block index") {
		t.Errorf("got log %s, want a warning that the Writer does not extend the block index", book)
	}
	expectPages(t, b, all, sparse(all[2_500].Cursor))
}
