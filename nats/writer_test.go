package natschain_test

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/backendtest"
	"github.com/chaingql/chaingql/internal/testkit"
	natschain "github.com/chaingql/chaingql/nats"
	"github.com/nats-io/nats.go/jetstream"
)

func blocks(n int) []chaingql.Block { return backendtest.Chain(n, 1) }

func cursorsOf(blocks []chaingql.Block) []chaingql.Cursor {
	cursors := make([]chaingql.Cursor, len(blocks))
	for i, b := range blocks {
		cursors[i] = b.Cursor
	}
	return cursors
}

// expectStored reads the whole chain, page by page, and compares it with want.
func expectStored(t testing.TB, b chaingql.Backend, want []chaingql.Block) {
	t.Helper()
	var got []chaingql.Cursor
	var q = chaingql.BlocksQuery{First: chaingql.MaxPage}
	for {
		page, err := b.Blocks(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, cursorsOf(page)...)
		if len(page) < chaingql.MaxPage {
			break
		}
		q.After = page[len(page)-1].Cursor
	}
	if wanted := cursorsOf(want); !slices.Equal(got, wanted) {
		t.Errorf("stored blocks: %s", difference(got, wanted))
	}
}

// difference describes the first difference between two lists of cursors.
func difference(got, want []chaingql.Cursor) string {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Sprintf("got %q at index %d of %d, want %q", got[i], i, len(want), want[i])
		}
	}
	return fmt.Sprintf("got %d blocks, want %d", len(got), len(want))
}

func TestRepeatedAppendChangesNothing(t *testing.T) {
	// The server still remembers the message IDs (window 0: its default), or has forgotten them.
	for _, window := range []time.Duration{0, 100 * time.Millisecond} {
		s := newBroker(t)
		b := open(t, s.ClientURL(), &natschain.Options{Create: &natschain.Storage{Duplicates: window}})
		all, ctx := blocks(3000), context.Background()
		if err := writer(t, b).Append(ctx, all[:2000]...); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * window)
		w := writer(t, b)
		for _, again := range [][]chaingql.Block{all[:2000], all[500:700], all[1999:2000], all[1000:2500], all, all} {
			if err := w.Append(ctx, again...); err != nil {
				t.Fatal(err)
			}
		}
		expectStored(t, b, all)
	}
}

// TestAppendedBlocksHaveMessageIDs checks that the server recognizes a duplicate of an appended block by
// its message ID, even if a program in another language publishes it.
func TestAppendedBlocksHaveMessageIDs(t *testing.T) {
	s := newBroker(t)
	b, all, ctx := open(t, s.ClientURL(), nil), blocks(3), context.Background()
	w := writer(t, b)
	if err := w.Append(ctx, all...); err != nil {
		t.Fatal(err)
	}
	ack, err := raw(t, s.ClientURL()).Publish(ctx, "chain.blocks.0.8000000000000000", nil,
		jetstream.WithMsgID(fmt.Sprintf("%s.%x.%s", all[1].Cursor, all[1].Hash[:8], b.Epoch())))
	if err != nil || !ack.Duplicate || ack.Sequence != 2 {
		t.Errorf("Publish with the ID of message 2: got %+v and error %v, want a duplicate of message 2", ack, err)
	}
}

func TestAppendRejectsConflictingAndUnorderedBlocks(t *testing.T) {
	s := newBroker(t)
	b := open(t, s.ClientURL(), nil)
	w, all, ctx := writer(t, b), blocks(20), context.Background()
	if err := w.Append(ctx, slices.Concat(all[:5], all[6:10])...); err != nil {
		t.Fatal(err)
	}
	changed := func(change func(*chaingql.Block)) []chaingql.Block {
		b := all[3]
		change(&b)
		return []chaingql.Block{all[2], b, all[4]}
	}
	for _, row := range []struct {
		name   string
		blocks []chaingql.Block
		want   error
	}{
		{"a block before the newest", all[5:6], natschain.ErrConflict},
		{"a block before the newest, among stored ones", all[4:8], natschain.ErrConflict},
		{"another hash", changed(func(b *chaingql.Block) { b.Hash[0]++ }), natschain.ErrConflict},
		{"another seq_no", changed(func(b *chaingql.Block) { b.SeqNo++ }), natschain.ErrConflict},
		{"another time", changed(func(b *chaingql.Block) { b.Time = b.Time.Add(1) }), natschain.ErrConflict},
		{"another shard", changed(func(b *chaingql.Block) { b.Shard ^= 1 << 62 }), natschain.ErrConflict},
		{"an invalid cursor", []chaingql.Block{{Cursor: "an invalid cursor!"}}, chaingql.ErrBadCursor},
		{"an empty cursor", []chaingql.Block{{}}, chaingql.ErrBadCursor},
		{"the same block twice", []chaingql.Block{all[12], all[12]}, nil},
		{"descending cursors", []chaingql.Block{all[12], all[11]}, nil},
	} {
		for _, w := range []*natschain.Writer{w, writer(t, b)} {
			if err := w.Append(ctx, row.blocks...); err == nil || row.want != nil && !errors.Is(err, row.want) {
				t.Errorf("Append of %s: got error %v, want %v (nil means any error)", row.name, err, row.want)
			}
		}
	}
	if err := w.Append(ctx, all[6:]...); err != nil {
		t.Fatal(err)
	}
	expectStored(t, b, slices.Delete(slices.Clone(all), 5, 6))
}

// TestConcurrentWritersStoreEachBlockOnce lets several Writers append the same chain at different rates.
// Each block must be stored once and in order.
func TestConcurrentWritersStoreEachBlockOnce(t *testing.T) {
	s := newBroker(t)
	all, ctx := blocks(600), context.Background()
	var writing sync.WaitGroup
	for i := range 4 {
		w := writer(t, open(t, s.ClientURL(), nil))
		writing.Go(func() {
			for n := 0; n < len(all); {
				step := min(1+(n*7+i*13)%40, len(all)-n)
				if err := w.Append(ctx, all[n:n+step]...); err != nil {
					t.Error(err)
					return
				}
				n += step
			}
		})
	}
	writing.Wait()
	expectStored(t, open(t, s.ClientURL(), nil), all)
}

// TestWritersOfDifferentChainsConflict lets two Writers append different chains. One Writer must succeed
// and the other one must receive ErrConflict.
func TestWritersOfDifferentChainsConflict(t *testing.T) {
	s := newBroker(t)
	ctx := context.Background()
	chains := [][]chaingql.Block{backendtest.Chain(600, 1), backendtest.Chain(600, 2)}
	errs := make([]error, 2)
	var writing sync.WaitGroup
	for i, chain := range chains {
		w := writer(t, open(t, s.ClientURL(), nil))
		writing.Go(func() {
			for n := 0; n < len(chain) && errs[i] == nil; n += 20 {
				errs[i] = w.Append(ctx, chain[n:n+20]...)
			}
		})
	}
	writing.Wait()
	won := slices.Index(errs, nil)
	if won < 0 || !errors.Is(errs[1-won], natschain.ErrConflict) {
		t.Fatalf("Append by two Writers: got errors %v, want nil and ErrConflict", errs)
	}
	b := open(t, s.ClientURL(), nil)
	page, err := b.Blocks(ctx, chaingql.BlocksQuery{First: chaingql.MaxPage})
	if err != nil {
		t.Fatal(err)
	}
	if got := cursorsOf(page); !slices.IsSorted(got) || len(slices.Compact(got)) != len(page) {
		t.Errorf("cursors of the stored blocks do not ascend: %v", got)
	}
}

// TestAppendRejectsAllBlocksAfterConflict lets another Writer append one block where the first Writer
// wants to continue. Append must then store none of the first Writer's blocks, although only the first
// one of them conflicts.
func TestAppendRejectsAllBlocksAfterConflict(t *testing.T) {
	s := newBroker(t)
	ctx, all := context.Background(), blocks(60)
	fork := slices.Clone(all[30:31])
	fork[0].Hash[0]++
	for _, row := range []struct {
		name   string
		theirs []chaingql.Block
	}{
		{"a later block", all[50:51]},
		{"a different block with the same cursor", fork},
	} {
		opts := &natschain.Options{Chain: fmt.Sprint("c", row.theirs[0].Hash[0]), Create: &natschain.Storage{}}
		b := open(t, s.ClientURL(), opts)
		w := writer(t, b)
		if err := w.Append(ctx, all[:30]...); err != nil {
			t.Fatal(err)
		}
		if err := writer(t, open(t, s.ClientURL(), opts)).Append(ctx, row.theirs...); err != nil {
			t.Fatal(err)
		}
		if err := w.Append(ctx, all[30:50]...); !errors.Is(err, natschain.ErrConflict) {
			t.Errorf("Append after %s of another Writer: got error %v, want ErrConflict", row.name, err)
		}
		expectStored(t, b, slices.Concat(all[:30], row.theirs))
	}
}

// TestAppendSurvivesLostAcknowledgements repeatedly cuts the connection while a Writer has hundreds of
// messages in flight. Each block must be stored once.
func TestAppendSurvivesLostAcknowledgements(t *testing.T) {
	t.Parallel()
	s := newBroker(t)
	p := testkit.NewProxy(t, fmt.Sprintf("127.0.0.1:%d", s.port()))
	b := open(t, fmt.Sprintf("nats://127.0.0.1:%d", p.Port()), nil)
	w, all, ctx := writer(t, b), blocks(200_000), context.Background()
	var cutting sync.WaitGroup
	over := make(chan struct{})
	cutting.Go(func() {
		defer close(over)
		for i := range 8 {
			for !b.Connected() {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(time.Duration(5+3*i) * time.Millisecond)
			p.Cut()
		}
	})
	n := 0
	for cut := false; !cut && n < len(all); n += 500 {
		if err := w.Append(ctx, all[n:n+500]...); err != nil {
			t.Error(err)
			break
		}
		select {
		case <-over:
			cut = true
		default:
		}
	}
	cutting.Wait()
	expectStored(t, open(t, s.ClientURL(), nil), all[:n])
}

// TestBlocksAndBalancesOfOtherProgramsAreRead publishes messages without a Writer.
func TestBlocksAndBalancesOfOtherProgramsAreRead(t *testing.T) {
	s := newBroker(t)
	book := &logbook{}
	b, ctx := open(t, s.ClientURL(), book.options()), context.Background()
	js := raw(t, s.ClientURL())
	put := func(subject, payload string) {
		t.Helper()
		if _, err := js.Publish(ctx, subject, []byte(payload)); err != nil {
			t.Fatal(err)
		}
	}
	put("chain.blocks.-1.8000000000000000", `{"cursor":"01m","seq_no":1,"hash":"`+
		strings.Repeat("AB", 32)+`","time":"2023-11-14T23:13:20.5+01:00","more":true}`)
	put("chain.blocks.0.4000000000000000",
		`{"cursor":"0201","prev":"01m","seq_no":7,"hash":"`+strings.Repeat("01", 32)+`","time":"2023-11-14T22:13:20Z"}`)
	put("$KV.chain_balances.-1_"+strings.Repeat("0f", 32), "123456789012345678901234567890")
	hash := func(digit byte) (h chaingql.Hash) {
		for i := range h {
			h[i] = digit
		}
		return h
	}
	want := []chaingql.Block{
		{Workchain: -1, Shard: 1 << 63, SeqNo: 1, Hash: hash(0xab),
			Time: time.Date(2023, 11, 14, 22, 13, 20, 5e8, time.UTC), Cursor: "01m"},
		{Workchain: 0, Shard: 1 << 62, SeqNo: 7, Hash: hash(1), Time: time.Date(2023, 11, 14, 22, 13, 20, 0, time.UTC),
			Cursor: "0201"},
	}
	if got, err := b.Blocks(ctx, chaingql.BlocksQuery{Last: 5}); err != nil || !slices.Equal(got, want) {
		t.Errorf("got blocks %v and error %v, want %v", got, err, want)
	}
	if got, err := b.Balance(ctx, chaingql.Address{Workchain: -1, ID: hash(0x0f)}); err != nil ||
		got.String() != "123456789012345678901234567890" {
		t.Errorf("got balance %v and error %v, want 123456789012345678901234567890", got, err)
	}
	for i, wrong := range []struct{ subject, payload, want string }{
		{"chain.blocks.0.4000000000000000", `no json`, "invalid character"},
		{"chain.blocks.0.4000000000000000", `{"cursor":"0202","hash":"01"}`, "does not have 64 hex digits"},
		{"chain.blocks.0.4000000000000000", `{"cursor":"","hash":"01"}`, "is malformed"},
		{"chain.blocks.base.4000000000000000", `{"cursor":"0202","hash":"` + strings.Repeat("01", 32) + `"}`,
			"does not end in a workchain and a shard"},
		{"chain.blocks.0.4", `{"cursor":"0202","hash":"` + strings.Repeat("01", 32) + `"}`,
			"does not end in a workchain and a shard"},
	} {
		put(wrong.subject, wrong.payload)
		if got, err := b.Blocks(ctx, chaingql.BlocksQuery{Last: 1}); err != nil || !slices.Equal(got, want[1:]) {
			t.Errorf("after stray message %d: got newest block %v and error %v, want %v", i, got, err, want[1:])
		}
		if !strings.Contains(book.String(), wrong.want) {
			t.Errorf("stray message %d: got log %s, want a line that contains %q", i, book, wrong.want)
		}
	}
	put("$KV.chain_balances.0_"+strings.Repeat("0f", 32), "12.5")
	if _, err := b.Balance(ctx, chaingql.Address{ID: hash(0x0f)}); err == nil ||
		!strings.Contains(err.Error(), "is not a non-negative integer") {
		t.Errorf("Balance of 12.5: got error %v, want one that says that it is not an integer", err)
	}
	put("$KV.chain_balances.0_"+strings.Repeat("0f", 32), strings.Repeat("9", 500_000))
	if _, err := b.Balance(ctx, chaingql.Address{ID: hash(0x0f)}); err == nil || len(err.Error()) > 300 {
		t.Errorf("Balance with half a million digits: got error %.400v, want one of at most 300 bytes", err)
	}
}

func TestBalanceOfDeletedAccountIsNotFound(t *testing.T) {
	s := newBroker(t)
	b, ctx := open(t, s.ClientURL(), nil), context.Background()
	addr := chaingql.Address{ID: [32]byte{1}}
	if err := writer(t, b).SetBalance(ctx, addr, big.NewInt(7)); err != nil {
		t.Fatal(err)
	}
	kv, err := raw(t, s.ClientURL()).KeyValue(ctx, "chain_balances")
	if err != nil {
		t.Fatal(err)
	}
	if err := kv.Delete(ctx, "0_01"+strings.Repeat("00", 31)); err != nil {
		t.Fatal(err)
	}
	if nano, err := b.Balance(ctx, addr); !errors.Is(err, chaingql.ErrNotFound) {
		t.Errorf("Balance of a deleted account: got %v and error %v, want ErrNotFound", nano, err)
	}
}

func TestSetBalanceRejectsNilAndNegativeBalances(t *testing.T) {
	w := writer(t, open(t, newBroker(t).ClientURL(), nil))
	for _, nano := range []*big.Int{nil, big.NewInt(-1)} {
		if err := w.SetBalance(context.Background(), chaingql.Address{}, nano); err == nil ||
			!strings.Contains(err.Error(), "is not a non-negative integer") {
			t.Errorf("SetBalance to %v: got error %v, want one about a non-negative integer", nano, err)
		}
	}
}
