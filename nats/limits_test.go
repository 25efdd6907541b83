package natschain_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	natschain "github.com/chaingql/chaingql/nats"
	"github.com/nats-io/nats.go/jetstream"
)

func TestNameAndCursorMayHave64Characters(t *testing.T) {
	s, ctx := newBroker(t), context.Background()
	b := open(t, s.ClientURL(), &natschain.Options{Chain: strings.Repeat("c", 64), Create: &natschain.Storage{}})
	cursor := chaingql.Cursor(strings.Repeat("a", 64))
	block := []chaingql.Block{{Shard: 1 << 63, Cursor: cursor, Time: time.Unix(1, 0).UTC()}}
	if err := writer(t, b).Append(ctx, block...); err != nil {
		t.Fatal(err)
	}
	expectStored(t, b, block)
	if page, err := b.Blocks(ctx, chaingql.BlocksQuery{Last: 1, After: block[0].Cursor}); err != nil || len(page) != 0 {
		t.Errorf("page after the newest block: got %v and error %v, want an empty page", cursorsOf(page), err)
	}
}

// TestPagesNearTheNewestBlock reads forward and backward from each of the last cursors, all blocks
// and those of a workchain.
func TestPagesNearTheNewestBlock(t *testing.T) {
	s, ctx, all := newBroker(t), context.Background(), numbered(1, 30)
	b := open(t, s.ClientURL(), nil)
	if err := writer(t, b).Append(ctx, all...); err != nil {
		t.Fatal(err)
	}
	base, master := int32(0), int32(-1)
	for _, workchain := range []*int32{nil, &base, &master} {
		for _, c := range cursorsOf(all[26:]) {
			for _, n := range []int{1, 2, 3, 300} {
				for _, q := range []chaingql.BlocksQuery{
					{First: n, After: c}, {Last: n, After: c}, {First: n, Before: c}, {Last: n, Before: c},
				} {
					q.Workchain = workchain
					page, err := b.Blocks(ctx, q)
					if want := cursorsOf(chaingql.PageOf(all, q)); err != nil || !slices.Equal(cursorsOf(page), want) {
						t.Errorf("%+v: got %v and error %v, want %v", q, cursorsOf(page), err, want)
					}
				}
			}
		}
	}
}

// TestLongPageContainsRepeatedBlockOnce publishes copies of a block directly after it. Long pages
// of a workchain are read by subject.
func TestLongPageContainsRepeatedBlockOnce(t *testing.T) {
	s, ctx, all := newBroker(t), context.Background(), numbered(1, 60)
	b := open(t, s.ClientURL(), (&logbook{}).options())
	w := writer(t, b)
	for _, end := range []int{20, 40} {
		if err := w.Append(ctx, all[:end]...); err != nil {
			t.Fatal(err)
		}
		publishRun(t, s.ClientURL(), all[end-2].Cursor, all[end-1:end])
	}
	if err := w.Append(ctx, all...); err != nil {
		t.Fatal(err)
	}
	for _, workchain := range []int32{0, -1} {
		for _, q := range []chaingql.BlocksQuery{{First: 300}, {Last: 300}} {
			q.Workchain = &workchain
			page, err := b.Blocks(ctx, q)
			if want := cursorsOf(chaingql.PageOf(all, q)); err != nil || !slices.Equal(cursorsOf(page), want) {
				t.Errorf("%+v: got %v and error %v, want %v", q, cursorsOf(page), err, want)
			}
		}
	}
}

// TestLongPageDoesNotEndWithStray reads pages of a workchain that end directly before a stray
// message of that workchain, at it and after it.
func TestLongPageDoesNotEndWithStray(t *testing.T) {
	s, ctx, all := newBroker(t), context.Background(), numbered(1, 500)
	b := open(t, s.ClientURL(), (&logbook{}).options())
	w := writer(t, b)
	if err := w.Append(ctx, all[:440]...); err != nil {
		t.Fatal(err)
	}
	publishRun(t, s.ClientURL(), "0999", numbered(5001, 5001))
	if err := w.Append(ctx, all[440:]...); err != nil {
		t.Fatal(err)
	}
	base := int32(0)
	for n := 218; n <= 223; n++ {
		q := chaingql.BlocksQuery{Workchain: &base, First: n}
		page, err := b.Blocks(ctx, q)
		if want := cursorsOf(chaingql.PageOf(all, q)); err != nil || !slices.Equal(cursorsOf(page), want) {
			t.Errorf("first %d: error %v: %s", n, err, difference(cursorsOf(page), want))
		}
		b.Forget()
	}
}

// TestOldestMessageMayBeStray deletes the blocks before a stray message, as MaxAge does.
func TestOldestMessageMayBeStray(t *testing.T) {
	s, ctx, all := newBroker(t), context.Background(), numbered(1, 80)
	b := open(t, s.ClientURL(), (&logbook{}).options())
	w := writer(t, b)
	if err := w.Append(ctx, all[:40]...); err != nil {
		t.Fatal(err)
	}
	publishRun(t, s.ClientURL(), "0999", all[60:61])
	if err := w.Append(ctx, all[40:]...); err != nil {
		t.Fatal(err)
	}
	stream, err := raw(t, s.ClientURL()).Stream(ctx, "chain_blocks")
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(ctx, jetstream.WithPurgeSequence(41)); err != nil {
		t.Fatal(err)
	}
	for _, b := range []*natschain.Backend{b, open(t, s.ClientURL(), (&logbook{}).options())} {
		expectReads(t, b, all[40:])
		var listed []uint64
		for m, err := range b.StrayMessages(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			listed = append(listed, m.Seq)
		}
		if !slices.Equal(listed, []uint64{41}) {
			t.Errorf("got stray messages %d, want 41", listed)
		}
	}
}

// TestIdleFollowKeepsItsConsumer waits until Follow has queried the newest message and was idle for
// as long again. Follow ends if five consecutive consumers yield nothing.
func TestIdleFollowKeepsItsConsumer(t *testing.T) {
	t.Parallel()
	s, ctx, all := newBroker(t), context.Background(), numbered(1, 11)
	b := open(t, s.ClientURL(), nil)
	w := writer(t, b)
	if err := w.Append(ctx, all[:10]...); err != nil {
		t.Fatal(err)
	}
	r := follow(t, b, "")
	r.expect(all[:10])
	stream, err := raw(t, s.ClientURL()).Stream(ctx, "chain_blocks")
	if err != nil {
		t.Fatal(err)
	}
	consumers := func() (names []string) {
		list := stream.ConsumerNames(ctx)
		for name := range list.Name() {
			names = append(names, name)
		}
		if err := list.Err(); err != nil {
			t.Fatal(err)
		}
		return names
	}
	before := consumers()
	time.Sleep(10500 * time.Millisecond)
	if after := consumers(); len(before) != 1 || !slices.Equal(before, after) {
		t.Errorf("got consumers %v, want %v", after, before)
	}
	if err := w.Append(ctx, all[10:]...); err != nil {
		t.Fatal(err)
	}
	r.expect(all[10:])
}
