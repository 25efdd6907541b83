package tonlite

import (
	"context"
	"errors"
	"sort"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite/internal/lite"
)

// oldestStep returns the seq_no of the oldest masterchain block whose step can be computed. A
// step consists of a masterchain block and the shard blocks that are new in it. To know which
// shard blocks are new, the previous masterchain block is needed. The result is therefore 1 if a
// server has block 1, and otherwise one more than the seq_no of the oldest block that a server
// has. oldestStep uses a binary search that starts at its last result, because servers delete old
// blocks over time.
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
		if deeper { // a server with older blocks is back, or a server lied before
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
			return 0, errMissing // no server has even the newest block
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

// has reports whether any server has the masterchain block with the given seq_no. A server must prove
// the block, because it could invent an id.
func (b *Backend) has(ctx context.Context, seqNo uint32) (bool, error) {
	head, _ := b.knownHead()
	_, err := b.lookup(ctx, seqNo, func(id lite.BlockID) error {
		if known, ok := b.masters.get(seqNo); ok && known.id == id {
			return nil
		}
		return b.prover.prove(ctx, id, head)
	})
	if errors.Is(err, errMissing) {
		return false, nil
	}
	return err == nil, err
}

// checkHistory returns an error if no server has the masterchain block before the one with the
// seq_no from. That block is needed to know which shard blocks are new in the next one.
func (b *Backend) checkHistory(ctx context.Context, from uint32) error {
	there, err := b.has(ctx, max(1, from-1))
	if err == nil && !there {
		return b.missingError(ctx, from, errMissing)
	}
	return err
}

// missingError returns the error for a read that failed with missing and began at the seq_no
// from. It returns ErrCursorTooOld if from is lower than that of the oldest readable masterchain
// block. Otherwise it returns missing.
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
