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
// not met lately. The last blocks of one workchain or shard cost a search for
// where they begin, two requests more where they are near the end, at most 40.
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
		b.marks.forget()
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
	if q.Before != "" {
		if before, err = b.place(ctx, q.Before); err != nil {
			return nil, err
		}
		end = before.end(q.Before)
	}
	if q.Last > 0 {
		page, err = b.last(ctx, subject, from, end, q.Last)
	} else {
		page, err = b.read(ctx, subject, from, end, q.First)
	}
	if err != nil {
		return nil, err
	}
	behind, known := after, q.After != "" && q.First > 0 // where the next block has to be
	for i := range page {
		if !q.Matches(page[i].block) || i > 0 && page[i].block.Cursor <= page[i-1].block.Cursor {
			return nil, errReplaced
		}
		if known && subject == b.names.all() && page[i].seq > behind.seq+1 {
			err := b.missing(ctx, behind)
			if q.After == "" && errors.Is(err, chaingql.ErrCursorTooOld) { // the oldest went while they were read
				return b.page(ctx, q)
			}
			return nil, failed("read blocks", err)
		}
		behind, known = page[i].place(), true
	}
	if q.Before != "" { // which may have been met in another stream
		if _, err := b.still(ctx, before); err != nil {
			return nil, err
		}
	}
	if q.After == "" || subject == b.names.all() && len(page) > 0 && page[0].follows(q.After) {
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
func (b *Backend) last(ctx context.Context, subject string, from, end uint64, n int) ([]stored, error) {
	newest, some, err := b.newest(ctx, subject)
	if err != nil || !some || newest.seq < from {
		return nil, err
	}
	if newest.seq < end {
		end = newest.seq + 1
		if n == 1 {
			return []stored{newest}, nil
		}
	}
	if end <= from {
		return nil, nil
	}
	if subject == b.names.all() {
		if uint64(n) < end-from {
			from = end - uint64(n)
		}
		return b.read(ctx, subject, from, end, n)
	}
	begin, err := b.stretch(ctx, subject, from, end, n)
	if err != nil {
		return nil, err
	}
	var page []stored
	for at := begin; at < end; {
		some, err := b.read(ctx, subject, at, end, n+spare)
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
	lower, err := b.last(ctx, subject, from, begin, n-len(page)) // blocks that came while it counted misled it
	return append(lower, page...), err
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
