package tonlite

import (
	"context"
	"errors"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite/internal/lite"
)

// oldestStep returns the seq_no of the oldest masterchain block whose step can be computed. A
// step consists of a masterchain block and the shard blocks that are new in it. To know which
// shard blocks are new, the previous masterchain block is needed. The result is therefore 1 if
// block 1 can be read, and otherwise one more than the seq_no of the oldest block that can be read. A block
// with a seq_no of at most above counts as unreadable.
//
// oldestStep uses a binary search. It continues from the results of earlier calls, even of those that failed, and
// checks them again, because servers delete old blocks and return after failures. However, it asks only once per
// timeout whether a server with older blocks is back. It does not wait long for
// servers that are slow to say that they do not have a block, so the result may be too high.
func (b *Backend) oldestStep(ctx context.Context, above uint32) (uint32, error) {
	ctx = withHaste(ctx, b.opts.Timeout/4)
	b.mu.Lock()
	low, high, head := b.gone, b.oldest, b.head.SeqNo
	check := above == 0 && low > 0 && time.Since(b.checked) >= b.opts.Timeout
	if check {
		b.checked = time.Now() // other calls do not wait for slow servers meanwhile
	}
	b.mu.Unlock()
	if above > 0 {
		low, high = above, 0
	}
	back, deleted := false, false
	var err error
	if check {
		back, err = b.readable(ctx, low)
	}
	if err == nil && !back && high > 0 {
		there, lost := b.readable(ctx, high)
		deleted, err = !there, lost
	}
	switch {
	case err != nil:
		return 0, err
	case back: // a server with older blocks
		low, high = 0, low
	case deleted:
		low, high = high, 0
	}
	if low >= head {
		return 0, errMissing
	}
	for high == 0 || high-low > 1 {
		next := low + (high-low)/2
		switch {
		case low == 0: // some servers have all blocks
			next = 1
		case high == 0:
			next = head
		}
		there, err := b.readable(ctx, next)
		switch {
		case err != nil:
			return 0, err
		case there:
			high = next
		case next >= head:
			return 0, errMissing // no server has even the newest block
		default:
			low = next
		}
		b.setOldest(low, high)
	}
	if b.setOldest(low, high); high > 1 {
		high++
	}
	return high, nil
}

// setOldest records that block oldest can be read, and that block gone cannot. 0 means that there is no such block.
func (b *Backend) setOldest(gone, oldest uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gone, b.oldest = gone, oldest
}

// has reports whether any server has the masterchain block with the given seq_no. A server must prove
// the block, because it could invent an id.
func (b *Backend) has(ctx context.Context, seqNo uint32) (bool, error) {
	_, there, err := b.proven(ctx, seqNo)
	return there, err
}

// proven returns the id of the masterchain block with the given seq_no, if a server has it and can prove it.
func (b *Backend) proven(ctx context.Context, seqNo uint32) (id lite.BlockID, there bool, err error) {
	head, _ := b.knownHead()
	id, err = b.lookup(ctx, seqNo, func(id lite.BlockID) error {
		if known, ok := b.masters.get(seqNo); ok && known.id == id {
			return nil
		}
		return b.prover.prove(ctx, id, head)
	})
	if errors.Is(err, errMissing) {
		return id, false, nil
	}
	return id, err == nil, err
}

// readable is like has, but reads the block, because a server may prove a block that it does not send.
func (b *Backend) readable(ctx context.Context, seqNo uint32) (bool, error) {
	id, there, err := b.proven(ctx, seqNo)
	if !there {
		return false, err
	}
	if known, ok := b.masters.get(seqNo); ok && known.id == id {
		return true, nil
	}
	m, err := b.master(ctx, id)
	if errors.Is(err, errMissing) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	b.masters.put(seqNo, m)
	return true, nil
}

// checkHistory returns an error if no server has the masterchain block before the one with the
// seq_no from. That block is needed to know which shard blocks are new in the next one.
func (b *Backend) checkHistory(ctx context.Context, from uint32) error {
	there, err := b.readable(ctx, max(1, from-1))
	if err == nil && !there {
		return b.missingError(ctx, from, errMissing)
	}
	return err
}

// missingError returns the error for a read that failed with missing and began at the seq_no
// from. It returns ErrCursorTooOld if from is lower than that of the oldest readable masterchain
// block, and no server, however slow, has the block before from. Otherwise it returns missing.
func (b *Backend) missingError(ctx context.Context, from uint32, missing error) error {
	bottom, err := b.oldestStep(ctx, 0)
	if err != nil {
		return err
	}
	if from >= bottom {
		return missing
	}
	there, err := b.readable(ctx, max(1, from-1))
	switch {
	case err != nil:
		return err
	case there:
		return missing
	}
	return chaingql.ErrCursorTooOld
}
