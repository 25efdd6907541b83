package natschain_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/nats-io/nats.go/jetstream"
)

// TestFirstBlockAfterAllBlocksExpiredIsReadAtOnce removes all blocks, as MaxAge does, before a stray message and a
// block that names no predecessor. Another block follows it.
func TestFirstBlockAfterAllBlocksExpiredIsReadAtOnce(t *testing.T) {
	t.Parallel()
	s, ctx, all := newBroker(t), context.Background(), numbered(101, 144)
	w := writer(t, open(t, s.ClientURL(), (&logbook{}).options()))
	if err := w.Append(ctx, all[:40]...); err != nil {
		t.Fatal(err)
	}
	b, paging := open(t, s.ClientURL(), (&logbook{}).options()), open(t, s.ClientURL(), (&logbook{}).options())
	live := follow(t, b, all[38].Cursor)
	live.expect(all[39:40])
	expectStored(t, paging, all[:40]) // paging now knows the cursor of the newest block
	js := raw(t, s.ClientURL())
	stream, err := js.Stream(ctx, "chain_blocks")
	if err != nil {
		t.Fatal(err)
	}
	highest := chaingql.Block{Shard: 1 << 63, Cursor: "ffffffffffffffff0"} // too high to be a block
	for i := 40; i < len(all); i += 2 {
		if err := stream.Purge(ctx); err != nil {
			t.Fatal(err)
		}
		for _, block := range []*chaingql.Block{&highest, &all[i]} {
			if _, err := js.Publish(ctx, subjectOf(block), payloadOf(block)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(200 * time.Millisecond) // live must not end
		}
		live.expect(all[i : i+1])
		page, err := paging.Blocks(ctx, chaingql.BlocksQuery{First: 1, After: all[i-1].Cursor})
		if err != nil || !slices.Equal(page, all[i:i+1]) {
			t.Errorf("page after block %q: got %v and error %v, want block %q", all[i-1].Cursor, cursorsOf(page), err,
				all[i].Cursor)
		}
		publishRun(t, s.ClientURL(), all[i].Cursor, all[i+1:i+2])
		live.expect(all[i+1 : i+2])
		expectReads(t, paging, all[i:i+2])
	}
}

// TestNewestCursorRemainsAfterAllBlocksExpired calls Follow again after all blocks have expired, as a Handler does when
// a broker is restarted. Clients that have received all blocks continue with the next one.
func TestNewestCursorRemainsAfterAllBlocksExpired(t *testing.T) {
	t.Parallel()
	s, ctx, all := newBroker(t), t.Context(), numbered(101, 142)
	s.appendNew(t, all[:40])
	b := open(t, s.ClientURL(), (&logbook{}).options())
	expectStored(t, b, all[:40])
	stream, err := raw(t, s.ClientURL()).Stream(ctx, "chain_blocks")
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(ctx); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		waiting, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		for _, err := range b.Follow(waiting, all[39].Cursor) {
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Follow after the newest block: got error %v, want to wait", err)
			}
		}
		cancel()
		page, err := b.Blocks(ctx, chaingql.BlocksQuery{First: 10, After: all[39].Cursor})
		if err != nil || len(page) > 0 {
			t.Errorf("page after the newest block: got %v and error %v, want no blocks", cursorsOf(page), err)
		}
	}
	live := follow(t, b, all[39].Cursor)
	s.appendNew(t, all[40:])
	live.expect(all[40:])
}

// TestStrayMessageIsNoBlockAfterBlockBeforeItExpired removes the block before stray messages that name no predecessor.
// The block after them names that block.
func TestStrayMessageIsNoBlockAfterBlockBeforeItExpired(t *testing.T) {
	t.Parallel()
	s, ctx, all := newBroker(t), context.Background(), numbered(101, 145)
	w, js := writer(t, open(t, s.ClientURL(), (&logbook{}).options())), raw(t, s.ClientURL())
	if err := w.Append(ctx, all[:40]...); err != nil {
		t.Fatal(err)
	}
	b := open(t, s.ClientURL(), (&logbook{}).options())
	live := follow(t, b, all[38].Cursor)
	live.expect(all[39:40])
	for range 3 { // live asks whether the block before them has expired
		if _, err := js.Publish(ctx, subjectOf(&all[0]), payloadOf(&numbered(190, 190)[0])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Append(ctx, all[40:]...); err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(ctx, "chain_blocks")
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(ctx, jetstream.WithPurgeSequence(41)); err != nil {
		t.Fatal(err)
	}
	follow(t, b, all[39].Cursor).expect(all[40:])
	live.expect(all[40:])
}
