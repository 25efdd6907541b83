package blocklog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	// kinBlocks is how many blocks of one shard are looked at. If more are missing, the hole is given up.
	kinBlocks = 32

	// maxKin is how many shards are read to find what leads to one block. If more have split or merged meanwhile, the
	// hole is given up.
	maxKin = 32

	// maxUnchecked is the maximum number of blocks that were accepted although the source could not be asked what is
	// missing before them. From then on they count as a hole.
	maxUnchecked = 64

	// recheckPatience is how long the next block waits while the source is asked again.
	recheckPatience = time.Second
)

// unchecked is a block before which others may be missing: the source failed when it was asked.
type unchecked[B any] struct {
	workchain     int32
	after, cursor string
	find          func(context.Context) (found[B], error)
}

// rechecks are the blocks that are unchecked, and when the source is to be asked again.
type rechecks[B any] struct {
	blocks []unchecked[B]
	at     time.Time
}

// missingKin looks for missing blocks before one whose number does not show them: the first block of a shard that the
// log does not know yet, and one of two shards that have merged.
func (l *Log[B]) missingKin(
	ctx context.Context, b B, cursor string, at Place, v verdict, known lines, begun string,
) (f found[B], err error) {
	f = found[B]{after: begun, mended: known.clone()}
	stored := make(lines)
	all, heads, err := l.kinBefore(ctx, b, at, v, known, begun)
	if err != nil {
		return f, err
	}
	// A block of the source that the log was never to have can show that one after it is missing.
	shows := func(p Place, cursor string) bool {
		for ; len(heads) > 0 && heads[0].cursor < cursor; heads = heads[1:] {
			stored.take(l.src.Place(heads[0].block), heads[0].cursor)
		}
		return f.mended.judge(p) == first && stored.judge(p) == hole
	}
	for _, e := range all {
		if e.cursor >= cursor {
			return f, fmt.Errorf("before: block %q was not asked for", e.cursor)
		}
		p := l.src.Place(e.block)
		if shows(p, e.cursor) {
			return f, errStillMissing
		}
		if err := f.add(p, e); err != nil {
			return f, err
		}
		stored.take(p, e.cursor)
	}
	if f.mended.judge(at) == hole || shows(at, cursor) {
		return f, errStillMissing
	}
	if len(f.missing) == 0 {
		return f, nil
	}
	before, err := l.src.Before(ctx, f.missing[0].block, nil, 1)
	if err != nil {
		return f, fmt.Errorf("before: %w", err)
	}
	for _, b := range before {
		f.after = l.src.Cursor(b)
	}
	return f, nil
}

// kinBefore returns the blocks that lead to one and have not come, and in heads the last before them of each shard that
// was read, both ascending. What a block continues is of its own shard, of that before a split, or of those before a
// merge; each shard is read from its end, in one small call. If the block before one of those found is not of the same
// shard, it is looked for in the same way.
func (l *Log[B]) kinBefore(
	ctx context.Context, b B, at Place, v verdict, known lines, begun string,
) (all, heads []entry[B], err error) {
	type step struct {
		block B
		shard uint64
	}
	var steps []step
	for _, shard := range kin(shardOf(at), v) {
		steps = append(steps, step{b, shard})
	}
	seen := make(map[string]bool)
	for i := 0; i < len(steps); i++ {
		if i == maxKin {
			return nil, nil, errStillMissing
		}
		shard := steps[i].shard
		blocks, err := l.src.Before(ctx, steps[i].block, &shard, kinBlocks)
		if err != nil {
			return nil, nil, fmt.Errorf("before: %w", err)
		}
		entries, err := l.ascending(blocks, "")
		if err != nil {
			return nil, nil, fmt.Errorf("before: %w", err)
		}
		after := known.reached(Place{Workchain: at.Workchain, Shard: shard}, begun)
		late := slices.IndexFunc(entries, func(e entry[B]) bool { return e.cursor > after })
		if late == 0 && len(entries) == kinBlocks {
			return nil, nil, errStillMissing
		}
		if late < 0 {
			late = len(entries)
		}
		if late > 0 {
			heads = append(heads, entries[late-1])
		}
		for i := late; i < len(entries); i++ {
			e := entries[i]
			p := l.src.Place(e.block)
			if p.Workchain != at.Workchain || shardOf(p) != shard {
				return nil, nil, fmt.Errorf("before: block %q of workchain %d was not asked for", e.cursor, p.Workchain)
			}
			if seen[e.cursor] {
				continue
			}
			seen[e.cursor] = true
			all = append(all, e)
			if i > 0 && l.src.Place(entries[i-1].block).SeqNo+1 == p.SeqNo {
				continue
			}
			for _, other := range kin(shard, first) {
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

// kin returns the shards whose blocks may come right before one of a shard.
func kin(shard uint64, v verdict) []uint64 {
	var all []uint64
	if half := lowest(shard) >> 1; half > 0 {
		all = append(all, shard-half, shard+half)
	}
	if v == merge {
		return all
	}
	if shard != whole {
		all = append(all, parent(shard))
	}
	return append(all, shard)
}

// recheck asks the source again for what may be missing before an earlier block. What is found then is late.
func (l *Log[B]) recheck() {
	if len(l.later.blocks) == 0 || time.Now().Before(l.later.at) {
		return
	}
	u := l.later.blocks[0]
	ctx, cancel := context.WithTimeout(l.ctx, recheckPatience)
	defer cancel()
	var f found[B]
	var err error
	perr := guard(func() { f, err = u.find(ctx) })
	if err = errors.Join(err, perr); err != nil && !errors.Is(err, errStillMissing) {
		l.later.at = time.Now().Add(l.opts.MaxBackoff)
		return
	}
	if l.later.blocks = l.later.blocks[1:]; len(l.later.blocks) == 0 {
		l.later.blocks = nil
	}
	if err == nil && len(f.missing) == 0 {
		l.settle()
		return
	}
	l.mu.Lock()
	l.stats.Holes++
	l.mu.Unlock()
	if err == nil {
		l.repair(f, u.workchain, u.cursor)
		return
	}
	told := l.endConcerned(u.workchain, u.after, u.cursor)
	v := emptyView[B](l.view.Load().newest) // who resumes from before reads the source
	v.arrived = l.view.Load().arrived
	l.view.Store(&v)
	l.settle()
	l.mu.Unlock()
	l.callWakes()
	l.sayMissing(u.workchain, u.after, u.cursor, told, err)
}
