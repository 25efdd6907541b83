package backendtest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/chaingql/chaingql"
)

// A lookup is a method of an optional interface of a Backend that finds a block.
type lookup struct {
	name string
	// find looks a block up by the fields of b.
	find func(ctx context.Context, b *chaingql.Block) (chaingql.Block, error)
	// key returns the fields of b that identify it, for messages. Different blocks have different keys.
	key func(b *chaingql.Block) string
	// others changes b so that it identifies another block, in several ways.
	others []func(b *chaingql.Block)
}

// lookups returns the lookups that the Backend supports, by hash and by number.
func (t *trial) lookups() (all []lookup) {
	if b, ok := t.Backend.(chaingql.HashIndex); ok {
		all = append(all, lookup{
			name: "BlockByHash",
			find: func(ctx context.Context, want *chaingql.Block) (chaingql.Block, error) {
				return b.BlockByHash(ctx, want.Hash)
			},
			key: func(b *chaingql.Block) string { return b.Hash.String() },
			others: []func(*chaingql.Block){
				func(b *chaingql.Block) { b.Hash[0] ^= 1 },
				func(b *chaingql.Block) { b.Hash[31] ^= 0x80 },
				func(b *chaingql.Block) { b.Hash = chaingql.Hash{} },
			},
		})
	}
	if b, ok := t.Backend.(chaingql.SeqNoIndex); ok {
		all = append(all, lookup{
			name: "BlockBySeqNo",
			find: func(ctx context.Context, want *chaingql.Block) (chaingql.Block, error) {
				return b.BlockBySeqNo(ctx, want.Workchain, want.Shard, want.SeqNo)
			},
			key: func(b *chaingql.Block) string {
				return fmt.Sprintf("workchain %d, shard %016x, number %d", b.Workchain, b.Shard, b.SeqNo)
			},
			others: []func(*chaingql.Block){
				func(b *chaingql.Block) { b.SeqNo++ },
				func(b *chaingql.Block) { b.SeqNo = 0 },
				func(b *chaingql.Block) { b.SeqNo = math.MaxUint32 },
				func(b *chaingql.Block) { b.SeqNo ^= 1 << 31 },
				func(b *chaingql.Block) { b.Workchain++ },
				func(b *chaingql.Block) { b.Workchain = math.MinInt32 },
				func(b *chaingql.Block) { b.Shard ^= b.Shard & -b.Shard << 1 }, // its sibling, or 0
				func(b *chaingql.Block) { b.Shard -= b.Shard & -b.Shard / 2 },  // a child
				func(b *chaingql.Block) {
					if own := b.Shard & -b.Shard; own<<1 != 0 {
						b.Shard = b.Shard&^own | own<<1 // its parent
					}
				},
			},
		})
	}
	return all
}

// allLookups returns also the lookup by time, which returns the block of another time if no block has that time.
func (t *trial) allLookups() []lookup {
	all := t.lookups()
	if b, ok := t.Backend.(chaingql.TimeIndex); ok {
		all = append(all, lookup{
			name: "MasterBlockByTime",
			find: func(ctx context.Context, want *chaingql.Block) (chaingql.Block, error) {
				return b.MasterBlockByTime(ctx, want.Time)
			},
			key: func(b *chaingql.Block) string { return fmt.Sprint(b.Time.Unix()) },
		})
	}
	return all
}

// call returns the lookup as a call, for messages.
func (l *lookup) call(b *chaingql.Block) string { return l.name + "(" + l.key(b) + ")" }

// fault looks b up and checks the result, like resultFault.
func (l *lookup) fault(ctx context.Context, b *chaingql.Block, stored bool) string {
	got, err := l.find(ctx, b)
	return l.resultFault(b, got, err, stored)
}

// resultFault checks the result of looking b up. stored reports whether b is stored. It returns a description of the
// problem, or "".
func (l *lookup) resultFault(b *chaingql.Block, got chaingql.Block, err error, stored bool) string {
	switch {
	case !stored && !errors.Is(err, chaingql.ErrBlockNotFound):
		return fmt.Sprintf("returned cursor %q and error %v: the error must be ErrBlockNotFound "+
			"because no such block is stored", got.Cursor, err)
	case !stored:
		return ""
	case err != nil:
		return fmt.Sprintf("failed: %v; the block with cursor %q is stored", err, b.Cursor)
	case got.Cursor != b.Cursor:
		return fmt.Sprintf("returned cursor %q, but the block has %q", got.Cursor, b.Cursor)
	}
	if differs := blockFault(got, *b); differs != "" {
		return fmt.Sprintf("returned cursor %q %s", got.Cursor, differs)
	}
	return ""
}

// expectLookups checks that each lookup finds each of the blocks, or that none finds any. If the Backend is slow, it
// looks up a part of them.
func (t *trial) expectLookups(blocks []chaingql.Block, stored bool) {
	for i := range t.rounds(len(blocks), 6) {
		for _, l := range t.lookups() {
			t.expectResult(&l, &blocks[i], stored)
		}
	}
}

// expectResult checks that l finds b, or that it does not.
func (t *trial) expectResult(l *lookup, b *chaingql.Block, stored bool) {
	fault, _ := result(t, l.call(b), mustSucceed, func() (string, error) { return l.fault(t.ctx, b, stored), nil })
	if fault != "" {
		t.Fatalf("%s %s", l.call(b), fault)
	}
}

// A target is a block to look up.
type target struct {
	block  chaingql.Block
	stored bool
}

// targets returns the stored blocks, and blocks that differ from them and are not stored, for a lookup. They include
// the blocks around every split and merge.
func (t *trial) targets(l *lookup) (all []target) {
	stored := make(map[string]bool, len(t.stored))
	for i := range t.stored {
		stored[l.key(&t.stored[i])] = true
		all = append(all, target{t.stored[i], true})
	}
	for _, b := range t.stored {
		for _, change := range l.others {
			other := b
			if change(&other); !stored[l.key(&other)] {
				all = append(all, target{other, false})
			}
		}
	}
	return all
}

// lookupsAreExact looks up every stored block, and then random blocks, some of which are not stored. Meanwhile, more
// blocks are appended. If the Backend is slow, it makes at least some hundred lookups.
func lookupsAreExact(t *trial) {
	if t.Append != nil {
		t.expectLookups(Chain(1, 1), false) // of an empty chain
	}
	t.fill(400, 100)
	t.expectLookups(t.stored, true)
	const random, few, workers = 4_000, 640, 8
	ways := t.lookups()
	if len(ways) == 0 {
		return
	}
	var targets [][]target
	for i := range ways {
		targets = append(targets, t.targets(&ways[i]))
	}
	coming := make(map[string]bool) // may or may not be stored
	for i := range ways {
		for j := range t.coming {
			coming[ways[i].key(&t.coming[j])] = true
		}
	}
	var workersDone sync.WaitGroup
	defer workersDone.Wait()
	defer t.cancel() // ends the workers if a lookup below fails
	for worker := range workers {
		workersDone.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(worker), 3))
			for range t.rounds(random/workers, few/workers) {
				i := rng.IntN(len(ways))
				at := pick(rng, targets[i])
				if coming[ways[i].key(&at.block)] {
					continue
				}
				what := "random lookup: " + ways[i].call(&at.block)
				fault, _ := result(t, what, mustSucceed, func() (string, error) {
					return ways[i].fault(t.ctx, &at.block, at.stored), nil
				})
				if fault != "" {
					t.Errorf("%s %s", what, fault)
					t.cancel()
					return
				}
			}
		})
	}
	for range t.rounds(len(t.coming), 10) {
		t.grow(1)
		t.expectLookups(t.stored[len(t.stored)-1:], true) // a Backend must not remember that it was unknown
		t.expectLookups(t.coming[:min(1, len(t.coming))], false)
	}
	workersDone.Wait()
}

// followedBlocksAreFound looks up each block that Follow yields, before Append returns.
func followedBlocksAreFound(t *trial) {
	t.growFollowed(func(next []chaingql.Block) func() {
		t.expectLookups(next, false)
		return func() {
			t.expectLookups(next, true)
			t.expectTime(next[0].Time.Unix())
		}
	})
}

func prunedBlocksAreNotFound(t *trial) {
	t.fill(60, 0)
	all := t.stored
	for _, n := range []int{1, 20, len(t.stored) - 22} {
		gone := t.pruneBelow(n)
		t.expectLookups(gone, false)
		t.expectLookups(t.stored, true)
		t.expectTimes()
	}
	if t.Reopen != nil {
		t.reopen()
		t.expectLookups(all[:len(all)-len(t.stored)], false)
	}
}

func lookupsSurviveRestart(t *trial) {
	t.fill(60, 20)
	t.reopen()
	t.expectLookups(t.stored, true)
	t.expectTimes()
	if t.Append != nil {
		t.grow(20)
		t.expectLookups(t.stored[60:], true)
		t.expectTimes()
	}
}

func timeLookupIsExact(t *trial) {
	if t.Append != nil {
		t.expectTimes()
	}
	t.fill(300, 1)
	t.expectTimes()
	if len(t.coming) > 0 {
		t.grow(1)
		t.expectTimes()
	}
}

// expectTimes looks up the masterchain blocks by times before, between, at and after them. If the Backend is slow, it
// looks up a part of them.
func (t *trial) expectTimes() {
	for _, unix := range []int64{0, 1, 1<<31 - 1, 1 << 31, 1<<32 - 1, -1, -1 << 31} {
		t.expectTime(unix)
	}
	for i := range t.rounds(len(t.stored), 6) {
		if b := &t.stored[i]; b.Workchain == masterchain {
			for _, unix := range []int64{b.Time.Unix() - 1, b.Time.Unix(), b.Time.Unix() + 1} {
				t.expectTime(unix)
			}
		}
	}
}

// expectTime looks up the first masterchain block at a Unix time or later.
func (t *trial) expectTime(unix int64) {
	b, ok := t.Backend.(chaingql.TimeIndex)
	if !ok {
		return
	}
	l := lookup{
		name: "MasterBlockByTime",
		find: func(ctx context.Context, _ *chaingql.Block) (chaingql.Block, error) {
			return b.MasterBlockByTime(ctx, time.Unix(unix, 0).UTC())
		},
		key: func(*chaingql.Block) string { return fmt.Sprint(unix) },
	}
	var want chaingql.Block
	i := slices.IndexFunc(t.stored, func(b chaingql.Block) bool {
		return b.Workchain == masterchain && b.Time.Unix() >= unix
	})
	if i >= 0 {
		want = t.stored[i]
	}
	t.expectResult(&l, &want, i >= 0)
}
