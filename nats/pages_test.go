package natschain_test

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	natschain "github.com/chaingql/chaingql/nats"
	"github.com/nats-io/nats-server/v2/server"
)

// long returns a chain with n blocks. In workchain 0, the shard c... has a few old blocks, and the shard
// 2... has many blocks at the beginning and one at the end.
func long(n int) []chaingql.Block {
	rng := rand.New(rand.NewPCG(1, 1))
	all := make([]chaingql.Block, n)
	for i := range all {
		b := &all[i]
		b.Shard, b.SeqNo, b.Cursor = 1<<62, uint32(i), chaingql.SeqCursor(uint64(i))
		binary.BigEndian.PutUint64(b.Hash[:], uint64(i+1)*0x9e3779b97f4a7c15) // all different
		switch {
		case i%10 == 0:
			b.Workchain, b.Shard = -1, 1<<63
		case i < n/3 && rng.IntN(2) == 0, i == n-5:
			b.Shard = 1 << 61
		case i > n/4 && i < n/4+100:
			b.Shard = 3 << 62
		}
	}
	return all
}

// traffic returns how many messages a server has received from clients and sent to clients.
func (b *broker) traffic(t testing.TB) (in, out int64) {
	v, err := b.Varz(&server.VarzOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return v.InMsgs, v.OutMsgs
}

// TestPagesNeedFewRequests reads pages of a long chain at cursors that are not cached. The numbers of
// requests and responses must not exceed a limit for each page.
func TestPagesNeedFewRequests(t *testing.T) {
	s := newBroker(t)
	b, all, ctx := open(t, s.ClientURL(), &natschain.Options{Timeout: time.Minute,
		Create: &natschain.Storage{Memory: true}}), long(30_000), context.Background()
	filling := open(t, s.ClientURL(), nil)
	if err := writer(t, filling).Append(ctx, all...); err != nil {
		t.Fatal(err)
	}
	filling.Close()
	for s.NumClients() > 1 { // before that, the server may not have counted all appended blocks
		time.Sleep(time.Millisecond)
	}
	workchain := func(w int32) *int32 { return &w }
	shard := func(s uint64) *uint64 { return &s }
	const search = 15 // requests of a binary search among 30,000 blocks
	for _, row := range []struct {
		name string
		q    chaingql.BlocksQuery
		most int64
	}{
		{"the newest block", chaingql.BlocksQuery{Last: 1}, 1},
		{"the newest ten blocks", chaingql.BlocksQuery{Last: 10}, 2},
		{"the oldest ten blocks", chaingql.BlocksQuery{First: 10}, 1},
		{"after a cursor", chaingql.BlocksQuery{First: 10, After: all[12345].Cursor}, 3 + search},
		{"after the same cursor", chaingql.BlocksQuery{First: 10, After: all[12345].Cursor}, 1},
		{"after the last block of a page", chaingql.BlocksQuery{First: 10, After: all[12355].Cursor}, 1},
		{"before a cursor", chaingql.BlocksQuery{Last: 10, Before: all[23456].Cursor}, 5 + search},
		{"the newest block of a workchain", chaingql.BlocksQuery{Workchain: workchain(-1), Last: 1}, 1},
		{"the newest ten blocks of a workchain", chaingql.BlocksQuery{Workchain: workchain(-1), Last: 10}, 6},
		{"the newest ten blocks of a shard that ended long ago",
			chaingql.BlocksQuery{Shard: shard(3 << 62), Last: 10}, 12},
		{"the maximum page of a shard with more blocks",
			chaingql.BlocksQuery{Workchain: workchain(0), Shard: shard(1 << 61), Last: 1000}, 20},
		{"a long page of a shard that has only one recent block",
			chaingql.BlocksQuery{Workchain: workchain(0), Shard: shard(1 << 61), Last: 500}, 20},
		{"the newest ten blocks of a shard without blocks", chaingql.BlocksQuery{Shard: shard(1), Last: 10}, 1},
		{"the oldest ten blocks of a shard without blocks", chaingql.BlocksQuery{Shard: shard(1), First: 10}, 2},
		{"a shard between two cursors", chaingql.BlocksQuery{Shard: shard(1 << 62), Last: 7, After: all[3000].Cursor,
			Before: all[29_000].Cursor}, 10 + 2*search},
	} {
		in, out := s.traffic(t)
		page, err := b.Blocks(ctx, row.q)
		if err != nil {
			t.Fatal(err)
		}
		asked, sent := s.traffic(t)
		// One more request reads the state of the stream, and the server may count an earlier one late.
		if n := asked - in; n > row.most+2 {
			t.Errorf("%s: got %d requests, want at most %d", row.name, n, row.most)
		}
		// Each request has one or two responses in addition to the blocks.
		if n := sent - out; n > int64(row.q.First+row.q.Last+chaingql.MaxPage)+2*(row.most+1) {
			t.Errorf("%s: got %d responses for a page of %d blocks, which is too many", row.name, n,
				row.q.First+row.q.Last)
		}
		if want := chaingql.PageOf(all, row.q); !slices.Equal(cursorsOf(page), cursorsOf(want)) {
			t.Errorf("%s: %s", row.name, difference(cursorsOf(page), cursorsOf(want)))
		}
	}
}
