package natschain_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	natschain "github.com/chaingql/chaingql/nats"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func TestCursorsBelowPrunedBlocksAreTooOld(t *testing.T) {
	s := newBroker(t)
	b, all, ctx := open(t, s.ClientURL(), nil), blocks(100), context.Background()
	w := writer(t, b)
	if err := w.Append(ctx, all...); err != nil {
		t.Fatal(err)
	}
	for _, before := range []chaingql.Cursor{"", all[0].Cursor, all[40].Cursor, all[40].Cursor, all[10].Cursor} {
		if err := w.Prune(ctx, before); err != nil {
			t.Fatal(err)
		}
	}
	expectStored(t, b, all[40:])
	b.Forget()
	follow := func(c chaingql.Cursor) (chaingql.Cursor, error) {
		for b, err := range b.Follow(ctx, c) {
			return b.Cursor, err
		}
		return "", nil
	}
	for _, too := range []chaingql.Cursor{"", all[0].Cursor, all[38].Cursor} {
		if c, err := follow(too); !errors.Is(err, chaingql.ErrCursorTooOld) {
			t.Errorf("Follow after %q: got block %q and error %v, want ErrCursorTooOld", too, c, err)
		}
	}
	// No block after the newest pruned block is missing.
	if c, err := follow(all[39].Cursor); err != nil || c != all[40].Cursor {
		t.Errorf("Follow after the newest pruned block: got %q and error %v, want %q", c, err, all[40].Cursor)
	}
	if page, err := b.Blocks(ctx, chaingql.BlocksQuery{First: 1, After: all[39].Cursor}); err != nil || len(page) != 1 {
		t.Errorf("page after the newest pruned block: got %v and error %v, want one block", page, err)
	}
	if err := w.Prune(ctx, "ff"); err != nil {
		t.Fatal(err)
	}
	expectStored(t, b, all[99:]) // the newest block remains
	if err := writer(t, b).Append(ctx, all[10:20]...); err != nil {
		t.Errorf("Append of pruned blocks: got error %v, want none", err)
	}
	expectStored(t, b, all[99:])
}

// TestCursorBelowOldestBlockWithoutPrevIsTooOld uses messages that do not name their predecessors. The
// oldest block then does not show whether a block before it was removed.
func TestCursorBelowOldestBlockWithoutPrevIsTooOld(t *testing.T) {
	s := newBroker(t)
	b, all, ctx := open(t, s.ClientURL(), nil), blocks(10), context.Background()
	js := raw(t, s.ClientURL())
	for _, block := range all {
		payload := fmt.Sprintf(`{"cursor":%q,"seq_no":1,"hash":%q,"time":"2023-11-14T22:13:20Z"}`, block.Cursor,
			strings.Repeat("00", 32))
		if _, err := js.Publish(ctx, "chain.blocks.0.8000000000000000", []byte(payload)); err != nil {
			t.Fatal(err)
		}
	}
	stream, err := js.Stream(ctx, "chain_blocks")
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(ctx, jetstream.WithPurgeSequence(6)); err != nil { // removes the first five
		t.Fatal(err)
	}
	for i, want := range []error{3: chaingql.ErrCursorTooOld, 4: chaingql.ErrCursorTooOld, 5: nil} {
		if page, err := b.Blocks(ctx, chaingql.BlocksQuery{First: 3, After: all[i].Cursor}); i >= 3 &&
			(!errors.Is(err, want) || err == nil && len(page) != 3) {
			t.Errorf("page after block %d: got %v and error %v, want error %v", i, cursorsOf(page), err, want)
		}
	}
}

func TestPruneFailsOnStreamWithDenyPurge(t *testing.T) {
	s := newBroker(t)
	ctx := context.Background()
	if _, err := raw(t, s.ClientURL()).CreateStream(ctx, jetstream.StreamConfig{Name: "chain_blocks",
		Subjects: []string{"chain.blocks.>"}, AllowDirect: true, DenyPurge: true}); err != nil {
		t.Fatal(err)
	}
	if err := writer(t, open(t, s.ClientURL(), nil)).Prune(ctx, ""); err == nil ||
		!strings.Contains(err.Error(), "the stream does not allow purging") {
		t.Errorf("Prune: got error %v, want one about deny_purge", err)
	}
}

// NATS before 2.12.10 deletes all messages if it is to delete those before the first one.
func TestPruneOfNothingSendsNoPurgeBeforeTheFirstMessage(t *testing.T) {
	s := newBroker(t)
	ctx := context.Background()
	b := open(t, s.ClientURL(), nil)
	w := writer(t, b)
	all := blocks(20)
	if err := w.Append(ctx, all...); err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	requests, err := nc.SubscribeSync("$JS.API.STREAM.PURGE.>")
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, before := range []chaingql.Cursor{"", all[0].Cursor} {
		if err := w.Prune(ctx, before); err != nil {
			t.Fatal(err)
		}
		m, err := requests.NextMsg(5 * time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(m.Data), `"seq"`) || !strings.Contains(string(m.Data), `"filter"`) {
			t.Errorf("Prune(%q) sent the purge request %s", before, m.Data)
		}
	}
	page, err := b.Blocks(ctx, chaingql.BlocksQuery{First: 50})
	if err != nil || len(page) != len(all) {
		t.Errorf("afterwards, the chain has %d blocks, want %d; error %v", len(page), len(all), err)
	}
}

// TestChainContinuesAfterAllBlocksExpired lets the server delete all blocks, even the newest one, and
// then appends more blocks.
func TestChainContinuesAfterAllBlocksExpired(t *testing.T) {
	s := newBroker(t)
	b, js := open(t, s.ClientURL(), nil), raw(t, s.ClientURL())
	all, ctx := blocks(20), context.Background()
	expire := func(after time.Duration) { // sets MaxAge; 0 means never
		t.Helper()
		stream, err := js.Stream(ctx, "chain_blocks")
		if err != nil {
			t.Fatal(err)
		}
		c := stream.CachedInfo().Config
		c.MaxAge, c.Duplicates = after, 100*time.Millisecond
		if _, err := js.UpdateStream(ctx, c); err != nil {
			t.Fatal(err)
		}
	}
	w := writer(t, b)
	if err := w.Append(ctx, all[:10]...); err != nil {
		t.Fatal(err)
	}
	// A conflict makes the Writer look up the end of the stream.
	if err := w.Append(ctx, chaingql.Block{Cursor: all[9].Cursor}); !errors.Is(err, natschain.ErrConflict) {
		t.Errorf("Append of a different block: got error %v, want ErrConflict", err)
	}
	expire(200 * time.Millisecond)
	for {
		page, err := b.Blocks(ctx, chaingql.BlocksQuery{Last: 1})
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	expire(0)
	known := all[9].Cursor // b has this cursor in its cache
	if page, err := b.Blocks(ctx, chaingql.BlocksQuery{First: 5, After: known}); err != nil || len(page) > 0 {
		t.Errorf("page after the newest block: got %v and error %v, want an empty page", page, err)
	}
	_, err := b.Blocks(ctx, chaingql.BlocksQuery{First: 5, After: all[4].Cursor})
	if !errors.Is(err, chaingql.ErrCursorTooOld) {
		t.Errorf("page after an expired block: got error %v, want ErrCursorTooOld", err)
	}
	b.Forget()
	_, err = b.Blocks(ctx, chaingql.BlocksQuery{First: 5, After: known})
	if !errors.Is(err, chaingql.ErrCursorTooOld) {
		t.Errorf("page after an expired block that is not cached: got error %v, want ErrCursorTooOld", err)
	}
	if err := w.Append(ctx, all[5:]...); err != nil {
		t.Fatal(err)
	}
	expectStored(t, b, all[10:])
}
