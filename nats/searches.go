package natschain

import (
	"context"

	"github.com/chaingql/chaingql"
)

// searchLastQueued calls searchLast after it has waited in the search queue. Because only
// one search of clients runs at a time, clients that cause many searches wait for each
// other, and the NATS servers remain free for other requests.
func (b *Backend) searchLastQueued(
	ctx context.Context, q chaingql.BlocksQuery, after place, end uint64, n int,
) ([]stored, error) {
	endSearch, err := b.beginSearch(ctx)
	if err != nil {
		return nil, err
	}
	defer endSearch()
	return b.searchLast(ctx, q, after.seq+1, end, n)
}

// beginSearch waits in the search queue. Meanwhile the page leaves the page queue, so that waiting searches do not keep
// other pages from being read. A search for subscriptions does not wait, because a new block waits for it. Clients
// cannot cause such searches.
func (b *Backend) beginSearch(ctx context.Context) (end func(), err error) {
	if leave, ok := ctx.Value(leaveKey{}).(func()); ok {
		leave()
	}
	if chaingql.ForSubscriptions(ctx) {
		return func() {}, nil
	}
	return b.searches.release, b.searches.acquire(ctx)
}

// searchLast returns the last n blocks with sequence numbers in [from, end) that q selects.
// JetStream reads only forward, so searchLast counts the messages of the subject to find
// the position from which to read.
func (b *Backend) searchLast(
	ctx context.Context, q chaingql.BlocksQuery, from, end uint64, n int,
) ([]stored, error) {
	if end <= from {
		return nil, nil
	}
	begin, err := b.countBack(ctx, b.names.filter(q), from, end, n)
	if err != nil {
		return nil, err
	}
	var page []stored
	for at := begin; at < end; {
		blocks, err := b.shardBlocks(ctx, q, at, end, n+slack)
		if err != nil {
			return nil, err
		}
		if page = append(page, blocks...); len(blocks) < n+slack {
			break
		}
		page, at = page[len(page)-n:], page[len(page)-1].seq+1
	}
	if len(page) >= n || begin == from {
		return page[max(0, len(page)-n):], nil
	}
	lower, err := b.searchLast(ctx, q, from, begin, n-len(page)) // blocks arrived during the count, so it was too high
	return append(lower, page...), err
}

// countBack returns the sequence number from which to read the last n blocks of a subject
// before end. At least n and at most n+slack blocks follow from there on, unless further
// blocks arrive meanwhile.
func (b *Backend) countBack(ctx context.Context, subject string, from, end uint64, n int) (uint64, error) {
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
	for many > n+slack && few-enough > 1 {
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
