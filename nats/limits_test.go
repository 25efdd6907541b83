package natschain_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	natschain "github.com/chaingql/chaingql/nats"
	"github.com/nats-io/nats.go/jetstream"
)

func TestChainNameAndCursorMayHave64Characters(t *testing.T) {
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

// TestPagesNearNewestBlockAreCorrect reads pages before and after each of the newest cursors, of all
// blocks and of single workchains.
func TestPagesNearNewestBlockAreCorrect(t *testing.T) {
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
						t.Errorf("page %+v: got %v and error %v, want %v", q, cursorsOf(page), err, want)
					}
				}
			}
		}
	}
}

// TestLongPageContainsDuplicatedBlockOnce publishes a copy of a block directly after that block. Then it
// reads long pages of a workchain, which are read by subject.
func TestLongPageContainsDuplicatedBlockOnce(t *testing.T) {
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
				t.Errorf("page %+v: got %v and error %v, want %v", q, cursorsOf(page), err, want)
			}
		}
	}
}

// TestStrayMessageAtTheEndOfALongPageIsSkipped reads pages of a workchain that contains a stray message. The
// pages end directly before, at and after that message.
func TestStrayMessageAtTheEndOfALongPageIsSkipped(t *testing.T) {
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
			t.Errorf("page of the first %d blocks: error %v: %s", n, err, difference(cursorsOf(page), want))
		}
		b.Forget()
	}
}

// TestOldestMessageIsSkippedIfStray deletes all blocks before a stray message, as MaxAge does.
func TestOldestMessageIsSkippedIfStray(t *testing.T) {
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
			t.Errorf("StrayMessages: got messages %d, want only message 41", listed)
		}
	}
}

// TestIdleFollowKeepsItsConsumer waits 10.5 s while Follow receives no blocks. Follow must not replace
// its consumer during this time, because it fails after five consecutive consumers without a block.
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
		t.Errorf("got consumers %v after 10.5 s, want the same single consumer as before: %v", after, before)
	}
	if err := w.Append(ctx, all[10:]...); err != nil {
		t.Fatal(err)
	}
	r.expect(all[10:])
}

// TestLargeMessagesAreNotBlocks publishes blocks with an additional field or a long prev. A message of up to 16 KiB may
// be a block.
func TestLargeMessagesAreNotBlocks(t *testing.T) {
	const limit = 16 << 10
	s, ctx, all := newBroker(t), t.Context(), numbered(1, 40)
	b := open(t, s.ClientURL(), (&logbook{}).options())
	if err := writer(t, b).Append(ctx, all[:20]...); err != nil {
		t.Fatal(err)
	}
	js := raw(t, s.ClientURL())
	publish := func(block chaingql.Block, prev chaingql.Cursor, size int) {
		t.Helper()
		text := fmt.Sprintf(`%s,"prev":%q,"more":""}`, strings.TrimSuffix(string(payloadOf(&block)), "}"), prev)
		more := strings.Repeat("0", max(0, size-len(text)))
		if _, err := js.Publish(ctx, subjectOf(&block), []byte(strings.TrimSuffix(text, `"}`)+more+`"}`)); err != nil {
			t.Fatal(err)
		}
	}
	stray := forked(all[20:21])[0]
	for range 4 {
		publish(stray, all[19].Cursor, 1_000_000)
		publish(stray, chaingql.Cursor(strings.Repeat("0", 15_000)), 0)
	}
	publish(stray, all[19].Cursor, limit+1)
	publish(all[20], all[19].Cursor, limit)
	for _, b := range []*natschain.Backend{b, open(t, s.ClientURL(), (&logbook{}).options())} {
		expectPage(t, b, chaingql.BlocksQuery{First: 100}, all[:21])
		reasons := map[string]int{}
		for m, err := range b.StrayMessages(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			reasons[strings.Fields(m.Reason.Error())[1]]++ // "the message has ..." or "the prev ..."
		}
		if want := map[string]int{"message": 5, "prev": 4}; !maps.Equal(reasons, want) {
			t.Errorf("got reasons %v, want %v", reasons, want)
		}
	}
	if err := writer(t, b).Append(ctx, all[21:]...); err != nil {
		t.Fatal(err)
	}
	expectPage(t, b, chaingql.BlocksQuery{First: 100}, all)
}
