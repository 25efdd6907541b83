package natschain

import (
	"context"
	"errors"

	"github.com/chaingql/chaingql"
)

// Blocks returns one page of the blocks, as [chaingql.Backend] describes it.
// Where blocks were pruned, After "" is before the oldest one kept.
//
// A page costs one to four requests, whatever the length of the chain, and one
// for each bit of the number of its blocks (20 for a million) per cursor that was
// not met lately. Blocks of a workchain or shard that has few of them cost up to
// seven requests more for each level of the index: four levels for a million.
// In a chain without an index the server searches for them, in at most 40
// requests whose cost grows with the chain; one search runs at a time, 16 wait, and
// more are errors.
func (b *Backend) Blocks(ctx context.Context, q chaingql.BlocksQuery) ([]chaingql.Block, error) {
	if checkCursor(q.After) != nil || checkCursor(q.Before) != nil {
		return nil, chaingql.ErrBadCursor
	}
	if max(q.First, q.Last) <= 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, b.opts.Timeout)
	defer cancel()
	page, err := b.page(ctx, q)
	if errors.Is(err, errReplaced) { // what was known of it is not true of the new one
		b.replaced()
		page, err = b.page(ctx, q)
	}
	if err != nil {
		return nil, err
	}
	b.marks.note(page...)
	blocks := make([]chaingql.Block, len(page))
	for i := range page {
		blocks[i] = page[i].block
	}
	return blocks, nil
}

func (b *Backend) page(ctx context.Context, q chaingql.BlocksQuery) (page []stored, err error) {
	var after, before place
	if q.After != "" {
		if after, err = b.place(ctx, q.After); err != nil {
			return nil, err
		}
		if after.gone {
			return nil, chaingql.ErrCursorTooOld
		}
		if after.past { // blocks may have come meanwhile that are not
			return nil, nil
		}
	}
	subject, from, end := b.names.filter(q), after.seq+1, uint64(noEnd)
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
	if q.After == "" && errors.Is(err, chaingql.ErrCursorTooOld) { // the oldest went while they were read
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
	if q.Before != "" { // which may have been met in another stream
		if _, err := b.still(ctx, before); err != nil {
			return nil, err
		}
	}
	if q.After == "" || all && len(page) > 0 && page[0].follows(q.After) {
		return page, nil
	}
	return page, b.since(ctx, after)
}

// spare is how many blocks more than asked for may be read to find the last
// ones of a subject.
const spare = chaingql.MaxPage

// last returns the last n blocks of a subject from one place in the stream to
// short of another. A stream is read forwards alone: where to begin is found by
// counting, and what is read from there on is what counts.
func (b *Backend) last(ctx context.Context, q chaingql.BlocksQuery, after place, end uint64, n int) ([]stored, error) {
	subject, from := b.names.filter(q), after.seq+1
	if subject == b.names.all() {
		newest, some, _, err := b.tail(ctx)
		switch {
		case err != nil || !some || newest.seq < from:
			return nil, err
		case n == 1 && newest.seq < end:
			return []stored{newest}, nil
		}
		return b.lastOfAll(ctx, after, min(end, newest.seq+1), n)
	}
	newest, some, err := b.newest(ctx, subject)
	if err != nil || !some || newest.seq < from {
		return nil, err
	}
	if newest.seq < end {
		is, err := b.linked(ctx, newest)
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
	if n <= fewest {
		scanned, err := b.lastOfAll(ctx, after, end, scan(n))
		page := matching(scanned, q)
		if err != nil || len(page) >= n || len(scanned) < scan(n) {
			return page[max(0, len(page)-n):], err
		}
		lower, left, err := b.lookUp(ctx, q, stretch{from, scanned[0].seq}, n-len(page))
		if page = append(lower, page...); err != nil || left.from >= left.end {
			return page, err
		}
		if more := promising(len(scanned), len(page), n); left.end == scanned[0].seq && more > 0 {
			if scanned, err = b.lastOfAll(ctx, after, end, more); err != nil {
				return nil, err
			}
			if page = matching(scanned, q); len(page) >= n || len(scanned) < more {
				return page[max(0, len(page)-n):], nil
			}
			left.end = scanned[0].seq
		}
		lower, err = b.lastSparse(ctx, subject, after, left.end, n-len(page))
		return append(lower, page...), err
	}
	return b.lastSparse(ctx, subject, after, end, n)
}

// first returns the first blocks of a workchain or shard.
func (b *Backend) first(ctx context.Context, q chaingql.BlocksQuery, after place, end uint64) ([]stored, error) {
	subject, from := b.names.filter(q), after.seq+1
	if q.First > fewest {
		return b.some(ctx, subject, from, end, q.First)
	}
	at := &after
	if after.cursor == "" {
		at = nil
	}
	scanned, err := b.chain(ctx, at, from, end, scan(q.First))
	page := matching(scanned, q)
	if err != nil || len(page) >= q.First || len(scanned) < scan(q.First) {
		return page[:min(len(page), q.First)], err
	}
	newest, some, err := b.newest(ctx, subject)
	if err != nil || !some {
		return page, err
	}
	left := stretch{scanned[len(scanned)-1].seq + 1, min(end, newest.seq+1)}
	higher, left, err := b.lookUp(ctx, q, left, q.First-len(page))
	if page = append(page, higher...); err != nil || left.from >= left.end {
		return page, err
	}
	if more := promising(len(scanned), len(page), q.First); left.from == scanned[len(scanned)-1].seq+1 && more > 0 {
		if scanned, err = b.chain(ctx, at, from, end, more); err != nil {
			return nil, err
		}
		if page = matching(scanned, q); len(page) >= q.First || len(scanned) < more {
			return page[:min(len(page), q.First)], nil
		}
		left.from = scanned[len(scanned)-1].seq + 1
	}
	if err := b.sparse.take(ctx); err != nil {
		return nil, err
	}
	defer b.sparse.release()
	higher, err = b.some(ctx, subject, left.from, end, q.First-len(page))
	return append(page, higher...), err
}

// fewest is how many blocks of a workchain or shard are looked for among others
// first, and then in the index. A server that reads by subject counts what matches
// in the rest of the stream, which takes it much longer.
const fewest = 200

// scan is how many others that are: enough to see which messages are blocks.
func scan(n int) int { return max(2*n, min(4*n, window)) }

// promising is how many blocks of a chain without an index are enough if they
// match as often as those that were scanned, 0 if these are too many.
func promising(scanned, matched, n int) int {
	if more := scanned * n / max(matched, 1) * 5 / 4; more <= spare {
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

// lastSparse is last for a subject that is seldom, or a long page. One search
// runs at a time, so that those who ask for many of them wait for each other, and
// the servers keep their time for everybody else.
func (b *Backend) lastSparse(ctx context.Context, subject string, after place, end uint64, n int) ([]stored, error) {
	if err := b.sparse.take(ctx); err != nil {
		return nil, err
	}
	defer b.sparse.release()
	return b.searchLast(ctx, subject, after.seq+1, end, n)
}

func (b *Backend) searchLast(ctx context.Context, subject string, from, end uint64, n int) ([]stored, error) {
	if end <= from {
		return nil, nil
	}
	begin, err := b.stretch(ctx, subject, from, end, n)
	if err != nil {
		return nil, err
	}
	var page []stored
	for at := begin; at < end; {
		some, err := b.some(ctx, subject, at, end, n+spare)
		if err != nil {
			return nil, err
		}
		if page = append(page, some...); len(some) < n+spare {
			break
		}
		page, at = page[len(page)-n:], page[len(page)-1].seq+1
	}
	if len(page) >= n || begin == from {
		return page[max(0, len(page)-n):], nil
	}
	lower, err := b.searchLast(ctx, subject, from, begin, n-len(page)) // blocks that came while it counted misled it
	return append(lower, page...), err
}

// lastOfAll reads as many messages as blocks are asked for, one before them that
// the first names, and more if some are no blocks.
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
		if len(page) > n || begin == from { // the first is sure only where the chain begins
			break
		}
	}
	return page[max(0, len(page)-n):], nil
}

// stretch finds where to begin to read for the last n blocks of a subject: so
// that there are enough, and not many more.
func (b *Backend) stretch(ctx context.Context, subject string, from, end uint64, n int) (uint64, error) {
	past, err := b.count(ctx, subject, end)
	if err != nil {
		return 0, err
	}
	count := func(at uint64) (int, error) {
		all, err := b.count(ctx, subject, at)
		return all - past, err
	}
	few, enough, many := end, end, 0
	for span := 4 * uint64(n); enough > from && many < n; span *= 8 {
		few = enough
		if enough = from; span < end-from {
			enough = end - span
		}
		if many, err = count(enough); err != nil {
			return 0, err
		}
	}
	for many > n+spare && few-enough > 1 {
		mid := enough + (few-enough)/2
		there, err := count(mid)
		if err != nil {
			return 0, err
		}
		if there >= n {
			enough, many = mid, there
		} else {
			few = mid
		}
	}
	return enough, nil
}
