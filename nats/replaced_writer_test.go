package natschain_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	natschain "github.com/chaingql/chaingql/nats"
	"github.com/nats-io/nats.go"
)

// forked returns copies of blocks with the same cursors and other hashes.
func forked(blocks []chaingql.Block) []chaingql.Block {
	fork := slices.Clone(blocks)
	for i := range fork {
		fork[i].Hash[7]++
	}
	return fork
}

// expectPage reads a page and compares it with want.
func expectPage(t *testing.T, b *natschain.Backend, q chaingql.BlocksQuery, want []chaingql.Block) {
	t.Helper()
	page, err := b.Blocks(t.Context(), q)
	if err != nil || !slices.Equal(page, want) {
		t.Errorf("page %+v: got %v and error %v, want %v", q, cursorsOf(page), err, cursorsOf(want))
	}
}

// TestWriterOfOldChainCannotChangeNewChain deletes the stream, creates it again and appends blocks with the same
// cursors, while a Writer of the old stream remains in use, like a second indexer that nobody has restarted.
func TestWriterOfOldChainCannotChangeNewChain(t *testing.T) {
	for _, size := range []int{0, 50, 100, 150} { // number of blocks in the new chain; the old one has 100
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			s, ctx, old := newBroker(t), t.Context(), uneven(200)
			b, now := open(t, s.ClientURL(), nil), forked(old)
			w := writer(t, b)
			if err := w.Append(ctx, old[:100]...); err != nil {
				t.Fatal(err)
			}
			replaceStream(t, s.ClientURL(), now[:size])
			account := chaingql.Address{ID: [32]byte{1}}
			for _, call := range []struct {
				name string
				do   func() error
			}{
				{"Append of the next block", func() error { return w.Append(ctx, old[100]) }},
				{"Append of the next blocks", func() error { return w.Append(ctx, old[100:120]...) }},
				{"Append of stored blocks", func() error { return w.Append(ctx, old[90:95]...) }},
				{"Append of the next block of the new chain", func() error { return w.Append(ctx, now[size]) }},
				{"SetBalance", func() error { return w.SetBalance(ctx, account, big.NewInt(1)) }},
				{"Prune", func() error { return w.Prune(ctx, old[90].Cursor) }},
			} {
				if err := call.do(); !errors.Is(err, chaingql.ErrChainReplaced) {
					t.Errorf("%s by the Writer of the old chain: got error %v, want ErrChainReplaced", call.name, err)
				}
			}
			host := open(t, s.ClientURL(), nil)
			expectPage(t, host, chaingql.BlocksQuery{First: 1000}, now[:size])
			if nano, err := host.Balance(ctx, account); !errors.Is(err, chaingql.ErrNotFound) {
				t.Errorf("got balance %v and error %v, want ErrNotFound", nano, err)
			}
			if err := writer(t, b).Append(ctx, now[size:200]...); err != nil {
				t.Errorf("Append by a new Writer of the same Backend: got error %v, want none", err)
			}
			expectPage(t, host, chaingql.BlocksQuery{First: 1000}, now)
		})
	}
}

// A heldConn is a connection that can hold back what a client publishes.
type heldConn struct {
	net.Conn
	hold func(data []byte)
}

func (c *heldConn) Write(p []byte) (int, error) {
	c.hold(p)
	return c.Conn.Write(p)
}

type holdingDialer func(data []byte)

func (hold holdingDialer) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	return &heldConn{conn, hold}, err
}

// TestBlockThatWasOnItsWayDuringReplacementIsNotInNewChain replaces the stream while messages of a Writer are on their
// way. When they arrive, the new stream ends at the sequence number that they expect, so the server stores them.
func TestBlockThatWasOnItsWayDuringReplacementIsNotInNewChain(t *testing.T) {
	for name, row := range map[string]struct {
		n    int  // number of blocks on their way
		same bool // whether the new chain has the same blocks
	}{
		"one block": {1, false}, "a batch": {30, false},
		"one block of both chains": {1, true}, "a batch of both": {30, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, ctx, old, n := newBroker(t), t.Context(), uneven(200), row.n
			now := forked(old)
			if row.same {
				now = old
			}
			var armed atomic.Bool
			sent, release := make(chan struct{}), make(chan struct{})
			hold := holdingDialer(func(data []byte) {
				if bytes.Contains(data, []byte("PUB chain.blocks.")) && armed.CompareAndSwap(true, false) {
					close(sent)
					<-release
				}
			})
			w := writer(t, open(t, s.ClientURL(), &natschain.Options{Create: &natschain.Storage{},
				Connect: []nats.Option{nats.SetCustomDialer(hold)}}))
			if err := w.Append(ctx, old[:100]...); err != nil {
				t.Fatal(err)
			}
			armed.Store(true)
			end := make(chan error, 1)
			go func() { end <- w.Append(ctx, old[100:100+n]...) }()
			<-sent
			replaceStream(t, s.ClientURL(), now[:100])
			host := open(t, s.ClientURL(), (&logbook{}).options())
			follower := follow(t, host, now[89].Cursor)
			close(release)
			if err := <-end; err != nil && !errors.Is(err, chaingql.ErrChainReplaced) {
				t.Errorf("Append: got error %v, want none or ErrChainReplaced", err)
			}
			stream, err := raw(t, s.ClientURL()).Stream(ctx, "chain_blocks")
			if err != nil || stream.CachedInfo().State.LastSeq != uint64(100+n) {
				t.Fatalf("the new stream has the state %+v (error %v), want the messages of the old Writer",
					stream.CachedInfo().State, err)
			}
			if err := w.Append(ctx, old[100+n]); !errors.Is(err, chaingql.ErrChainReplaced) {
				t.Errorf("the next Append of the old Writer: got error %v, want ErrChainReplaced", err)
			}
			all := chaingql.BlocksQuery{First: 1000}
			expectPage(t, host, all, now[:100])
			if err := writer(t, open(t, s.ClientURL(), nil)).Append(ctx, now[100:]...); err != nil {
				t.Fatal(err)
			}
			for _, b := range []*natschain.Backend{host, open(t, s.ClientURL(), (&logbook{}).options())} {
				expectPage(t, b, all, now)
				expectPage(t, b, chaingql.BlocksQuery{First: 50, After: now[98].Cursor}, now[99:149])
				expectPage(t, b, chaingql.BlocksQuery{Last: 50, Before: now[110].Cursor}, now[60:110])
			}
			follower.expect(now[90:])
			if got := host.StrayCount(); got != uint64(n) {
				t.Errorf("got StrayCount %d, want %d", got, n)
			}
		})
	}
}

// TestAppendReportsBlockOfOldStreamThatIsNotRecognized stores a block of the old stream in the new one where its epoch
// does not show that it is old. Append must return ErrConflict, so that an operator can start again.
func TestAppendReportsBlockOfOldStreamThatIsNotRecognized(t *testing.T) {
	for name, row := range map[string]struct {
		at    int           // number of blocks in the new stream when the old block arrives
		epoch time.Duration // of the old block, relative to now
	}{"it is the first message": {0, -time.Hour}, "the clock was set back": {10, time.Hour}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, ctx, now := newBroker(t), t.Context(), uneven(60)
			w, prev := writer(t, open(t, s.ClientURL(), nil)), chaingql.Cursor("")
			if row.at > 0 {
				if err := w.Append(ctx, now[:row.at]...); err != nil {
					t.Fatal(err)
				}
				prev = now[row.at-1].Cursor
			}
			old := &forked(now)[row.at]
			payload := fmt.Appendf(nil, `%s,"prev":%q,"epoch":"%d"}`, strings.TrimSuffix(string(payloadOf(old)), "}"),
				prev, time.Now().Add(row.epoch).UnixNano())
			if _, err := raw(t, s.ClientURL()).Publish(ctx, subjectOf(old), payload); err != nil {
				t.Fatal(err)
			}
			for _, w := range []*natschain.Writer{w, writer(t, open(t, s.ClientURL(), nil))} {
				if err := w.Append(ctx, now...); !errors.Is(err, natschain.ErrConflict) {
					t.Errorf("Append: got error %v, want ErrConflict", err)
				}
			}
			replaceStream(t, s.ClientURL(), now)
			expectPage(t, open(t, s.ClientURL(), nil), chaingql.BlocksQuery{First: 100}, now)
		})
	}
}

// TestBlockFromIndexIsNotFollowedByOldStreamsMessage reads a block from the index. The next message was on its way
// while the stream was replaced, and also names that block as its predecessor.
func TestBlockFromIndexIsNotFollowedByOldStreamsMessage(t *testing.T) {
	s, all, ctx := newBroker(t), uneven(1500), context.Background()
	w, js := writer(t, open(t, s.ClientURL(), (&logbook{}).options())), raw(t, s.ClientURL())
	at := 1000 + slices.IndexFunc(all[1000:], func(b chaingql.Block) bool { return b.Workchain == 5 })
	if err := w.Append(ctx, all[:at+1]...); err != nil {
		t.Fatal(err)
	}
	old := forked(all[at+1 : at+2])[0]
	payload := fmt.Appendf(nil, `%s,"prev":%q,"epoch":"1700000000000000000"}`,
		strings.TrimSuffix(string(payloadOf(&old)), "}"), all[at].Cursor)
	if _, err := js.Publish(ctx, subjectOf(&old), payload); err != nil {
		t.Fatal(err)
	}
	if err := w.Append(ctx, all[at+1:]...); err != nil {
		t.Fatal(err)
	}
	b := open(t, s.ClientURL(), (&logbook{}).options())
	five := int32(5)
	fives := chaingql.BlocksQuery{Workchain: &five, Before: all[at+1].Cursor, First: 1000}
	fives.First = len(chaingql.PageOf(all, fives))
	fives.Before = "" // at is then the last block of the page
	expectPages(t, b, all, []chaingql.BlocksQuery{fives})
	expectPage(t, b, chaingql.BlocksQuery{First: 2, After: all[at].Cursor}, all[at+1:at+3])
	for next, err := range b.Follow(ctx, all[at].Cursor) {
		if err != nil || next != all[at+1] {
			t.Errorf("the first block of Follow: got %v and error %v, want %v", next, err, all[at+1])
		}
		break
	}
}

// TestChainContinuesInCopyOfNewerStream appends to a stream whose blocks were copied from a stream that was created
// later. The new blocks must not be taken for blocks of an older chain.
func TestChainContinuesInCopyOfNewerStream(t *testing.T) {
	s, ctx, all := newBroker(t), context.Background(), uneven(60)
	w, js, prev := writer(t, open(t, s.ClientURL(), nil)), raw(t, s.ClientURL()), chaingql.Cursor("")
	for i := range all[:10] {
		all[i].Time = all[i].Time.Truncate(time.Second)
		text := strings.TrimSuffix(string(payloadOf(&all[i])), "}")
		payload := fmt.Appendf(nil, `%s,"prev":%q,"epoch":"%d"}`, text, prev, time.Now().Add(time.Hour).UnixNano())
		if _, err := js.Publish(ctx, subjectOf(&all[i]), payload); err != nil {
			t.Fatal(err)
		}
		prev = all[i].Cursor
	}
	for _, w := range []*natschain.Writer{w, writer(t, open(t, s.ClientURL(), nil))} {
		for _, end := range []int{11, 15, 16, 60} {
			if err := w.Append(ctx, all[:end]...); err != nil {
				t.Fatal(err)
			}
		}
	}
	expectPage(t, open(t, s.ClientURL(), nil), chaingql.BlocksQuery{First: 100}, all)
}
