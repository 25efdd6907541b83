package tonlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite/internal/lite"
)

// maxCommitDelay is the maximum number of masterchain blocks that BlockBySeqNo reads to find the one
// that commits to a shard block. On a working network it is one of the next few after the shard block
// was created.
const maxCommitDelay = 64

var errCommitDelay = fmt.Errorf("tonlite: none of the %d masterchain blocks after its creation "+
	"commits to the shard block", maxCommitDelay)

// BlockBySeqNo returns the block with a number in exactly one shard, as [chaingql.SeqNoIndex]
// specifies. It can find only blocks that a server still has. Unless the blocks are cached, it needs
// up to five queries for the masterchain block, and for a shard block one to look it up and one for
// each shard block that is new in the same masterchain block. It counts as a page: if it must query
// servers, and 16 other pages already do so and 48 wait, it returns an error.
func (b *Backend) BlockBySeqNo(
	ctx context.Context, workchain int32, shard uint64, seqNo uint32,
) (chaingql.Block, error) {
	if err := ctx.Err(); err != nil {
		return chaingql.Block{}, err
	}
	ctx = withUse(ctx, forPage)
	head, err := b.currentHead(ctx)
	if err != nil {
		return chaingql.Block{}, err
	}
	var block chaingql.Block
	there, err := b.unlessLate(ctx, head.SeqNo, func() (bool, error) {
		var err error
		block, err = b.find(ctx, head, lite.BlockID{Workchain: workchain, Shard: shard, SeqNo: seqNo})
		return found(err)
	})
	if err != nil || there {
		return block, err
	}
	if there, err = b.readable(ctx, head.SeqNo); err == nil && there { // deleted: the servers do not lag
		err = chaingql.ErrBlockNotFound
	}
	return chaingql.Block{}, cmp.Or(err, errMissing)
}

// minShardBit is the lowest bit that may end the prefix of a shard. The prefix has at most 60 bits.
const minShardBit = 1 << 3

// find returns the block with the position of want, in which the hashes are not set.
func (b *Backend) find(ctx context.Context, head, want lite.BlockID) (found chaingql.Block, err error) {
	if want.SeqNo == 0 || want.Shard&-want.Shard < minShardBit { // the zero state is not a block
		return found, chaingql.ErrBlockNotFound
	}
	q := chaingql.BlocksQuery{Workchain: &want.Workchain, First: 1}
	s := b.newPageReader(ctx, q)
	defer s.release()
	master := want.SeqNo
	switch {
	case want.Workchain != masterchain:
		master, err = s.committingMaster(ctx, head, want)
	case want.Shard != wholeShard || want.SeqNo > head.SeqNo:
		err = chaingql.ErrBlockNotFound
	}
	if err != nil {
		return found, err
	}
	steps, err := s.read(ctx, q, masterRange{master, master}, 0)
	if err != nil {
		return found, err
	}
	for _, block := range steps[0] {
		if block.Workchain == want.Workchain && block.Shard == want.Shard && block.SeqNo == want.SeqNo {
			return block, nil
		}
	}
	return found, chaingql.ErrBlockNotFound
}

// committingMaster returns the seq_no of the first masterchain block that commits to the shard block
// want or to a successor of it. A server's header of want says after which masterchain block want was
// created, which only shortens the search: the result follows from proven masterchain blocks.
func (s *pageReader) committingMaster(ctx context.Context, head, want lite.BlockID) (uint32, error) {
	newest, err := s.chain(ctx, head.SeqNo, head.SeqNo)
	if err != nil {
		return 0, err
	}
	if !newest[0].commitsTo(want) {
		return 0, chaingql.ErrBlockNotFound
	}
	if err := s.acquire(ctx); err != nil {
		return 0, err
	}
	var master atomic.Uint32
	var tooFar atomic.Bool
	check := func(ctx context.Context, answer lite.Message) error {
		a, ok := answer.(lite.BlockHeader)
		if !ok || a.ID.Workchain != want.Workchain || a.ID.SeqNo != want.SeqNo ||
			!lite.Overlap(a.ID.Shard, want.Shard) {
			return errAnswer
		}
		if a.ID.Shard != want.Shard { // if this block of the parent or a child exists, want does not
			return fmt.Errorf("%w: the number is that of block %v", errMissing, a.ID)
		}
		var created uint32
		err := s.servers.parse(ctx, func() (err error) {
			created, err = parseCreation(a)
			return err
		})
		if err != nil {
			return err
		}
		first, err := s.firstCommitting(ctx, created, head.SeqNo, want)
		switch {
		case errors.Is(err, errCommitDelay): // the server may be honest, so it stays in use
			tooFar.Store(true)
			return fmt.Errorf("%w: %v", errMissing, err)
		case err == nil:
			master.Store(first)
		}
		return err
	}
	q := lite.LookupBlock{Workchain: want.Workchain, Shard: want.Shard, SeqNo: want.SeqNo}
	err = s.servers.askIn(ctx, s.servers.order(ctx, q), q, check)
	if errors.Is(err, errMissing) { // the servers may lag
		q := s.servers.after(head.SeqNo, q)
		err = s.servers.askIn(ctx, s.servers.order(ctx, q), q, check)
	}
	if tooFar.Load() && errors.Is(err, errMissing) {
		err = errCommitDelay
	}
	return master.Load(), err
}

// firstCommitting returns the seq_no of the first masterchain block in (created, head] that commits to
// the shard block want or to a successor of it. Block head must commit to it, and block created must not.
func (b *Backend) firstCommitting(ctx context.Context, created, head uint32, want lite.BlockID) (uint32, error) {
	if created >= head {
		return 0, errAnswer
	}
	for low, n := created, uint32(1); low < head && low-created < maxCommitDelay; n *= 2 {
		to := low + min(n, head-low, maxCommitDelay-(low-created))
		masters, err := b.chain(ctx, max(1, low), to)
		if err != nil {
			return 0, err
		}
		if i := slices.IndexFunc(masters, func(m *master) bool { return m.commitsTo(want) }); i >= 0 {
			if seqNo := masters[i].id.SeqNo; seqNo > created {
				return seqNo, nil
			}
			return 0, errAnswer
		}
		low = to
	}
	return 0, errCommitDelay
}

// commitsTo reports whether m, or a masterchain block before it, commits to the shard block id, if that
// block exists. The numbers of the blocks that contain an account always increase, through all splits
// and merges. Each newest block of a shard that overlaps the shard of id therefore succeeds id, or is
// id, exactly if its number is not lower.
func (m *master) commitsTo(id lite.BlockID) bool {
	return slices.ContainsFunc(m.tops, func(top lite.BlockID) bool {
		return top.Workchain == id.Workchain && top.SeqNo >= id.SeqNo && lite.Overlap(top.Shard, id.Shard)
	})
}
