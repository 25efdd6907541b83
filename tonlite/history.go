package tonlite

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/chaingql/chaingql"
	"github.com/chaingql/chaingql/tonlite/internal/lite"
)

// oldestStep returns the seq_no of the oldest masterchain block whose step can be computed. A
// step consists of a masterchain block and the shard blocks that are new in it. To know which
// shard blocks are new, the previous masterchain block is needed. The result is therefore 1 if
// block 1 can be read, and otherwise one more than the seq_no of the oldest block that can be read.
//
// oldestStep uses a binary search. All calls share its results, even those of a search that failed, and only one
// call searches at a time. oldestStep does not wait long for servers that are slow to say that they do not have a
// block, so the result may be too high: see confirmOldest.
func (b *Backend) oldestStep(ctx context.Context) (uint32, error) {
	ctx = withHaste(ctx, b.opts.Timeout/4)
	if err := b.recheck(ctx); err != nil {
		return 0, err
	}
	select {
	case b.searching <- struct{}{}:
		defer func() { <-b.searching }()
	case <-ctx.Done():
		return 0, timedOut(ctx.Err())
	}
	for head, _ := b.knownHead(); ; {
		gone, oldest := b.history()
		var next uint32
		switch {
		case oldest == 1:
			return 1, nil
		case oldest > 0 && oldest-gone == 1:
			return oldest + 1, nil
		case gone >= head.SeqNo: // no server has even the newest block
			b.forget()
			return 0, errMissing
		case gone == 0: // some servers have all blocks
			next = 1
		case oldest == 0:
			next = head.SeqNo
		default:
			next = gone + (oldest-gone)/2
		}
		if _, err := b.probe(ctx, next); err != nil {
			return 0, err
		}
	}
}

// confirmOldest returns an error unless bottom, a result of oldestStep, is the oldest step even if slow servers count.
func (b *Backend) confirmOldest(ctx context.Context, bottom uint32) error {
	if bottom == 1 {
		return nil
	}
	there, err := b.probe(ctx, bottom-2) // of the step before bottom
	if err == nil && there {
		err = errMissing // it is recorded, so the next search continues from it
	}
	return err
}

// recheck checks results of earlier searches again, because servers delete old blocks and return after failures. It
// checks only once per timeout whether a server with older blocks is back.
func (b *Backend) recheck(ctx context.Context) error {
	gone, oldest := b.history()
	b.mu.Lock()
	due := gone > 0 && time.Since(b.checked) >= b.opts.Timeout
	if due {
		b.checked = time.Now() // other calls do not wait for slow servers meanwhile
	}
	b.mu.Unlock()
	if due {
		if _, err := b.probe(ctx, gone); err != nil {
			return err
		}
	}
	if oldest > 0 {
		_, err := b.probe(ctx, oldest)
		return err
	}
	return nil
}

// probe tries to read the masterchain block with the given seq_no and the step after it. It records and returns
// whether that is possible. A server may have deleted the shard blocks of a masterchain block that it still has.
func (b *Backend) probe(ctx context.Context, seqNo uint32) (there bool, err error) {
	there, err = b.unlessLate(ctx, seqNo, func() (bool, error) {
		there, err := b.readable(ctx, seqNo)
		if head, _ := b.knownHead(); err == nil && there && seqNo < head.SeqNo {
			from := seqNo + 1
			if seqNo == 1 {
				from = 1 // the only step without a predecessor
			}
			_, err = b.readSteps(ctx, chaingql.BlocksQuery{}, masterRange{from, seqNo + 1})
			there, err = found(err)
		}
		return there, err
	})
	if err == nil {
		b.record(seqNo, there)
	}
	return there, err
}

// keeps reports whether any server has the masterchain block with the given seq_no. Unlike probe, it reads no shard
// blocks if a server has it, and records only that no server does: the history must begin after that block then, even
// if some server has blocks before it.
func (b *Backend) keeps(ctx context.Context, seqNo uint32) (bool, error) {
	there, err := b.unlessLate(ctx, seqNo, func() (bool, error) { return b.readable(ctx, seqNo) })
	if err == nil && !there {
		b.record(seqNo, false)
	}
	return there, err
}

// unlessLate returns the result of read, which reports whether the masterchain block with the given seq_no, and blocks
// after it, can be read. If they cannot, and servers do not even have the shard blocks of a later head, the blocks may
// be late instead of deleted, so unlessLate returns errMissing. A server may announce a masterchain block half a minute
// before it has the shard blocks of that block and of those before it.
func (b *Backend) unlessLate(ctx context.Context, seqNo uint32, read func() (bool, error)) (there bool, err error) {
	later := b.headAfter(seqNo).SeqNo
	b.mu.Lock()
	current := b.complete >= later && time.Since(b.completed) < maxHeadAge
	b.mu.Unlock()
	if there, err = read(); err != nil || there || current {
		return there, err
	}
	if _, err := b.readNewestShards(withoutHaste(ctx), later); err != nil {
		return false, err
	}
	b.mu.Lock()
	b.complete, b.completed = later, time.Now()
	b.mu.Unlock()
	return read() // the blocks may have come meanwhile
}

// newestShards is the number of masterchain blocks in which readNewestShards expects each shard that still has blocks.
const newestShards = 16

// readNewestShards reads the newest block of each shard as of the masterchain block with the given seq_no, except those
// of shards without new blocks in the last masterchain blocks. It returns their number. It uses no cached shard blocks.
func (b *Backend) readNewestShards(ctx context.Context, seqNo uint32) (n int, err error) {
	masters, err := b.chain(ctx, seqNo, seqNo)
	if err != nil {
		return 0, err
	}
	tops := slices.Clone(masters[0].tops)
	if seqNo > newestShards {
		earlier, err := b.chain(ctx, seqNo-newestShards, seqNo-newestShards)
		if err != nil && !errors.Is(err, errMissing) {
			return 0, err
		}
		for _, m := range earlier {
			tops = slices.DeleteFunc(tops, func(id lite.BlockID) bool { return slices.Contains(m.tops, id) })
		}
	}
	tops = slices.DeleteFunc(tops, func(id lite.BlockID) bool { return id.SeqNo == 0 }) // the zero state is not a block
	return len(tops), parallel(ctx, len(tops), func(ctx context.Context, i int) error {
		_, err := b.header(ctx, tops[i], seqNo)
		return err
	})
}

// history returns the results of all searches for the oldest block: the seq_no of the newest block that no server
// sent, and of the oldest block that was read after it. 0 means that there is no such block.
func (b *Backend) history() (gone, oldest uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.gone, b.oldest
}

// record records whether the masterchain block with the given seq_no can be read. If the result contradicts earlier
// ones, these are dropped, because a server has deleted blocks or has returned.
func (b *Backend) record(seqNo uint32, there bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if there {
		if b.oldest == 0 || seqNo < b.oldest {
			b.oldest = seqNo
		}
		if b.gone >= seqNo {
			b.gone = 0
		}
		return
	}
	if seqNo > b.gone { // otherwise clients with older cursors would put off the next check
		b.gone, b.checked = seqNo, time.Now()
	}
	if b.oldest <= b.gone {
		b.oldest = 0
	}
}

// forget drops the results of all searches, for servers that lost blocks for a while.
func (b *Backend) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gone, b.oldest = 0, 0
}

// readable reports whether any server has the masterchain block with the given seq_no. A server must prove and send
// the block, because it could invent an id, or prove a block that it does not send. Unless in haste, readable waits for
// servers that lag.
func (b *Backend) readable(ctx context.Context, seqNo uint32) (bool, error) {
	m, _, err := b.lookup(ctx, seqNo, !inHaste(ctx), true)
	if err == nil {
		b.masters.put(seqNo, m)
	}
	return found(err)
}

// found returns whether a read that ended with err found the block. It returns an error if that is unknown.
func found(err error) (bool, error) {
	if errors.Is(err, errMissing) {
		return false, nil
	}
	return err == nil, err
}

// knows reports whether the masterchain block with the given id is cached.
func (b *Backend) knows(id lite.BlockID) bool {
	m, ok := b.masters.get(id.SeqNo)
	return ok && m.id == id
}

// checkHistory returns an error if no server, however slow, has the masterchain block before the one with the seq_no
// from, as readable reports. That block is needed to know which shard blocks are new in the next one. The error is
// ErrCursorTooOld if servers have only later steps, and otherwise errMissing.
func (b *Backend) checkHistory(
	ctx context.Context, from uint32, has func(ctx context.Context, seqNo uint32) (bool, error),
) error {
	if there, err := has(ctx, max(1, from-1)); err != nil || there {
		return err
	}
	bottom, err := b.oldestStep(ctx)
	switch {
	case err != nil:
		return err
	case from < bottom:
		return chaingql.ErrCursorTooOld
	}
	return errMissing
}

// settled reports whether the masterchain block with the given seq_no is so old that it cannot be late.
func (b *Backend) settled(seqNo uint32) bool {
	after := b.headAfter(seqNo).SeqNo
	return after > seqNo && after-seqNo > maxLag
}

// whyMissing returns the error for a read of the step with the seq_no from and later ones that failed with errMissing.
// If servers have the shard blocks before that step, it is not deleted, unless it is so old that it cannot be late.
func (b *Backend) whyMissing(ctx context.Context, from uint32) error {
	if b.settled(from) {
		return cmp.Or(b.checkHistory(ctx, from, b.probe), errMissing)
	}
	if there, err := b.readable(ctx, max(1, from-1)); err != nil {
		return err
	} else if there {
		n, err := b.readNewestShards(ctx, max(1, from-1))
		if there, err = found(err); err != nil || there && n > 0 {
			return cmp.Or(err, errMissing)
		}
	}
	return cmp.Or(b.checkHistory(ctx, from, b.probe), errMissing)
}
