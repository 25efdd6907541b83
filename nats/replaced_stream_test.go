package natschain_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	natschain "github.com/chaingql/chaingql/nats"
	"github.com/nats-io/nats.go/jetstream"
)

func TestFollowFailsIfPruningOvertakesIt(t *testing.T) {
	s := newBroker(t)
	b, all, ctx := open(t, s.ClientURL(), nil), blocks(10_000), context.Background()
	w := writer(t, b)
	if err := w.Append(ctx, all...); err != nil {
		t.Fatal(err)
	}
	r := follow(t, b, "")
	r.expect(all[:5])
	if err := w.Prune(ctx, all[9000].Cursor); err != nil {
		t.Fatal(err)
	}
	for i := 5; ; i++ { // blocks in flight still arrive
		select {
		case c := <-r.blocks:
			if c != all[i].Cursor {
				t.Fatalf("got block %q, want %q", c, all[i].Cursor)
			}
			continue
		case err := <-r.end:
			if !errors.Is(err, chaingql.ErrCursorTooOld) {
				t.Errorf("Follow ended with error %v, want ErrCursorTooOld", err)
			}
		case <-time.After(patience):
			t.Fatalf("Follow did not end within %v after its next block was pruned", patience)
		}
		break
	}
}

// TestFollowReportsReplacedStream deletes the stream and creates another one, which has different blocks
// at the same sequence numbers. A running Follow must end with an error that says so.
func TestFollowReportsReplacedStream(t *testing.T) {
	for _, size := range []int{50, 300} { // fewer and more blocks than before
		s := newBroker(t)
		b, ctx := open(t, s.ClientURL(), nil), context.Background()
		old, other := blocks(200), blocks(1000)[200:] // other contains later blocks of the same chain
		if err := writer(t, b).Append(ctx, old...); err != nil {
			t.Fatal(err)
		}
		r, epoch := follow(t, b, old[9].Cursor), b.Epoch()
		r.expect(old[10:])
		if err := raw(t, s.ClientURL()).DeleteStream(ctx, "chain_blocks"); err != nil {
			t.Fatal(err)
		}
		again := open(t, s.ClientURL(), nil)
		if err := writer(t, again).Append(ctx, other[:size]...); err != nil {
			t.Fatal(err)
		}
		err := r.ends(patience)
		// Follow may end before the new stream exists.
		for err != nil && strings.Contains(err.Error(), "stream not found") {
			r = follow(t, b, old[199].Cursor)
			err = r.ends(patience)
		}
		if !errors.Is(err, chaingql.ErrChainReplaced) {
			t.Errorf("new stream with %d blocks: Follow ended with error %v, want ErrChainReplaced", size, err)
		}
		if got := b.Epoch(); got == epoch || got != again.Epoch() {
			t.Errorf("Epoch returned %q, want %q, the one of a Backend that was opened later", got, again.Epoch())
		}
		follow(t, b, old[199].Cursor).expect(other[:3])
		if page, err := b.Blocks(ctx, chaingql.BlocksQuery{First: 5, After: other[2].Cursor}); err != nil ||
			len(page) != 5 || page[0] != other[3] {
			t.Errorf("page after the third of %d new blocks: got %v and error %v, want five blocks", size, page, err)
		}
	}
}

// TestFollowFromFutureCursorYieldsBlocksOfNewStream follows from a cursor that is after the newest block.
// Then it replaces the stream with one that begins after that cursor. Follow must yield its first block.
func TestFollowFromFutureCursorYieldsBlocksOfNewStream(t *testing.T) {
	s := newBroker(t)
	b, all, ctx := open(t, s.ClientURL(), nil), blocks(40), context.Background()
	if err := writer(t, b).Append(ctx, all[:5]...); err != nil {
		t.Fatal(err)
	}
	r := follow(t, b, all[9].Cursor)
	again, js := open(t, s.ClientURL(), nil), raw(t, s.ClientURL())
	for {
		stream, err := js.Stream(ctx, "chain_blocks")
		if err != nil {
			t.Fatal(err)
		}
		if stream.CachedInfo().State.Consumers == 1 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	stream, err := js.Stream(ctx, "chain_blocks")
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(ctx, "chain_blocks"); err != nil {
		t.Fatal(err)
	}
	c := stream.CachedInfo().Config
	c.Metadata = nil // it contains the epoch
	if _, err := js.CreateStream(ctx, c); err != nil {
		t.Fatal(err)
	}
	if err := writer(t, again).Append(ctx, all[12:]...); err != nil { // before Follow creates its next consumer
		t.Fatal(err)
	}
	for {
		select {
		case c := <-r.blocks:
			if c != all[12].Cursor {
				t.Errorf("Follow yielded block %q, want %q", c, all[12].Cursor)
			}
			return
		case err := <-r.end:
			t.Log(err)
			r = follow(t, b, all[9].Cursor)
		case <-time.After(patience):
			t.Fatalf("Follow yielded no block within %v", patience)
		}
	}
}

// TestPagesAreCorrectAfterStreamIsReplaced replaces the stream while no Follow runs that would detect it. The caches of
// the Backend are then wrong, because all sequence numbers have changed.
func TestPagesAreCorrectAfterStreamIsReplaced(t *testing.T) {
	s := newBroker(t)
	b, all, ctx := open(t, s.ClientURL(), nil), blocks(200), context.Background()
	if err := writer(t, b).Append(ctx, all[:100]...); err != nil {
		t.Fatal(err)
	}
	if err := raw(t, s.ClientURL()).DeleteStream(ctx, "chain_blocks"); err != nil {
		t.Fatal(err)
	}
	again := writer(t, open(t, s.ClientURL(), nil))
	if err := again.Append(ctx, all[50:150]...); err != nil { // each sequence number is 50 lower
		t.Fatal(err)
	}
	if err := again.Prune(ctx, all[55].Cursor); err != nil {
		t.Fatal(err)
	}
	q := chaingql.BlocksQuery{First: 10, After: all[79].Cursor}
	if page, err := b.Blocks(ctx, q); !errors.Is(err, chaingql.ErrChainReplaced) {
		t.Errorf("the first page after block 79: got %v and error %v, want ErrChainReplaced", cursorsOf(page), err)
	}
	if page, err := b.Blocks(ctx, q); err != nil || !slices.Equal(cursorsOf(page), cursorsOf(all[80:90])) {
		t.Errorf("page after block 79: got %v and error %v, want %v", cursorsOf(page), err, cursorsOf(all[80:90]))
	}
	expectStored(t, open(t, s.ClientURL(), nil), all[55:150])
}

// TestPageBeforeCursorIsCorrectAfterStreamIsReplaced replaces the stream with one that begins with earlier blocks,
// so that each block has a higher sequence number than before.
func TestPageBeforeCursorIsCorrectAfterStreamIsReplaced(t *testing.T) {
	s := newBroker(t)
	b, all, ctx := open(t, s.ClientURL(), nil), blocks(200), context.Background()
	if err := writer(t, b).Append(ctx, all[50:150]...); err != nil {
		t.Fatal(err)
	}
	if err := raw(t, s.ClientURL()).DeleteStream(ctx, "chain_blocks"); err != nil {
		t.Fatal(err)
	}
	if err := writer(t, open(t, s.ClientURL(), nil)).Append(ctx, all...); err != nil {
		t.Fatal(err)
	}
	q := chaingql.BlocksQuery{Last: 10, Before: all[100].Cursor}
	if page, err := b.Blocks(ctx, q); !errors.Is(err, chaingql.ErrChainReplaced) {
		t.Errorf("the first page before block 100: got %v and error %v, want ErrChainReplaced", cursorsOf(page), err)
	}
	if page, err := b.Blocks(ctx, q); err != nil || !slices.Equal(cursorsOf(page), cursorsOf(all[90:100])) {
		t.Errorf("page before block 100: got %v and error %v, want %v", cursorsOf(page), err,
			cursorsOf(all[90:100]))
	}
}

func TestReadsReportBlocksDeletedFromMiddle(t *testing.T) {
	s := newBroker(t)
	ctx := context.Background()
	stream, err := raw(t, s.ClientURL()).CreateStream(ctx,
		jetstream.StreamConfig{Name: "chain_blocks", Subjects: []string{"chain.blocks.>"}, AllowDirect: true})
	if err != nil {
		t.Fatal(err)
	}
	b, all := open(t, s.ClientURL(), nil), blocks(50)
	if err := writer(t, b).Append(ctx, all...); err != nil {
		t.Fatal(err)
	}
	if err := stream.DeleteMsg(ctx, 30); err != nil {
		t.Fatal(err)
	}
	const want = "messages 30 to 30 were deleted from the middle of the stream"
	r := follow(t, b, all[9].Cursor)
	r.expect(all[10:29])
	if err := r.ends(patience); !strings.Contains(err.Error(), want) {
		t.Errorf("Follow ended with error %v, want %q", err, want)
	}
	for _, q := range []chaingql.BlocksQuery{{First: 40}, {Last: 30}, {First: 10, After: all[24].Cursor},
		{First: 10, After: all[28].Cursor}} {
		if page, err := b.Blocks(ctx, q); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("page %+v: got %v and error %v, want error %q", q, cursorsOf(page), err, want)
		}
	}
	if page, err := b.Blocks(ctx, chaingql.BlocksQuery{Last: 10}); err != nil ||
		!slices.Equal(cursorsOf(page), cursorsOf(all[40:])) {
		t.Errorf("page after the gap: got %v and error %v, want %v", cursorsOf(page), err, cursorsOf(all[40:]))
	}
}

// TestAppendRejectsBlocksAfterLostBlocks uses a stream that lost its newest blocks, as may happen if all
// servers lose power. Append must reject later blocks until the lost ones are appended again.
func TestAppendRejectsBlocksAfterLostBlocks(t *testing.T) {
	t.Parallel()
	s := newBroker(t)
	b, all, ctx := open(t, s.ClientURL(), nil), blocks(20), context.Background()
	w := writer(t, b)
	w.CatchUp(100 * time.Millisecond)
	restore := s.appendAndBackUp(w, all[:10], 0, 8)
	for _, left := range []int{8, 0} {
		restore[left]()
		for range 2 {
			if err := w.Append(ctx, all[10:12]...); !errors.Is(err, natschain.ErrConflict) {
				t.Errorf("Append of later blocks, with %d of 10 blocks left: got error %v, want ErrConflict", left, err)
			}
		}
		expectStored(t, b, all[:left])
		if err := w.Append(ctx, all[left:10]...); err != nil {
			t.Errorf("Append of the lost blocks, with %d of 10 blocks left: got error %v, want none", left, err)
		}
	}
	if err := w.Append(ctx, all[10:]...); err != nil {
		t.Error(err)
	}
	expectStored(t, b, all)
}

// replaceStream deletes the block stream and creates it again with the given blocks.
func replaceStream(t *testing.T, url string, blocks []chaingql.Block) {
	t.Helper()
	if err := raw(t, url).DeleteStream(t.Context(), "chain_blocks"); err != nil {
		t.Fatal(err)
	}
	if err := writer(t, open(t, url, nil)).Append(t.Context(), blocks...); err != nil {
		t.Fatal(err)
	}
}
