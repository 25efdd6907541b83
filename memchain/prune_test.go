package memchain_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math/big"
	"runtime"
	"testing"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/memchain"
)

// grow appends the blocks with numbers in [from, to).
func grow(t *testing.T, c *memchain.Chain, from, to uint64) {
	t.Helper()
	var blocks []chaingql.Block
	for n := from; n < to; n++ {
		b := chaingql.Block{Workchain: int32(n % 2), Shard: 1 << 63, SeqNo: uint32(n), Cursor: chaingql.SeqCursor(n)}
		binary.BigEndian.PutUint64(b.Hash[:], n)
		blocks = append(blocks, b)
	}
	if err := c.Append(blocks...); err != nil {
		t.Fatal(err)
	}
}

// allocated returns the number of bytes that do allocates.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Prune holds the lock that readers need, so it must be fast.
func TestPruneOfFewBlocksDoesNotCopyChain(t *testing.T) {
	c := memchain.New()
	grow(t, c, 0, 100_000)
	if bytes := allocated(func() { c.Prune(chaingql.SeqCursor(10)) }); bytes > 64<<10 {
		t.Errorf("Prune of 10 blocks allocated %d bytes, want at most 64 KiB", bytes)
	}
}

func heap() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

func TestMemoryOfBlocksPrunedAtOnceIsFreed(t *testing.T) {
	c, before := memchain.New(), heap()
	grow(t, c, 0, 100_000)
	c.Prune(chaingql.SeqCursor(99_900))
	if grown := heap() - before; grown > 1<<20 {
		t.Errorf("a chain with 100 stored blocks uses %d bytes after a Prune of 99,900, want at most 1 MiB", grown)
	}
	runtime.KeepAlive(c)
}

func TestMemoryOfPrunedBlocksIsFreed(t *testing.T) {
	c, before := memchain.New(), heap()
	for n := uint64(0); n < 300_000; n += 100 {
		grow(t, c, n, n+100)
		if n > 10_000 {
			c.Prune(chaingql.SeqCursor(n - 10_000))
		}
	}
	if grown := heap() - before; grown > 10<<20 {
		t.Errorf("a chain with 10,000 stored and 290,000 pruned blocks uses %d bytes, want at most 10 MiB", grown)
	}
	runtime.KeepAlive(c)
}

func TestAddMakesBalancesVisibleBeforeFollowYieldsBlocks(t *testing.T) {
	account := chaingql.Address{ID: [32]byte{1}}
	for range 50 {
		c := memchain.New()
		seen := make(chan error, 1)
		go func() {
			for _, err := range c.Follow(t.Context(), "") {
				if err == nil {
					_, err = c.Balance(context.Background(), account)
				}
				seen <- err
				return
			}
		}()
		rec := memchain.Recording{
			Blocks:   []chaingql.Block{{Workchain: -1, Cursor: "01m"}},
			Balances: map[chaingql.Address]*big.Int{account: big.NewInt(7)},
		}
		for i := range 2000 {
			rec.Balances[chaingql.Address{Workchain: 1, ID: [32]byte{byte(i), byte(i >> 8)}}] = big.NewInt(1)
		}
		if err := c.Add(rec); err != nil {
			t.Fatal(err)
		}
		if err := <-seen; errors.Is(err, chaingql.ErrNotFound) {
			t.Fatal("Follow yielded a block before the balances of the same Add were visible")
		}
	}
}
