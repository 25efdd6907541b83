package natschain

import (
	"context"
	"errors"
	"time"

	"github.com/chaingql/chaingql"
)

// BlockBySeqNo returns the block with a number, as [chaingql.SeqNoIndex] specifies. It needs up to two requests to NATS
// per bit of the number of blocks, like a page with an old cursor.
func (b *Backend) BlockBySeqNo(
	ctx context.Context, workchain int32, shard uint64, seqNo uint32,
) (chaingql.Block, error) {
	q := chaingql.BlocksQuery{Workchain: &workchain, Shard: &shard}
	found, err := b.find(ctx, func(ctx context.Context) (stored, error) {
		return b.searchFirst(ctx, q, func(b *chaingql.Block) bool { return b.SeqNo >= seqNo })
	})
	if err == nil && found.SeqNo != seqNo {
		return chaingql.Block{}, chaingql.ErrBlockNotFound
	}
	return found, err
}

// MasterBlockByTime returns the first masterchain block from a time on, as [chaingql.TimeIndex] specifies. It costs as
// much as BlockBySeqNo.
func (b *Backend) MasterBlockByTime(ctx context.Context, t time.Time) (chaingql.Block, error) {
	master := int32(-1)
	q := chaingql.BlocksQuery{Workchain: &master}
	return b.find(ctx, func(ctx context.Context) (stored, error) {
		return b.searchFirst(ctx, q, func(b *chaingql.Block) bool { return !b.Time.Before(t) })
	})
}

// find returns the block that search finds. If the stream was replaced meanwhile, it returns chaingql.ErrChainReplaced.
func (b *Backend) find(
	ctx context.Context, search func(context.Context) (stored, error),
) (chaingql.Block, error) {
	leave, err := b.admitSlow()
	if err != nil {
		return chaingql.Block{}, err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, b.opts.Timeout)
	defer cancel()
	epoch := b.epoch.Load()
	var found stored
	err = b.verified(ctx, func() error {
		found, err = search(ctx)
		return err
	})
	if err == nil || errors.Is(err, errReplaced) || errors.Is(err, chaingql.ErrBlockNotFound) ||
		errors.Is(err, chaingql.ErrLookupNotSupported) {
		if changed := b.checkEpoch(ctx, epoch); changed != nil {
			return chaingql.Block{}, changed
		}
	}
	if errors.Is(err, errReplaced) { // the stream has lost messages
		b.reset()
		found, err = search(ctx)
	}
	return found.block, err
}

// searchFirst returns the first block that q selects and for which reached returns true. If reached returns true for a
// block, it must do so for all later ones. searchFirst is a binary search by sequence number in the stream. If the
// block that it finds is pruned meanwhile, searchFirst searches again, because later blocks exist.
func (b *Backend) searchFirst(
	ctx context.Context, q chaingql.BlocksQuery, reached func(*chaingql.Block) bool,
) (stored, error) {
	newest, err := b.last(ctx, q, place{}, maxSeq, 1)
	switch {
	case err != nil:
		return stored{}, err
	case len(newest) == 0 || !reached(&newest[0].block):
		return stored{}, chaingql.ErrBlockNotFound
	}
	best, subject := newest[0], b.names.filter(q)
	lost := false
	for from, end := uint64(1), best.seq; from < end && !lost; {
		middle := from + (end-from)/2
		s, err := b.blockFrom(ctx, subject, middle, best.seq)
		switch {
		case errors.Is(err, errReplaced):
			lost = true
		case err != nil:
			return stored{}, err
		case s.seq == best.seq:
			end = middle
		case reached(&s.block):
			best, end = s, middle
		default:
			from = s.seq + 1
		}
	}
	switch there, err := b.present(ctx, best.place()); {
	case err != nil:
		return stored{}, err
	case !there:
		return b.searchFirst(ctx, q, reached)
	case lost:
		return stored{}, errReplaced
	}
	return best, nil
}

// blockFrom returns the first block with the subject from the sequence number from on. There was one at the number
// last. If that block is gone, blockFrom returns errReplaced.
func (b *Backend) blockFrom(ctx context.Context, subject string, from, last uint64) (stored, error) {
	for from < last {
		s, found, err := b.block(ctx, getRequest{Seq: from, Next: subject})
		switch {
		case err != nil:
			return stored{}, err
		case !found || s.seq > last:
			return stored{}, errReplaced
		case s.seq == last:
			return s, nil
		}
		if is, err := b.isLinked(ctx, s); err != nil || is {
			return s, err
		}
		next, found, err := b.blockAt(ctx, s.seq+1, last) // there may be many strays
		if err != nil || !found {
			return stored{seq: last}, err
		}
		from = next.seq
	}
	return stored{seq: last}, nil
}
