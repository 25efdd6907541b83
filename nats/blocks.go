package natschain

import (
	"cmp"
	"context"
	"errors"

	"github.com/chaingql/chaingql"
)

// Blocks returns one page of blocks, as [chaingql.Backend] requires. If blocks were
// pruned, a page with After "" begins with the oldest remaining block.
//
// A page needs two to five requests to NATS, no matter how long the chain is. Each
// cursor that was not used recently adds about one request per bit of the number of
// blocks: 20 requests for a million blocks. A page of a workchain or shard with few
// blocks needs up to seven more requests per level of the block index, which has four
// levels for a million blocks.
//
// If the chain has no index, the server searches for such blocks. A search needs at
// most 40 requests, whose cost grows with the chain. Only one search runs at a time.
// At most 16 more searches wait, and further ones fail. While a search runs, at most 34
// slow pages are read at the same time, and further ones fail. A page is slow if it has a
// cursor that was not used recently, or if it has a filter but no cursor. Pages that fail
// for one of these reasons return an error that wraps [chaingql.ErrUnavailable].
//
// Pages are read in the order of the calls, at most 2 MiB at the same time. A page of several
// blocks that has waited for three quarters of its time fails with such an error, too.
//
// Pages for subscriptions ([chaingql.ForSubscriptions]) have an order of their own. They do
// not count as slow pages, and their searches do not wait.
func (b *Backend) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	if checkCursor(q.After) != nil || checkCursor(q.Before) != nil {
		return nil, chaingql.ErrBadCursor
	}
	if max(q.First, q.Last) <= 0 {
		return nil, nil
	}
	if !chaingql.ForSubscriptions(ctx) && b.isSlow(q) {
		leave, err := b.admitSlow()
		if err != nil {
			return nil, err
		}
		defer leave()
	}
	ctx, cancel := context.WithTimeout(ctx, b.opts.Timeout)
	defer cancel()
	ctx, leave, err := b.pages.enter(ctx, &q)
	if err != nil {
		return nil, err
	}
	defer leave()
	page, err := b.pageOf(ctx, b.epoch.Load(), q)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, failed("read blocks", err)
	}
	if err != nil {
		return nil, err
	}
	b.places.add(page...)
	blocks := make([]chaingql.Block, len(page))
	for i := range page {
		blocks[i] = page[i].block
	}
	return blocks, nil
}

// pageOf returns a page of the stream with the given epoch.
func (b *Backend) pageOf(ctx context.Context, epoch *string, q chaingql.BlocksQuery) (page []stored, err error) {
	err = b.verified(ctx, func() error {
		page, err = b.page(ctx, q)
		return err
	})
	if errors.Is(err, errReplaced) { // the caches describe messages that the stream has lost, or another stream
		b.reset()
		if err = b.checkEpoch(ctx, epoch); err == nil {
			page, err = b.page(ctx, q)
		}
	}
	if err != nil && !errors.Is(err, chaingql.ErrCursorTooOld) { // such a cursor may be of another stream
		return nil, err
	}
	whole, changed := b.rangeOfStream(ctx, epoch)
	if changed != nil || err != nil {
		return nil, cmp.Or(changed, err)
	}
	filtered := b.names.filter(q) != b.names.all()
	if q.After == "" && filtered && len(page) > 0 && page[0].seq < whole.from {
		return b.pageOf(ctx, epoch, q) // blocks after page[0] may have been pruned before they were read
	}
	return page, nil
}

func (b *Backend) page(ctx context.Context, q chaingql.BlocksQuery) (page []stored, err error) {
	var after, before place
	if q.After != "" {
		if after, err = b.place(ctx, q.After); err != nil {
			return nil, err
		}
		if after.tooOld {
			return nil, chaingql.ErrCursorTooOld
		}
		if after.beyondEnd { // blocks that arrived since then may still be before the cursor
			return nil, nil
		}
	}
	subject, from, end := b.names.filter(q), after.seq+1, uint64(maxSeq)
	all := subject == b.names.all()
	if q.Before != "" {
		if before, err = b.place(ctx, q.Before); err != nil {
			return nil, err
		}
		end = before.end(q.Before)
	}
	switch {
	case q.Last > 0:
		page, err = b.last(ctx, q, after, end, q.Last)
	case !all:
		page, err = b.first(ctx, q, after, end)
	case q.After != "":
		page, err = b.chain(ctx, &after, from, end, q.First)
	default:
		page, err = b.chain(ctx, nil, from, end, q.First)
	}
	if q.After == "" && errors.Is(err, chaingql.ErrCursorTooOld) { // the oldest blocks were removed during the read
		return b.page(ctx, q)
	}
	if err != nil {
		return nil, err
	}
	for i := range page {
		if !q.Matches(page[i].block) || i > 0 && page[i].block.Cursor <= page[i-1].block.Cursor {
			return nil, errReplaced
		}
	}
	if q.Before != "" { // the cached place may belong to a stream that was replaced
		if _, err := b.present(ctx, before); err != nil {
			return nil, err
		}
	}
	if q.After == "" || all && len(page) > 0 && page[0].follows(q.After) {
		return page, nil
	}
	return page, b.checkNotPruned(ctx, after)
}

// slack is the maximum number of blocks that are read in addition to a page to find the
// last blocks of a subject.
const slack = chaingql.MaxPage

// last returns the last n blocks between after and end that q selects. If q has a
// filter, last first scans blocks of all shards, then uses the index, and then searches
// by subject. The later steps are needed only for blocks that the earlier ones miss.
func (b *Backend) last(ctx context.Context, q chaingql.BlocksQuery, after place, end uint64, n int) ([]stored, error) {
	subject, from := b.names.filter(q), after.seq+1
	if subject == b.names.all() {
		newest, found, _, err := b.tail(ctx)
		switch {
		case err != nil || !found || newest.seq < from:
			return nil, err
		case n == 1 && newest.seq < end:
			return []stored{newest}, nil
		}
		return b.lastOfAll(ctx, after, min(end, newest.seq+1), n)
	}
	newest, found, err := b.newest(ctx, subject)
	if err != nil || !found || newest.seq < from {
		return nil, err
	}
	if newest.seq < end {
		is, err := b.isLinked(ctx, newest)
		switch {
		case err != nil:
			return nil, err
		case !is:
			end = newest.seq
		case n == 1:
			return []stored{newest}, nil
		default:
			end = newest.seq + 1
		}
	}
	if end <= from {
		return nil, nil
	}
	if n <= maxScannedPage {
		scanned, err := b.lastOfAll(ctx, after, end, scanLength(n))
		page := matching(scanned, q)
		if err != nil || len(page) >= n || len(scanned) < scanLength(n) {
			return page[max(0, len(page)-n):], err
		}
		lower, left, err := b.lookUp(ctx, q, seqRange{from, scanned[0].seq}, n-len(page))
		if page = append(lower, page...); err != nil || left.from >= left.end {
			return page, err
		}
		if more := secondScan(len(scanned), len(page), n); left.end == scanned[0].seq && more > 0 {
			if scanned, err = b.lastOfAll(ctx, after, end, more); err != nil {
				return nil, err
			}
			if page = matching(scanned, q); len(page) >= n || len(scanned) < more {
				return page[max(0, len(page)-n):], nil
			}
			left.end = scanned[0].seq
		}
		lower, err = b.searchLastQueued(ctx, q, after, left.end, n-len(page))
		return append(lower, page...), err
	}
	return b.searchLastQueued(ctx, q, after, end, n)
}

// first returns the first q.First blocks between after and end that q selects. The query
// must have a filter. For the order of the steps, see last.
func (b *Backend) first(ctx context.Context, q chaingql.BlocksQuery, after place, end uint64) ([]stored, error) {
	subject, from := b.names.filter(q), after.seq+1
	if q.First > maxScannedPage {
		return b.shardBlocks(ctx, q, from, end, q.First)
	}
	at := &after
	if after.cursor == "" {
		at = nil
	}
	scanned, err := b.chain(ctx, at, from, end, scanLength(q.First))
	page := matching(scanned, q)
	if err != nil || len(page) >= q.First || len(scanned) < scanLength(q.First) {
		return page[:min(len(page), q.First)], err
	}
	newest, found, err := b.newest(ctx, subject)
	if err != nil || !found {
		return page, err
	}
	left := seqRange{scanned[len(scanned)-1].seq + 1, min(end, newest.seq+1)}
	higher, left, err := b.lookUp(ctx, q, left, q.First-len(page))
	if page = append(page, higher...); err != nil || left.from >= left.end {
		return page, err
	}
	if more := secondScan(len(scanned), len(page), q.First); left.from == scanned[len(scanned)-1].seq+1 && more > 0 {
		if scanned, err = b.chain(ctx, at, from, end, more); err != nil {
			return nil, err
		}
		if page = matching(scanned, q); len(page) >= q.First || len(scanned) < more {
			return page[:min(len(page), q.First)], nil
		}
		left.from = scanned[len(scanned)-1].seq + 1
	}
	endSearch, err := b.beginSearch(ctx)
	if err != nil {
		return nil, err
	}
	defer endSearch()
	higher, err = b.shardBlocks(ctx, q, left.from, end, q.First-len(page))
	return append(page, higher...), err
}

// maxScannedPage is the maximum size of a page of a workchain or shard for which blocks of
// all shards are scanned and the index is used. Larger pages are read by subject, which is
// much slower, because the server counts all matching messages in the rest of the stream.
const maxScannedPage = 200

// scanLength returns how many blocks are scanned for a page of n blocks. The number is
// large enough to recognize which messages are blocks.
func scanLength(n int) int { return max(2*n, min(4*n, window)) }

// secondScan returns how many blocks to scan for a page of n blocks in a chain without an
// index. It expects the same proportion of matching blocks as in the first scan. If more
// than slack blocks would be needed, it returns 0.
func secondScan(scanned, matched, n int) int {
	if more := scanned * n / max(matched, 1) * 5 / 4; more <= slack {
		return more
	}
	return 0
}

func matching(blocks []stored, q chaingql.BlocksQuery) (page []stored) {
	for _, s := range blocks {
		if q.Matches(s.block) {
			page = append(page, s)
		}
	}
	return page
}

// lastOfAll returns the last n blocks of all shards between after and end. It reads n+1
// messages, because the predecessor confirms that the first block of the page is a block.
// If some messages are not blocks, it reads more.
func (b *Backend) lastOfAll(ctx context.Context, after place, end uint64, n int) (page []stored, err error) {
	for span, from := uint64(n)+1, after.seq+1; end > from; span *= 2 {
		begin, at := from, &after
		if span < end-from {
			begin, at = end-span, nil
		} else if after.cursor == "" {
			at = nil
		}
		if page, err = b.chain(ctx, at, begin, end, int(end-begin)); err != nil {
			return nil, err
		}
		if len(page) > n || begin == from { // the first block is certain only at the beginning of the chain
			break
		}
	}
	return page[max(0, len(page)-n):], nil
}
