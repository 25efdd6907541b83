package chaingql

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"
)

// checkCursors returns an error if clients could not send a block's cursor back as
// they received it: JSON, event ids and headers change other characters.
func checkCursors(blocks ...Block) error {
	for i := range blocks {
		if !printable(blocks[i].Cursor) {
			return fmt.Errorf("chaingql: Backend returned cursor %.80q: it must be printable ASCII without spaces", blocks[i].Cursor)
		}
	}
	return nil
}

func printable(c Cursor) bool {
	for i := range len(c) {
		if c[i] <= ' ' || c[i] > '~' {
			return false
		}
	}
	return true
}

// checked is a Follow that fails at a cursor that is not printable.
func checked(follow iter.Seq2[Block, error]) iter.Seq2[Block, error] {
	return func(yield func(Block, error) bool) {
		for b, err := range follow {
			if err == nil {
				err = checkCursors(b)
			}
			if !yield(b, err) || err != nil {
				return
			}
		}
	}
}

// masterchain is the workchain that orders the blocks of all others.
const masterchain = -1

// ChainOrder returns the network's own cursor for a block, its chain_order.
// masterSeqNo is the seq_no of the masterchain block that first refers to the
// block; for a masterchain block it is not looked at.
func ChainOrder(workchain int32, shard uint64, seqNo, masterSeqNo uint32) Cursor {
	dst := make([]byte, 0, 48)
	if workchain == masterchain {
		dst = appendOrdered(dst, uint64(seqNo))
		return Cursor(append(dst, 'm'))
	}
	dst = appendOrdered(dst, uint64(masterSeqNo))
	if workchain < 0 {
		dst = append(dst, '-')
		dst = appendOrdered(dst, uint64(-int64(workchain)))
	} else {
		dst = appendOrdered(dst, uint64(workchain))
	}
	dst = appendOrdered(dst, uint64(seqNo))
	dst = appendOrdered(dst, bits.Reverse64(shard))
	return Cursor(dst)
}

// SeqCursor returns a cursor for sources that number their blocks by
// themselves: cursors compare as their numbers do.
func SeqCursor(n uint64) Cursor {
	return Cursor(appendOrdered(make([]byte, 0, 17), n))
}

// appendOrdered writes n so that strings compare as numbers do: in hex, behind
// one digit that tells how long it is.
func appendOrdered(dst []byte, n uint64) []byte {
	digits := (bits.Len64(n|1) + 3) / 4
	dst = strconv.AppendUint(dst, uint64(digits-1), 16)
	return strconv.AppendUint(dst, n, 16)
}

// PageOf answers a Backend's Blocks out of a slice that holds all blocks,
// ascending by cursor. The page is the caller's own. It is empty where q asks
// for none. A filter by workchain or shard costs a scan of the blocks, so that a
// source of more than some ten thousand should keep an index of them.
func PageOf(sorted []Block, q BlocksQuery) []Block {
	sorted = between(sorted, q.After, q.Before)
	var page []Block
	if q.Last > 0 {
		for i := len(sorted) - 1; i >= 0 && len(page) < q.Last; i-- {
			if q.Matches(sorted[i]) {
				page = append(page, sorted[i])
			}
		}
		slices.Reverse(page)
		return page
	}
	for i := 0; i < len(sorted) && len(page) < q.First; i++ {
		if q.Matches(sorted[i]) {
			page = append(page, sorted[i])
		}
	}
	return page
}

// between is the stretch of sorted blocks past one cursor and short of another,
// where they are given.
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

// place finds where a cursor is, or would be.
func place(sorted []Block, c Cursor) (int, bool) {
	return slices.BinarySearchFunc(sorted, c, func(b Block, c Cursor) int {
		return strings.Compare(string(b.Cursor), string(c))
	})
}

// DefaultPoll is how often Poll looks for new blocks where it is not told.
const DefaultPoll = time.Second

// Poll makes a Backend's Follow out of its Blocks: it reads page after page
// behind the cursor and, once there is no more, looks again every so often
// ([DefaultPoll] where every is not positive). It ends as Follow must, with one
// error: what Blocks returned, or the context's.
//
// A page after "" begins with the oldest block that is kept, but Follow must end
// with [ErrCursorTooOld] if older ones were pruned. A Backend that prunes therefore
// replaces "" with a cursor that Blocks accepts and that is before every block: "0"
// if [ChainOrder] or [SeqCursor] makes its cursors.
//
//	return chaingql.Poll(ctx, b.Blocks, cmp.Or(after, "0"), every)
func Poll(ctx context.Context, blocks func(context.Context, BlocksQuery) ([]Block, error), after Cursor, every time.Duration) iter.Seq2[Block, error] {
	if every <= 0 {
		every = DefaultPoll
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

var errChannelClosed = errors.New("chaingql: block channel closed")

// FromChannel makes a Backend's Follow out of a channel of blocks, which must
// already start at the right place. Closing the channel ends the Follow; the
// error is then what cause returns, which is called after the close and may be
// nil, or return nil, where there is nothing more to say.
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
