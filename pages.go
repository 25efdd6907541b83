package chaingql

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"time"
)

// PageOf returns the page that q requests. sorted contains all stored blocks in ascending order of their cursors. A
// Backend that keeps its blocks in such a slice can use PageOf to implement Blocks. The caller owns the page. The page
// is empty if neither q.First nor q.Last is positive.
//
// PageOf finds the cursors by binary search and allocates only the page. If q selects a workchain or a shard, PageOf
// scans the slice from there until the page is full, so the page of a rare workchain costs a scan of the whole slice. A
// Backend with more than about ten thousand blocks should use an index instead.
func PageOf(sorted []Block, q BlocksQuery) []Block {
	sorted = between(sorted, q.After, q.Before)
	most := min(max(q.First, q.Last), len(sorted))
	if most <= 0 {
		return nil
	}
	if q.Workchain == nil && q.Shard == nil {
		if q.Last > 0 {
			sorted = sorted[len(sorted)-most:]
		}
		return append(make([]Block, 0, most), sorted[:most]...)
	}
	var page []Block
	for scanned := 0; scanned < len(sorted) && len(page) < most; scanned++ {
		i := scanned
		if q.Last > 0 {
			i = len(sorted) - 1 - scanned
		}
		if !q.selects(&sorted[i]) {
			continue
		}
		if page == nil {
			page = make([]Block, 0, min(most, len(sorted)-scanned))
		}
		page = append(page, sorted[i])
	}
	if q.Last > 0 {
		slices.Reverse(page)
	}
	return page
}

// selects reports whether b is in the workchain and the shard of q.
func (q *BlocksQuery) selects(b *Block) bool {
	return (q.Workchain == nil || *q.Workchain == b.Workchain) && (q.Shard == nil || *q.Shard == b.Shard)
}

// between returns the blocks after one cursor and before another; "" means no bound.
func between(sorted []Block, after, before Cursor) []Block {
	if after != "" {
		i, found := place(sorted, after)
		if found {
			i++
		}
		sorted = sorted[i:]
	}
	if before != "" {
		i, _ := place(sorted, before)
		sorted = sorted[:i]
	}
	return sorted
}

// place returns the index of the block with cursor c, or of the first block after it.
func place(sorted []Block, c Cursor) (int, bool) {
	return slices.BinarySearchFunc(sorted, c, func(b Block, c Cursor) int {
		return strings.Compare(string(b.Cursor), string(c))
	})
}

// defaultPoll is the default interval of [Poll].
const defaultPoll = time.Second

// Poll implements a Backend's Follow with the Backend's Blocks. The sequence reads page after page, starting after the
// cursor after. When there are no more blocks, it waits for the interval every before it tries again. If every is not
// positive, the interval is one second. Like that of Follow, the sequence ends with one error: that of Blocks or that
// of ctx.
//
// For the cursor "", Blocks returns a page that starts with the oldest stored block, but Follow must end with
// [ErrCursorTooOld] if older blocks were pruned. A Backend that prunes must therefore replace "" with a cursor that
// Blocks accepts and that is before every block. For cursors from [ChainOrder] or [SeqCursor], "0" is such a cursor:
//
//	return chaingql.Poll(ctx, b.Blocks, cmp.Or(after, "0"), every)
//
// Poll does not know epochs. An [Epocher] must pass a function that returns [ErrChainReplaced] if Epoch no longer
// returns what it returned before the call of Follow.
func Poll(
	ctx context.Context, blocks func(context.Context, BlocksQuery) ([]Block, error), after Cursor, every time.Duration,
) iter.Seq2[Block, error] {
	if every <= 0 {
		every = defaultPoll
	}
	return func(yield func(Block, error) bool) {
		for after := after; ; {
			page, err := blocks(ctx, BlocksQuery{After: after, First: MaxPage})
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				yield(Block{}, err)
				return
			}
			for _, b := range page {
				if !yield(b, nil) {
					return
				}
				after = b.Cursor
			}
			if len(page) == MaxPage {
				continue
			}
			select {
			case <-ctx.Done():
				yield(Block{}, ctx.Err())
				return
			case <-time.After(every):
			}
		}
	}
}

var errChannelClosed = errors.New("chaingql: the channel passed to FromChannel was closed")

// FromChannel implements a Backend's Follow with a channel. The first block in the channel must be the first one after
// the cursor that was passed to Follow; FromChannel does not check this.
//
// When ctx is done, the sequence ends with the error of ctx. When the channel is closed, FromChannel calls cause, and
// the sequence ends with the error that cause returns. If cause is nil or returns nil, the error says that the channel
// was closed.
func FromChannel(ctx context.Context, blocks <-chan Block, cause func() error) iter.Seq2[Block, error] {
	return func(yield func(Block, error) bool) {
		for {
			select {
			case <-ctx.Done():
				yield(Block{}, ctx.Err())
				return
			case b, ok := <-blocks:
				if ok {
					if !yield(b, nil) {
						return
					}
					continue
				}
				err := errChannelClosed
				if cause != nil {
					if reason := cause(); reason != nil {
						err = reason
					}
				}
				yield(Block{}, err)
				return
			}
		}
	}
}
