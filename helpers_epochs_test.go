package chaingql_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// A noticingBackend notices a new chain only in calls of Blocks and Follow, like an engine that reads the epoch
// together with the blocks. Its calls take random times.
type noticingBackend struct {
	*memchain.Chain
	known atomic.Pointer[string]
}

func newNoticingBackend(chain *memchain.Chain) *noticingBackend {
	b := &noticingBackend{Chain: chain}
	epoch := chain.Epoch()
	b.known.Store(&epoch)
	return b
}

func (b *noticingBackend) Epoch() string { return *b.known.Load() }

func (b *noticingBackend) pause() { time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond) }

// notice returns err, or ErrChainReplaced if the chain is not the one with the epoch that a call began with.
func (b *noticingBackend) notice(began *string, err error) error {
	if now := b.Chain.Epoch(); now != *b.known.Load() {
		b.known.CompareAndSwap(began, &now)
	}
	if b.known.Load() != began {
		return chaingql.ErrChainReplaced
	}
	return err
}

func (b *noticingBackend) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	began := b.known.Load()
	b.pause()
	page, err := b.Chain.Blocks(ctx, q)
	if err = b.notice(began, err); err != nil {
		page = nil
	}
	b.pause()
	return page, err
}

func (b *noticingBackend) Follow(ctx context.Context, after chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	began := b.known.Load()
	return func(yield func(chaingql.Block, error) bool) {
		for block, err := range b.Chain.Follow(ctx, after) {
			if err == nil && block.Hash[0] != 0 && epochName(block.Hash[0]) != *began {
				err = chaingql.ErrChainReplaced
			}
			if errors.Is(err, chaingql.ErrChainReplaced) {
				b.pause() // pages may notice it first
			}
			if !yield(block, b.notice(began, err)) || b.known.Load() != began {
				return
			}
		}
	}
}

// A forgetfulBackend changes its epoch with the chain, but its Blocks never returns ErrChainReplaced: a page may be
// that of a chain that replaced another one while the call waited.
type forgetfulBackend struct{ *memchain.Chain }

func (b forgetfulBackend) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
	page, err := b.Chain.Blocks(ctx, q)
	time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
	return page, err
}

// A replacedBackend calls the function beforeFollow at the start of each call of Follow.
type replacedBackend struct {
	*memchain.Chain
	beforeFollow func()
}

func (b replacedBackend) Follow(ctx context.Context, after chaingql.Cursor) iter.Seq2[chaingql.Block, error] {
	b.beforeFollow()
	return b.Chain.Follow(ctx, after)
}

func epochName(n byte) string { return fmt.Sprint("e", n) }
