package natschain_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	natschain "github.com/chaingql/chaingql/nats"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// numbered returns blocks with the numbers from to to, alternately in workchains 0 and -1.
func numbered(from, to uint64) (blocks []chaingql.Block) {
	for n := from; n <= to; n++ {
		blocks = append(blocks, chaingql.Block{Workchain: int32(n%2) - 1, Shard: 1 << 63, SeqNo: uint32(n),
			Cursor: chaingql.SeqCursor(n), Time: time.Unix(int64(n), 0).UTC()})
	}
	return blocks
}

// publishRun publishes the blocks in run. Each contains the cursor of its predecessor, and the first one contains prev.
func publishRun(t *testing.T, url string, prev chaingql.Cursor, run []chaingql.Block) {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for i := range run {
		text := payloadOf(&run[i])
		m := &nats.Msg{Subject: subjectOf(&run[i]), Data: fmt.Appendf(text[:len(text)-1], `,"prev":%q}`, prev)}
		if prev = run[i].Cursor; i < len(run)-1 {
			err = nc.PublishMsg(m)
		} else {
			_, err = nc.RequestMsg(m, patience)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestStrayMessagesThatFormAChainAreSkipped publishes stray messages after the newest block. Each of them contains the
// cursor of the one before it. They may come from another chain, from an older part of the chain or from an attacker.
func TestStrayMessagesThatFormAChainAreSkipped(t *testing.T) {
	all := numbered(101, 180)
	unlinked, highest := chaingql.Cursor("0999"), chaingql.Block{Shard: 1 << 63, Cursor: "ffffffffffffffff0"}
	above := highest
	above.Cursor += "0"
	for _, row := range []struct {
		name string
		prev chaingql.Cursor
		run  []chaingql.Block
	}{
		{"two with higher cursors than the newest block", unlinked, numbered(5000, 5001)},
		{"two with cursors of later blocks", unlinked, numbered(142, 143)},
		{"two that continue an older block", all[5].Cursor, numbered(142, 143)},
		{"two that continue the block before the newest", all[38].Cursor, numbered(142, 143)},
		{"two that begin a chain", "", numbered(142, 143)},
		{"two with the highest cursors that continue the newest block", all[39].Cursor,
			[]chaingql.Block{highest, above}},
		{"copies of all blocks", "", all[:40]},
		{"a hundred of another chain", unlinked, numbered(5000, 5099)},
		{"a thousand of another chain", unlinked, numbered(5000, 5999)},
		{"fifty with cursors of blocks", unlinked, numbered(90, 139)},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s, ctx := newBroker(t), context.Background()
			b := open(t, s.ClientURL(), (&logbook{}).options())
			w := writer(t, b)
			if err := w.Append(ctx, all[:40]...); err != nil {
				t.Fatal(err)
			}
			live := follow(t, b, "")
			live.expect(all[:40])
			publishRun(t, s.ClientURL(), row.prev, row.run)
			fresh := open(t, s.ClientURL(), (&logbook{}).options())
			expectReads(t, fresh, all[:40])
			expectStored(t, b, all[:40])
			if err := writer(t, fresh).Append(ctx, all[40:60]...); err != nil {
				t.Fatal(err)
			}
			if err := w.Append(ctx, all[60:]...); err != nil {
				t.Fatal(err)
			}
			live.expect(all[40:])
			expectStored(t, b, all)
			expectReads(t, open(t, s.ClientURL(), (&logbook{}).options()), all)
			follow(t, open(t, s.ClientURL(), (&logbook{}).options()), all[20].Cursor).expect(all[21:])
			var listed []uint64
			for m, err := range b.StrayMessages(ctx) {
				if err != nil {
					t.Fatal(err)
				}
				listed = append(listed, m.Seq)
			}
			if len(listed) != len(row.run) || listed[0] != 41 {
				t.Fatalf("StrayMessages: got %d messages from %d on, want %d from 41 on", len(listed),
					listed[:min(len(listed), 1)], len(row.run))
			}
			for _, seq := range listed[:min(len(listed), 3)] {
				if err := b.RemoveStray(ctx, seq); err != nil {
					t.Error(err)
				}
				expectStored(t, open(t, s.ClientURL(), (&logbook{}).options()), all)
			}
			if err := b.RemoveStray(ctx, 40); err == nil {
				t.Error("RemoveStray of a block: got no error, want an error")
			}
		})
	}
}

// TestOldestStrayMessagesThatFormAChainAreSkipped publishes stray messages, each of which contains the cursor of the
// one before it. Then it removes all blocks before them, as MaxAge does.
func TestOldestStrayMessagesThatFormAChainAreSkipped(t *testing.T) {
	all := numbered(101, 180)
	for _, row := range []struct {
		name string
		prev chaingql.Cursor
		run  []chaingql.Block
	}{
		{"two with lower cursors", "0999", numbered(60, 61)},
		{"three with higher cursors", "0999", numbered(500, 502)},
		{"two that continue an older block", all[18].Cursor, numbered(121, 122)},
		{"two with cursors of blocks", "0999", numbered(141, 142)},
		{"copies of ten older blocks", all[18].Cursor, all[19:29]},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s, ctx := newBroker(t), context.Background()
			b := open(t, s.ClientURL(), (&logbook{}).options())
			w := writer(t, b)
			if err := w.Append(ctx, all[:40]...); err != nil {
				t.Fatal(err)
			}
			publishRun(t, s.ClientURL(), row.prev, row.run)
			if err := w.Append(ctx, all[40:60]...); err != nil {
				t.Fatal(err)
			}
			stream, err := raw(t, s.ClientURL()).Stream(ctx, "chain_blocks")
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Purge(ctx, jetstream.WithPurgeSequence(41)); err != nil {
				t.Fatal(err)
			}
			if _, err := raw(t, s.ClientURL()).Publish(ctx, subjectOf(&all[0]), []byte("junk")); err != nil {
				t.Fatal(err)
			}
			publishRun(t, s.ClientURL(), "0999", numbered(900, 902))
			expectReads(t, b, all[40:60])
			fresh := open(t, s.ClientURL(), (&logbook{}).options())
			expectReads(t, fresh, all[40:60])
			if err := writer(t, fresh).Append(ctx, all[60:]...); err != nil {
				t.Error(err)
			}
			expectReads(t, b, all[40:])
		})
	}
}

// TestStrayRunThatIsLongerThanTheChainIsSkipped publishes stray messages that name each other, more than the stream has
// blocks. A Backend that is opened then must not mistake them for the chain.
func TestStrayRunThatIsLongerThanTheChainIsSkipped(t *testing.T) {
	s, ctx, all := newBroker(t), context.Background(), numbered(1001, 1100)
	w := writer(t, open(t, s.ClientURL(), (&logbook{}).options()))
	if err := w.Append(ctx, all[:80]...); err != nil {
		t.Fatal(err)
	}
	if err := w.Prune(ctx, all[60].Cursor); err != nil {
		t.Fatal(err)
	}
	publishRun(t, s.ClientURL(), chaingql.SeqCursor(5000), numbered(5001, 5150))
	fresh := open(t, s.ClientURL(), (&logbook{}).options())
	expectReads(t, fresh, all[60:80])
	for m, err := range fresh.StrayMessages(ctx) {
		if err != nil || m.Seq <= 80 {
			t.Fatalf("StrayMessages: got message %d and error %v, want only messages after 80", m.Seq, err)
		}
	}
	if err := writer(t, fresh).Append(ctx, all[80:90]...); err != nil {
		t.Fatal(err)
	}
	expectReads(t, open(t, s.ClientURL(), (&logbook{}).options()), all[60:90])
	stream, err := raw(t, s.ClientURL()).Stream(ctx, "chain_blocks")
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(ctx, jetstream.WithPurgeSequence(81)); err != nil { // the strays are the oldest messages
		t.Fatal(err)
	}
	fresh = open(t, s.ClientURL(), (&logbook{}).options())
	if err := writer(t, fresh).Append(ctx, all[90:]...); err != nil {
		t.Fatal(err)
	}
	expectReads(t, fresh, all[80:])
}

// TestManyStrayMessagesAreSkipped publishes more stray messages after the newest block than a survey covers, and then
// more blocks.
func TestManyStrayMessagesAreSkipped(t *testing.T) {
	t.Parallel()
	const junk = 17_000
	s, ctx, all := newBroker(t), context.Background(), numbered(1, 600)
	book := &logbook{}
	opts := book.options()
	opts.Timeout = time.Minute // a read must pass all stray messages
	b := open(t, s.ClientURL(), opts)
	w := writer(t, b)
	if err := w.Append(ctx, all[:300]...); err != nil {
		t.Fatal(err)
	}
	js := raw(t, s.ClientURL())
	for i := range junk {
		if _, err := js.PublishAsync("chain.blocks.readme", []byte("hello")); err != nil {
			t.Fatal(err)
		}
		if i%1000 == 999 {
			<-js.PublishAsyncComplete()
		}
	}
	expectReads(t, b, all[:300])
	if n := b.StrayCount(); n != junk {
		t.Errorf("got StrayCount %d, want %d", n, junk)
	}
	if lines := strings.Count(book.String(), "\n"); lines > 20 {
		t.Errorf("got %d log lines for %d stray messages, want at most 20", lines, junk)
	}
	if err := w.Append(ctx, all[300:500]...); err != nil {
		t.Fatal(err)
	}
	opts.Logger = slog.New(slog.DiscardHandler)
	fresh := open(t, s.ClientURL(), opts)
	if err := writer(t, fresh).Append(ctx, all[500:]...); err != nil {
		t.Error(err)
	}
	expectReads(t, fresh, all)
	expectReads(t, b, all)
	if err := writer(t, fresh).Prune(ctx, all[100].Cursor); err != nil {
		t.Error(err)
	}
	expectReads(t, b, all[100:])
}

// TestBlockWithNonCanonicalSubjectIsSkipped publishes blocks whose subjects contain the shard in another form than the
// one that a Writer uses. They must not count as blocks, because reads by subject would not find them.
func TestBlockWithNonCanonicalSubjectIsSkipped(t *testing.T) {
	s, ctx := newBroker(t), context.Background()
	book := &logbook{}
	b := open(t, s.ClientURL(), book.options())
	all := numbered(1, 20)
	for i := range all {
		all[i].Workchain, all[i].Shard = 0, 0xA000000000000000
	}
	w := writer(t, b)
	if err := w.Append(ctx, all[:10]...); err != nil {
		t.Fatal(err)
	}
	text := payloadOf(&all[10])
	text = fmt.Appendf(text[:len(text)-1], `,"prev":%q}`, all[9].Cursor)
	for _, shard := range []string{
		"0.A000000000000000", "+0.a000000000000000", "000.a000000000000000", "-0.a000000000000000",
	} {
		if _, err := raw(t, s.ClientURL()).Publish(ctx, "chain.blocks."+shard, text); err != nil {
			t.Fatal(err)
		}
	}
	long := `{"cursor":"00","seq_no":` + strings.Repeat("9", 100_000) + `}`
	if _, err := raw(t, s.ClientURL()).Publish(ctx, subjectOf(&all[0]), []byte(long)); err != nil {
		t.Fatal(err)
	}
	expectStored(t, b, all[:10])
	if err := w.Append(ctx, all[10:]...); err != nil {
		t.Error(err)
	}
	shard := all[0].Shard
	page, err := b.Blocks(ctx, chaingql.BlocksQuery{Last: 50, Shard: &shard})
	if err != nil || !slices.Equal(page, all) {
		t.Errorf("page of the shard: got %v and error %v, want %v", cursorsOf(page), err, cursorsOf(all))
	}
	if n := b.StrayCount(); n != 5 {
		t.Errorf("got StrayCount %d, want 5", n)
	}
	if n := len(book.String()); n > 5000 {
		t.Errorf("the log of five stray messages has %d bytes, want at most 5000", n)
	}
}

// TestAppendAfterBlockLossLeavesNoGap uses a Writer whose chain lost its newest blocks, or all blocks.
// Append must reject blocks that would leave a gap.
func TestAppendAfterBlockLossLeavesNoGap(t *testing.T) {
	t.Parallel()
	s, ctx, all := newBroker(t), context.Background(), numbered(1, 20)
	b := open(t, s.ClientURL(), nil)
	w := writer(t, b)
	w.CatchUp(100 * time.Millisecond)
	restore := s.appendAndBackUp(w, all[:10], 0, 5)
	for _, left := range []int{5, 0} {
		restore[left]()
		if left > 0 {
			if err := w.Append(ctx, all[:left]...); err != nil { // all of them are stored
				t.Error(err)
			}
		}
		for _, from := range []int{left + 1, 8, 10} {
			if err := w.Append(ctx, all[from:12]...); !errors.Is(err, natschain.ErrConflict) {
				t.Errorf("Append from block %d on, with %d of 10 blocks left: got error %v, want ErrConflict", from+1,
					left, err)
			}
		}
		expectStored(t, b, all[:left])
		if err := w.Append(ctx, all[max(0, left-2):10]...); err != nil {
			t.Error(err)
		}
	}
	if err := w.Append(ctx, all[8:]...); err != nil {
		t.Error(err)
	}
	expectStored(t, b, all)
}
