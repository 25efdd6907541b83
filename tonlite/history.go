package tonlite

import (
	"context"
	"errors"
	"sort"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite/internal/lite"
)

// bottom finds the first masterchain block whose step can be told: the very
// first, or the one after the oldest that a server has, as which shard blocks
// are new in a step shows only beside the one before. Servers drop the oldest
// blocks, so it is searched by halves, and once found looked at again.
func (b *Backend) bottom(ctx context.Context) (uint32, error) {
	b.mu.Lock()
	low := max(1, b.oldest)
	head := b.head.SeqNo
	b.mu.Unlock()
	if low > 1 {
		deeper, err := b.has(ctx, low-1)
		if err != nil {
			return 0, err
		}
		if deeper { // a server that keeps more is back, or one that lied is found out
			low = 1
		}
	}
	there, err := b.has(ctx, low)
	if err != nil {
		return 0, err
	}
	if !there {
		n := sort.Search(int(head-low), func(i int) bool {
			if err != nil {
				return true
			}
			there, err = b.has(ctx, low+1+uint32(i))
			return there
		})
		if err != nil {
			return 0, err
		}
		if low += 1 + uint32(n); low > head {
			return 0, errMissing // not even the newest one
		}
	}
	b.mu.Lock()
	b.oldest = low
	b.mu.Unlock()
	if low > 1 {
		low++
	}
	return low, nil
}

// has asks whether a server has a masterchain block.
func (b *Backend) has(ctx context.Context, seqNo uint32) (bool, error) {
	_, err := b.lookup(ctx, seqNo, func(lite.BlockID) error { return nil })
	if errors.Is(err, errMissing) {
		return false, nil
	}
	return err == nil, err
}

// reaches says whether what follows from a masterchain block on is all there.
func (b *Backend) reaches(ctx context.Context, from uint32) error {
	if _, ok := b.steps.get(from); ok {
		return nil
	}
	there, err := b.has(ctx, max(1, from-1))
	if err == nil && !there {
		return b.tooOld(ctx, from, errMissing)
	}
	return err
}

// tooOld says why a block cannot be read: it is below the history that is kept,
// or it should be there and is not.
func (b *Backend) tooOld(ctx context.Context, from uint32, missing error) error {
	bottom, err := b.bottom(ctx)
	switch {
	case err != nil:
		return err
	case from < bottom:
		return chaingql.ErrCursorTooOld
	}
	return missing
}
