package blocklog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/chaingql/chaingql/internal/guard"
)

const (
	// predecessorBlocks is the maximum number of blocks that are read from one shard. If more blocks are missing there,
	// the gap counts as permanent.
	predecessorBlocks = 32

	// maxPredecessors is the maximum number of shards that are read to find the predecessors of one block. If shards
	// have split or merged so often that more are needed, the gap counts as permanent.
	maxPredecessors = 32

	// maxUnchecked is the maximum number of blocks that are accepted although the source failed when it was called for
	// missing blocks before them. A failure for any further block counts as a gap.
	maxUnchecked = 64

	// recheckTimeout is the maximum duration of a repeated check. The next block waits during the check.
	recheckTimeout = time.Second
)

// An uncheckedBlock is a block that was accepted although blocks before it may be missing, because the source failed
// when it was called for them. find repeats the call.
type uncheckedBlock[B any] struct {
	block         B
	workchain     int32
	after, cursor string
	find          func(context.Context) (found[B], error)
}

// rechecks contains the unchecked blocks and the time of the next check.
type rechecks[B any] struct {
	blocks []uncheckedBlock[B]
	at     time.Time
}

// findUnnumbered looks for missing blocks before b if the sequence number of b cannot show them. That is the case if b
// is the first known block of its shard or follows a merge. known contains the newest block of each shard that the log
// has seen, and of every shard that had a block after the cursor begun.
func (l *Log[B]) findUnnumbered(
	ctx context.Context, b B, cursor string, at Place, v verdict, known shardHeads, begun string,
) (f found[B], err error) {
	f = found[B]{after: begun, heads: known.clone()}
	stored := make(shardHeads)
	all, heads, err := l.blocksBefore(ctx, b, at, v, known, begun)
	if err != nil {
		return f, err
	}
	// A stored block that is older than the log's start can show that the block after it is missing.
	shows := func(p Place, cursor string) bool {
		for ; len(heads) > 0 && heads[0].cursor < cursor; heads = heads[1:] {
			stored.set(l.src.Place(heads[0].block), heads[0].cursor)
		}
		return f.heads.check(p) == verdictFirst && stored.check(p) == verdictGap
	}
	for _, e := range all {
		if e.cursor >= cursor {
			return f, fmt.Errorf("reading the blocks before %q: unexpected block %q", cursor, e.cursor)
		}
		p := l.src.Place(e.block)
		if shows(p, e.cursor) {
			f.began = stored.before(p, begun) // before the start of the log
			return f, errStillMissing
		}
		if err := f.add(p, e); err != nil {
			return f, err
		}
		stored.set(p, e.cursor)
	}
	if shows(at, cursor) {
		f.began = stored.before(at, begun)
		return f, errStillMissing
	}
	if f.heads.check(at) == verdictGap {
		return f, errStillMissing
	}
	if len(f.missing) == 0 {
		return f, nil
	}
	before, err := l.src.Before(ctx, f.missing[0].block, nil, 1)
	if err != nil {
		return f, fmt.Errorf("reading the predecessors of a block: %w", err)
	}
	for _, b := range before {
		f.after = l.src.Cursor(b)
	}
	return f, nil
}

// blocksBefore returns the blocks that precede b in its shards and that the log lacks. It also returns heads: for each
// shard that it reads, the last block before the missing ones. Both results are in ascending order.
//
// A block continues its own shard, the parent shard after a split, or two shards after a merge. For each of these
// shards, blocksBefore reads the last blocks with a small call. If the block before one of the results is in another
// shard, it reads that shard too.
func (l *Log[B]) blocksBefore(
	ctx context.Context, b B, at Place, v verdict, known shardHeads, begun string,
) (all, heads []entry[B], err error) {
	type step struct {
		block B
		shard uint64
	}
	var steps []step
	for _, shard := range predecessors(shardOf(at), v) {
		steps = append(steps, step{b, shard})
	}
	seen := make(map[string]bool)
	for i := 0; i < len(steps); i++ {
		if i == maxPredecessors {
			return nil, nil, errStillMissing
		}
		shard := steps[i].shard
		after := known.reached(Place{Workchain: at.Workchain, Shard: shard}, begun)
		entries, late, err := l.lastBefore(ctx, steps[i].block, shard, after)
		if err != nil {
			return nil, nil, err
		}
		if late > 0 {
			heads = append(heads, entries[late-1])
		}
		for i := late; i < len(entries); i++ {
			e := entries[i]
			p := l.src.Place(e.block)
			if p.Workchain != at.Workchain || shardOf(p) != shard {
				return nil, nil, fmt.Errorf("reading the predecessors of a block: unexpected block %q in workchain %d",
					e.cursor, p.Workchain)
			}
			if seen[e.cursor] {
				continue
			}
			seen[e.cursor] = true
			all = append(all, e)
			if i > 0 && l.src.Place(entries[i-1].block).SeqNo+1 == p.SeqNo {
				continue
			}
			for _, other := range predecessors(shard, verdictFirst) {
				if other != shard {
					steps = append(steps, step{e.block, other})
				}
			}
		}
	}
	ascending := func(a, b entry[B]) int { return cmp.Compare(a.cursor, b.cursor) }
	slices.SortFunc(all, ascending)
	slices.SortFunc(heads, ascending)
	return all, heads, nil
}

// lastBefore returns the last blocks before b in a shard, in ascending order, and the index of the first one after the
// cursor after. It reads two blocks, and more only if all of them are after that cursor: if the shard had few blocks
// lately, earlier ones are far back, and a Backend may need seconds to find them.
func (l *Log[B]) lastBefore(
	ctx context.Context, b B, shard uint64, after string,
) (entries []entry[B], late int, err error) {
	for n := 2; n <= predecessorBlocks; n *= 4 {
		blocks, err := l.src.Before(ctx, b, &shard, n)
		if err == nil {
			entries, err = l.ascending(blocks, "")
		}
		if err != nil {
			return nil, 0, fmt.Errorf("reading the predecessors of a block: %w", err)
		}
		late = slices.IndexFunc(entries, func(e entry[B]) bool { return e.cursor > after })
		if late < 0 {
			late = len(entries)
		}
		if late > 0 || len(entries) < n {
			return entries, late, nil
		}
	}
	return nil, 0, errStillMissing
}

// searchFrom returns the cursor after which a search that has found block e must begin. This is f.after, with two
// exceptions. If e follows a merge, an earlier block of the other half may be missing. If e is the first known block of
// its shard, the log may lack blocks before it. In both cases searchFrom returns a cursor before these blocks.
func (l *Log[B]) searchFrom(ctx context.Context, e entry[B], at Place, v verdict, f found[B]) (string, error) {
	switch {
	case v == verdictMerge:
		return f.heads.before(at, l.startCursor), nil
	case v != verdictFirst || l.src.Before == nil:
		return f.after, nil
	}
	all, _, err := l.blocksBefore(ctx, e.block, at, v, f.heads, l.startCursor)
	if err != nil || len(all) == 0 || all[0].cursor > f.after {
		return f.after, err
	}
	before, err := l.src.Before(ctx, all[0].block, nil, 1)
	if err != nil {
		return "", fmt.Errorf("reading the predecessors of a block: %w", err)
	}
	for _, b := range before {
		return l.src.Cursor(b), nil
	}
	return "", nil
}

// predecessors returns the shards whose last block may be the predecessor of a block in the given shard.
func predecessors(shard uint64, v verdict) []uint64 {
	var all []uint64
	if half := lowestBit(shard) >> 1; half > 0 {
		all = append(all, shard-half, shard+half)
	}
	if v == verdictMerge {
		return all
	}
	if shard != wholeShard {
		all = append(all, parent(shard))
	}
	return append(all, shard)
}

// recheck calls the source again for blocks that may be missing before the oldest unchecked block, if it is time for
// that. Blocks that it finds are late, because later blocks have been delivered. If the source does not have the blocks
// before the unchecked block any more, one of them may have been missing, so that counts as a gap.
func (l *Log[B]) recheck() {
	if len(l.rechecks.blocks) == 0 || time.Now().Before(l.rechecks.at) {
		return
	}
	u := l.rechecks.blocks[0]
	ctx, cancel := context.WithTimeout(l.ctx, recheckTimeout)
	defer cancel()
	var f found[B]
	var err error
	perr := guard.RunApart(func() {
		if f, err = u.find(ctx); err == nil {
			// Between fails if a block that find did not see may have been pruned.
			_, err = l.src.Between(ctx, u.after, u.block, 1)
		}
	})
	if err = errors.Join(err, perr); err != nil && !errors.Is(err, errStillMissing) && !l.src.Gone(err) {
		l.rechecks.at = time.Now().Add(l.opts.MaxBackoff)
		return
	}
	l.nextUnchecked()
	switch {
	case err != nil:
		if f.began != "" {
			u.after = min(u.after, f.began)
		}
		l.endUnchecked(u, err)
	case len(f.missing) == 0:
		l.setOpenGaps()
	default:
		l.mu.Lock()
		l.stats.GapsFound++
		l.mu.Unlock()
		l.insertFound(f, u.workchain, u.cursor)
	}
}

// nextUnchecked removes and returns the oldest unchecked block.
func (l *Log[B]) nextUnchecked() uncheckedBlock[B] {
	u := l.rechecks.blocks[0]
	if l.rechecks.blocks = l.rechecks.blocks[1:]; len(l.rechecks.blocks) == 0 {
		l.rechecks.blocks = nil
	}
	return u
}

// endUnchecked ends the readers that a gap before an unchecked block may affect, because err prevents the check for
// good or the source lacks the missing blocks.
func (l *Log[B]) endUnchecked(u uncheckedBlock[B], err error) {
	ended := l.endAffected(u.workchain, u.after, u.cursor)
	l.stats.GapsFound++
	v := emptyView[B](l.view.Load().newest) // a reader that resumes from before the gap must read from the source
	v.arrived = l.view.Load().arrived
	l.view.Store(&v)
	l.setOpenGaps()
	l.mu.Unlock()
	l.callWakes()
	l.logUnrepaired(u.workchain, u.after, u.cursor, ended, err)
}
