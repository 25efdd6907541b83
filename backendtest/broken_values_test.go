package backendtest

import (
	"context"
	"errors"
	"maps"
	"math/big"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// repeatNewest breaks Follow: it yields the newest stored block the given number of times
// before the new blocks.
func repeatNewest(times int) breakFunc {
	return changeFollow(func(c *memchain.Chain, ctx context.Context, after chaingql.Cursor, yield yieldFunc) {
		newest, _ := c.Blocks(ctx, query{Last: 1})
		c.Follow(ctx, after)(func(b block, err error) bool {
			if err == nil && len(newest) > 0 && b.Cursor == newest[0].Cursor {
				for range times - 1 {
					if !yield(b, nil) {
						return false
					}
				}
			}
			return yield(b, err)
		})
	})
}

// unusual holds changes of a Backend that the contract allows.
var unusual = []brokenBackend{
	{name: "Follow yields the newest stored block twice", breaks: repeatNewest(2)},
	{name: "Epoch changes only when a call notices the new chain", breaks: func(
		_ context.Context, c *memchain.Chain, h *Harness,
	) {
		h.Backend = newLazyEpoch(c)
		h.Interrupt = nil // Poll has no connection to interrupt
	}},
}

// changeBlocks breaks Blocks: it applies change to each block of each page.
func changeBlocks(change func(*block)) breakFunc {
	return changePage(func(_ query, page []block) []block {
		for i := range page {
			change(&page[i])
		}
		return page
	})
}

// brokenValues change or lose stored data.
var brokenValues = []brokenBackend{
	{"Blocks truncates seq_no to 31 bits", changeBlocks(func(b *block) {
		b.SeqNo &= 1<<31 - 1
	}), "with seq_no 2147483646, but the stored block has 4294967294"},
	{"Blocks truncates the time to 31 bits", changeBlocks(func(b *block) {
		b.Time = time.Unix(b.Time.Unix()&(1<<31-1), 0)
	}), "with time 2038-01-19 03:14:06 +0000 UTC, but the stored block has 2106-02-07 06:28:14"},
	{"Blocks truncates the workchain to 8 bits", changeBlocks(func(b *block) {
		b.Workchain = int32(int8(b.Workchain))
	}), "with workchain 127, but the stored block has -129"},
	{"Blocks truncates the shard to 63 bits", changeBlocks(func(b *block) { b.Shard &^= 1 }), "with shard"},
	{
		"Follow truncates seq_no to 31 bits",
		changeFollow(func(c *memchain.Chain, ctx context.Context, after chaingql.Cursor, yield yieldFunc) {
			c.Follow(ctx, after)(func(b block, err error) bool {
				b.SeqNo &= 1<<31 - 1
				return yield(b, err)
			})
		}),
		"Blocks and Follow preserve every field of a block: Follow",
	},
	{"Follow yields a block 20 ms before Blocks returns it", func(ctx context.Context, c *memchain.Chain, h *Harness) {
		ahead := memchain.New()
		h.Append = func(blocks []block) error {
			if err := ahead.Append(blocks...); err != nil {
				return err
			}
			time.Sleep(20 * time.Millisecond)
			return c.Append(blocks...)
		}
		h.Backend = override{Chain: c, follow: ahead.Follow}
	}, "Blocks returns each block that Follow has yielded: Blocks("},
	{
		"Follow drops blocks when its buffer is full",
		changeFollow(func(c *memchain.Chain, ctx context.Context, after chaingql.Cursor, yield yieldFunc) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			buffer, ended := make(chan block, 4096), make(chan error, 1)
			go func() {
				c.Follow(ctx, after)(func(b block, err error) bool {
					if err != nil {
						ended <- err
						return false
					}
					select {
					case buffer <- b:
					default:
					}
					return true
				})
			}()
			for {
				select {
				case b := <-buffer:
					if !yield(b, nil) {
						return
					}
				case err := <-ended:
					yield(block{}, err)
					return
				}
			}
		}),
		"Follow drops no block if its caller reads slowly: Follow",
	},
	{"cursors have non-ASCII characters", changeCursors(nonASCII, nonASCII),
		"a cursor must be printable ASCII without spaces"},
	{"cursors are too long", changeCursors(
		func(c chaingql.Cursor) chaingql.Cursor { return chaingql.Cursor(longPrefix) + c },
		func(c chaingql.Cursor) chaingql.Cursor {
			return chaingql.Cursor(strings.TrimPrefix(string(c), longPrefix))
		}), "a cursor must have at most 192 bytes"},
	{"Balance compares 31 bytes of an unknown account", func(_ context.Context, c *memchain.Chain, h *Harness) {
		h.Backend = override{Chain: c, balance: func(ctx context.Context, addr chaingql.Address) (*big.Int, error) {
			nano, err := c.Balance(ctx, addr)
			for i := 0; i < 256 && errors.Is(err, chaingql.ErrNotFound); i++ {
				addr.ID[31] = byte(i)
				nano, err = c.Balance(ctx, addr)
			}
			return nano, err
		}}
	}, "the error must be ErrNotFound"},
	{"SetBalance loses concurrent changes", func(_ context.Context, c *memchain.Chain, h *Harness) {
		var all atomic.Pointer[map[chaingql.Address]*big.Int]
		all.Store(&map[chaingql.Address]*big.Int{})
		h.SetBalance = func(addr chaingql.Address, nano *big.Int) error {
			changed := maps.Clone(*all.Load())
			changed[addr] = new(big.Int).Set(nano)
			time.Sleep(time.Millisecond)
			all.Store(&changed)
			return nil
		}
		balance := func(ctx context.Context, addr chaingql.Address) (*big.Int, error) {
			if nano, ok := (*all.Load())[addr]; ok {
				return new(big.Int).Set(nano), ctx.Err()
			}
			return nil, chaingql.ErrNotFound
		}
		h.Backend = struct{ chaingql.Backend }{override{Chain: c, balance: balance}}
	}, "Balance is correct while balances are being set: "},
}

// changeCursors breaks a chain: change returns the cursor that the Backend has for one of the chain, and restore does
// the opposite.
func changeCursors(change, restore func(chaingql.Cursor) chaingql.Cursor) breakFunc {
	return func(_ context.Context, c *memchain.Chain, h *Harness) {
		with := func(f func(chaingql.Cursor) chaingql.Cursor, blocks []block) []block {
			changed := slices.Clone(blocks)
			for i := range changed {
				changed[i].Cursor = f(changed[i].Cursor)
			}
			return changed
		}
		h.Cursor = func(n uint64) chaingql.Cursor { return change(chaingql.SeqCursor(n)) }
		h.Append = func(blocks []block) error { return c.Append(with(restore, blocks)...) }
		h.Prune = func(before chaingql.Cursor) error { c.Prune(restore(before)); return nil }
		h.Backend = override{Chain: c, blocks: func(ctx context.Context, q query) ([]block, error) {
			q.After, q.Before = restore(q.After), restore(q.Before)
			page, err := c.Blocks(ctx, q)
			return with(change, page), err
		}, follow: func(ctx context.Context, after chaingql.Cursor) seq {
			return func(yield yieldFunc) {
				c.Follow(ctx, restore(after))(func(b block, err error) bool {
					b.Cursor = change(b.Cursor)
					return yield(b, err)
				})
			}
		}}
	}
}

func nonASCII(c chaingql.Cursor) chaingql.Cursor {
	b := []byte(c)
	for i := range b {
		b[i] ^= 0x80
	}
	return chaingql.Cursor(b)
}

var longPrefix = strings.Repeat("a", 192)
