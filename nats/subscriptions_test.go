package natschain_test

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"testing"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/chaingqltest"
	"github.com/chaingql/chaingql/memchain"
	natschain "github.com/chaingql/chaingql/nats"
)

// TestSearchesDoNotDelayLiveBlocks follows a chain without an index, while 16 searches of clients wait, as many as may
// wait. A workchain then produces its first block for a long time. Before the Handler delivers that block, it reads the
// last blocks of the workchain, which takes a search.
func TestSearchesDoNotDelayLiveBlocks(t *testing.T) {
	blocks := numbered(1, 2001)
	for i := range blocks {
		blocks[i].Workchain = -1
	}
	blocks[9].Workchain, blocks[9].SeqNo = 5, 1
	blocks[2000].Workchain, blocks[2000].SeqNo = 5, 2
	s := newBroker(t)
	open(t, s.ClientURL(), nil)
	publishRun(t, s.ClientURL(), "", blocks[:2000])
	if err := raw(t, s.ClientURL()).DeleteStream(t.Context(), "chain_index"); err != nil {
		t.Fatal(err)
	}
	b := open(t, s.ClientURL(), &natschain.Options{})
	document := fmt.Sprintf("subscription{blocks(after:%q){seq_no}}", blocks[1998].Cursor)
	events := chaingqltest.Subscribe(t, chaingqltest.NewHandler(t, b, nil), document, nil)
	next, stop := iter.Pull2(events)
	defer stop()
	receive := func() {
		if _, err, ok := next(); !ok || err != nil {
			t.Fatalf("received no block: %v", err)
		}
	}
	receive()

	ctx, cancel := context.WithCancel(t.Context())
	var searches sync.WaitGroup
	defer searches.Wait()
	defer cancel()
	end, err := b.Search(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	for range 16 {
		searches.Go(func() {
			if end, err := b.Search(ctx); err == nil {
				end()
			}
		})
	}
	began := time.Now()
	publishRun(t, s.ClientURL(), blocks[1999].Cursor, blocks[2000:])
	receive()
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("the block arrived after %v, want less than 4s", took)
	}
}

// A markedCalls is a Backend that passes the contexts of calls for subscriptions to marked.
type markedCalls struct {
	*memchain.Chain
	marked chan context.Context
}

func (b markedCalls) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	if chaingql.ForSubscriptions(ctx) {
		select {
		case b.marked <- ctx:
		default:
		}
	}
	return b.Chain.Blocks(ctx, q)
}

// forSubscriptions returns a context that marks calls of Blocks as calls for subscriptions.
func forSubscriptions(t *testing.T) context.Context {
	t.Helper()
	b := markedCalls{memchain.New(), make(chan context.Context, 1)}
	if err := b.Append(numbered(1, 1)...); err != nil {
		t.Fatal(err)
	}
	h := chaingqltest.NewHandler(t, b, nil)
	chaingqltest.Take(t, chaingqltest.Subscribe(t, h, `subscription{blocks(after:""){seq_no}}`, nil), 1)
	return context.WithoutCancel(<-b.marked)
}
