package tonlite

import (
	"context"
	"errors"
	"sort"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite/internal/lite"
)

// oldestStep returns the first masterchain block whose step can be computed: block 1, or the
// one after the oldest that a server has. A step consists of the shard blocks that are new
// since the previous masterchain block, so that one is needed. oldestStep uses binary search
// and begins with the last result, because servers delete old blocks over time.
func (b *Backend) oldestStep(ctx context.Context) (uint32, error) {
	b.mu.Lock()
	low := max(1, b.oldest)
	head := b.head.SeqNo
	b.mu.Unlock()
	if low > 1 {
		deeper, err := b.has(ctx, low-1)
		if err != nil {
			return 0, err
		}
		if deeper { // a server with more history is available again, or another one lied
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

// has reports whether a server has a masterchain block.
func (b *Backend) has(ctx context.Context, seqNo uint32) (bool, error) {
	_, err := b.lookup(ctx, seqNo, func(lite.BlockID) error { return nil })
	if errors.Is(err, errMissing) {
		return false, nil
	}
	return err == nil, err
}

// checkHistory returns an error if the servers do not have the steps from a masterchain block
// on.
func (b *Backend) checkHistory(ctx context.Context, from uint32) error {
	there, err := b.has(ctx, max(1, from-1))
	if err == nil && !there {
		return b.missingError(ctx, from, errMissing)
	}
	return err
}

// missingError returns ErrCursorTooOld if a masterchain block is older than the history of the
// servers, and missing otherwise.
func (b *Backend) missingError(ctx context.Context, from uint32, missing error) error {
	bottom, err := b.oldestStep(ctx)
	switch {
	case err != nil:
		return err
	case from < bottom:
		return chaingql.ErrCursorTooOld
	}
	return missing
}
