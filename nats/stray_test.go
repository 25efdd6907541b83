package natschain_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/internal/testkit"
	natschain "github.com/chaingql/chaingql/nats"
	"github.com/nats-io/nats.go/jetstream"
)

// A logbook collects the log lines of a Backend.
type logbook struct{ testkit.Buffer }

func (l *logbook) options() *natschain.Options {
	return &natschain.Options{Create: &natschain.Storage{}, Logger: slog.New(slog.NewTextHandler(l, nil))}
}

// strayMessages returns stray messages that another program may publish after the block all[at]. Each
// has a name, a subject and a payload.
func strayMessages(all []chaingql.Block, at int) map[string][2]string {
	block := func(b chaingql.Block, prev any) string {
		text := payloadOf(&b)
		if prev == nil {
			return string(text)
		}
		return string(text[:len(text)-1]) + fmt.Sprintf(`,"prev":%q}`, prev)
	}
	subject := subjectOf(&all[at])
	highest := all[at]
	highest.Cursor = "fffffffffffffffff"
	high := all[at]
	high.Cursor = chaingql.ChainOrder(-1, 1<<63, 1<<31, 0)
	odd := all[at]
	odd.Cursor = "mm-mm"
	return map[string][2]string{
		"a payload that is not JSON":         {subject, "hello"},
		"an empty payload":                   {subject, ""},
		"half a block":                       {subject, block(all[at+1], nil)[:40]},
		"no shard in the subject":            {"chain.blocks.readme", block(all[at+1], all[at].Cursor)},
		"no number in the subject":           {"chain.blocks.base.8000000000000000", "{}"},
		"an old block":                       {subjectOf(&all[3]), block(all[3], all[2].Cursor)},
		"an old block without prev":          {subjectOf(&all[3]), block(all[3], nil)},
		"a copy of the newest block":         {subject, block(all[at], all[max(0, at-1)].Cursor)},
		"a later block":                      {subjectOf(&all[at+5]), block(all[at+5], all[at+4].Cursor)},
		"a later block without prev":         {subjectOf(&all[at+5]), block(all[at+5], nil)},
		"the first block of another chain":   {subject, block(all[at+1], "")},
		"a cursor that is much too high":     {subject, block(high, nil)},
		"a cursor much too high, right prev": {subject, block(high, all[at].Cursor)},
		"the highest cursor":                 {subject, block(highest, nil)},
		"the highest cursor, right prev":     {subject, block(highest, all[at].Cursor)},
		"a cursor without a number":          {subject, block(odd, all[at].Cursor)},
		"a cursor with a forbidden character": {subject,
			`{"cursor":"\u0000","hash":"` + strings.Repeat("00", 32) + `"}`},
		"a block with an invalid seq_no": {subject,
			strings.Replace(block(all[at+1], all[at].Cursor), `"seq_no":`, `"seq_no":-`, 1)},
	}
}

// TestStrayMessageIsSkipped publishes a stray message near the beginning, in the middle and at the end
// of a chain. Open, Blocks, Follow and Append must ignore it, and the log must contain its sequence
// number.
func TestStrayMessageIsSkipped(t *testing.T) {
	all := blocks(120)
	for name := range strayMessages(all, 40) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, ctx := newBroker(t), context.Background()
			book := &logbook{}
			b, js := open(t, s.ClientURL(), book.options()), raw(t, s.ClientURL())
			w := writer(t, b)
			live := follow(t, b, "")
			stored := 0
			for i, at := range []int{1, 40, 80} {
				if err := w.Append(ctx, all[stored:at+1]...); err != nil {
					t.Fatal(err)
				}
				live.expect(all[stored : at+1])
				stored = at + 1
				stray := strayMessages(all, at)[name]
				ack, err := js.Publish(ctx, stray[0], []byte(stray[1]))
				if err != nil {
					t.Fatal(err)
				}
				quiet := &natschain.Options{Logger: slog.New(slog.DiscardHandler)}
				fresh := open(t, s.ClientURL(), quiet)
				expectReads(t, fresh, all[:stored])
				expectReads(t, b, all[:stored])
				if want := fmt.Sprintf("seq=%d ", ack.Sequence); !strings.Contains(book.String(), want) {
					t.Errorf("got log %s, want a line about message %d", book, ack.Sequence)
				}
				if n := b.StrayCount(); n != uint64(i+1) {
					t.Errorf("got StrayCount %d, want %d", n, i+1)
				}
				if i == 1 { // a Writer that has not seen the stream before
					w = writer(t, fresh)
				}
			}
			if err := w.Append(ctx, all[stored-10:]...); err != nil {
				t.Fatal(err)
			}
			live.expect(all[stored:])
			fresh := open(t, s.ClientURL(), nil)
			expectReads(t, fresh, all)
			for _, from := range []int{0, 1, 2, 39, 40, 41, 79, 80, 81, 100} {
				follow(t, fresh, all[from].Cursor).expect(all[from+1:])
			}
		})
	}
}

// expectReads reads pages of all kinds from b, with and without cached cursors, and compares them with
// the same pages of want.
func expectReads(t *testing.T, b *natschain.Backend, want []chaingql.Block) {
	t.Helper()
	expectStored(t, b, want)
	for _, at := range []int{1, len(want) / 2} {
		block := want[at]
		got, err := b.BlockBySeqNo(context.Background(), block.Workchain, block.Shard, block.SeqNo)
		if err != nil || got != block {
			t.Errorf("block %d of workchain %d: got %v and error %v, want %v",
				block.SeqNo, block.Workchain, got, err, block)
		}
	}
	base, master := int32(0), int32(-1)
	queries := []chaingql.BlocksQuery{
		{Last: 1}, {Last: 5}, {First: 3}, {Last: len(want)},
		{Workchain: &master, Last: 1}, {Workchain: &base, Last: 4}, {Workchain: &base, Last: 50},
		{Workchain: &master, First: 50},
	}
	for _, at := range []int{1, len(want) / 2, len(want) - 1} {
		queries = append(queries,
			chaingql.BlocksQuery{First: 5, After: want[at].Cursor},
			chaingql.BlocksQuery{Last: 5, Before: want[at].Cursor},
			chaingql.BlocksQuery{Last: 1, Before: want[at].Cursor},
			chaingql.BlocksQuery{Workchain: &base, First: 4, After: want[at].Cursor},
			chaingql.BlocksQuery{Workchain: &master, Last: 4, Before: want[at].Cursor},
		)
	}
	for _, cold := range []bool{false, true} {
		for _, q := range queries {
			if cold {
				b.Forget()
			}
			page, err := b.Blocks(context.Background(), q)
			if due := chaingql.PageOf(want, q); err != nil || !slices.Equal(cursorsOf(page), cursorsOf(due)) {
				t.Errorf("page %+v of a chain of %d blocks: got %v and error %v, want %v", q, len(want),
					cursorsOf(page), err, cursorsOf(due))
				return
			}
		}
	}
}

// TestStrayMessagesAreListedAndRemoved publishes stray messages of each kind among the blocks. After
// StrayMessages has listed them and RemoveStray has removed them, reads and Writers must still work.
func TestStrayMessagesAreListedAndRemoved(t *testing.T) {
	t.Parallel()
	s, ctx, all := newBroker(t), context.Background(), blocks(120)
	b, js := open(t, s.ClientURL(), (&logbook{}).options()), raw(t, s.ClientURL())
	w := writer(t, b)
	left := map[uint64]bool{}
	leave := func(at int) {
		for _, m := range strayMessages(all, at) {
			ack, err := js.Publish(ctx, m[0], []byte(m[1]))
			if err != nil {
				t.Fatal(err)
			}
			left[ack.Sequence] = true
		}
	}
	for at := 20; at <= 100; at += 20 {
		if err := w.Append(ctx, all[:at+1]...); err != nil {
			t.Fatal(err)
		}
		leave(at)
		expectReads(t, open(t, s.ClientURL(), (&logbook{}).options()), all[:at+1])
	}
	live := follow(t, b, all[50].Cursor)
	live.expect(all[51:101])
	if err := b.RemoveStray(ctx, 174); err == nil || !strings.Contains(err.Error(), "append a block first") {
		t.Errorf("RemoveStray of the newest message: got error %v, want one that says to append a block first", err)
	}
	if err := w.Append(ctx, all[:105]...); err != nil {
		t.Fatal(err)
	}
	if err := b.RemoveStray(ctx, 7); err == nil ||
		!strings.Contains(err.Error(), "cannot remove message 7 of the stream, because it is a block") {
		t.Errorf("RemoveStray of a block: got error %v, want one that says that it is a block", err)
	}
	listed := map[uint64]bool{}
	for m, err := range b.StrayMessages(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if m.Reason == nil || listed[m.Seq] {
			t.Errorf("stray message %d has no reason or is listed twice: got reason %v", m.Seq, m.Reason)
		}
		listed[m.Seq] = true
		if err := b.RemoveStray(ctx, m.Seq); err != nil {
			t.Error(err)
		}
	}
	for seq := range left {
		if !listed[seq] {
			t.Errorf("StrayMessages does not list message %d", seq)
		}
	}
	if len(listed) != len(left) {
		t.Errorf("StrayMessages: got %d messages, want %d", len(listed), len(left))
	}
	for m := range b.StrayMessages(ctx) {
		t.Errorf("stray message %d still exists after RemoveStray", m.Seq)
	}
	fresh := open(t, s.ClientURL(), nil) // gaps of removed strays are not an error
	expectReads(t, fresh, all[:105])
	expectReads(t, b, all[:105])
	if err := writer(t, fresh).Append(ctx, all[90:110]...); err != nil {
		t.Error(err)
	}
	if err := w.Append(ctx, all[100:]...); err != nil {
		t.Error(err)
	}
	live.expect(all[101:])
	follow(t, fresh, "").expect(all)
	expectReads(t, fresh, all)
}

// TestRemoveStrayWithDenyDeleteNeedsUniqueSubject uses a stream with deny_delete. RemoveStray must purge
// a stray message if no earlier message has its subject. Otherwise the message remains and is skipped.
func TestRemoveStrayWithDenyDeleteNeedsUniqueSubject(t *testing.T) {
	s, ctx, all := newBroker(t), context.Background(), blocks(60)
	js := raw(t, s.ClientURL())
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "chain_blocks", Subjects: []string{"chain.blocks.>"},
		AllowDirect: true, DenyDelete: true}); err != nil {
		t.Fatal(err)
	}
	b := open(t, s.ClientURL(), (&logbook{}).options())
	if err := writer(t, b).Append(ctx, all[:30]...); err != nil {
		t.Fatal(err)
	}
	for _, subject := range []string{"chain.blocks.readme", subjectOf(&all[29])} {
		if _, err := js.Publish(ctx, subject, []byte("hello")); err != nil {
			t.Fatal(err)
		}
	}
	if err := writer(t, b).Append(ctx, all[30:40]...); err != nil {
		t.Error(err)
	}
	if err := b.RemoveStray(ctx, 31); err != nil {
		t.Error(err)
	}
	if err := b.RemoveStray(ctx, 32); err == nil || !strings.Contains(err.Error(), "the stream has deny_delete") {
		t.Errorf("RemoveStray of message 32: got error %v, want one about deny_delete", err)
	}
	if err := writer(t, b).Append(ctx, all...); err != nil {
		t.Error(err)
	}
	expectReads(t, open(t, s.ClientURL(), (&logbook{}).options()), all)
}

// TestAppendRejectsCursorFarAbovePredecessor appends cursors at the maximum distance from their
// predecessors, which are accepted, and cursors beyond it.
func TestAppendRejectsCursorFarAbovePredecessor(t *testing.T) {
	b, ctx := open(t, newBroker(t).ClientURL(), nil), context.Background()
	w := writer(t, b)
	block := func(n uint64) chaingql.Block {
		return chaingql.Block{Shard: 1 << 63, Cursor: chaingql.SeqCursor(n), Time: time.Unix(1, 0).UTC()}
	}
	const far = 1 << 24
	chain := []chaingql.Block{block(1), block(1 + far), block(1 << 40), block(1<<40 + 1<<36)}
	if err := w.Append(ctx, chain[:2]...); err != nil {
		t.Error(err)
	}
	for _, blocks := range [][]chaingql.Block{chain[2:3], {block(3 + 2*far)}, {block(2 + far), chain[2]}} {
		if err := w.Append(ctx, blocks...); err == nil || !strings.Contains(err.Error(), "is too far above") {
			t.Errorf("Append of %v: got error %v, want one about the distance of a cursor", cursorsOf(blocks), err)
		}
	}
	expectStored(t, b, chain[:2])
	late := open(t, newBroker(t).ClientURL(), nil)
	if err := writer(t, late).Append(ctx, chain[2:]...); err != nil {
		t.Error(err)
	}
	expectStored(t, late, chain[2:])
}
