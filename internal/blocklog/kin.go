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
// log does not know yet, and one of two shards that have merged. What such a block continues is of its own shard, of
// that before a split, or of those before a merge; each is read from its end, in one small call.
func (l *Log[B]) missingKin(
	ctx context.Context, b B, cursor string, at Place, v verdict, known lines, begun string,
) (f found[B], err error) {
	f = found[B]{after: begun, mended: known.clone()}
	var all []entry[B]
	for _, shard := range kin(shardOf(at), v) {
		blocks, err := l.src.Before(ctx, b, &shard, kinBlocks)
		if err != nil {
			return f, fmt.Errorf("before: %w", err)
		}
		entries, err := l.ascending(blocks, "")
		if err != nil {
			return f, fmt.Errorf("before: %w", err)
		}
		after := known.reached(Place{Workchain: at.Workchain, Shard: shard}, begun)
		late := slices.IndexFunc(entries, func(e entry[B]) bool { return e.cursor > after })
		if late == 0 && len(entries) == kinBlocks {
			return f, errStillMissing
		}
		if late >= 0 {
			all = append(all, entries[late:]...)
		}
	}
	slices.SortFunc(all, func(a, b entry[B]) int { return cmp.Compare(a.cursor, b.cursor) })
	for _, e := range all {
		p := l.src.Place(e.block)
		if e.cursor >= cursor || p.Workchain != at.Workchain {
			return f, fmt.Errorf("before: block %q of workchain %d was not asked for", e.cursor, p.Workchain)
		}
		if err := f.add(p, e); err != nil {
			return f, err
		}
	}
	if f.mended.judge(at) == hole {
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
		return
	}
	l.mu.Lock()
	l.stats.Holes++
	l.mu.Unlock()
	if err == nil {
		l.repair(f, u.workchain, u.cursor)
		return
	}
	told := l.endConcerned(u.workchain, u.after)
	l.noteLasting(u.cursor)
	v := emptyView[B](l.view.Load().newest) // who resumes from before reads the source
	v.arrived = l.view.Load().arrived
	l.view.Store(&v)
	l.mu.Unlock()
	l.callWakes()
	l.sayMissing(u.workchain, u.after, u.cursor, told, err)
}
