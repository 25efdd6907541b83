package tonlite

import (
	"context"
	"errors"
	"time"

	"github.com/chaingql/chaingql"
)

const (
	// maxCalls is the maximum number of calls of one kind that read or wait. A Handler makes no
	// more at a time by default (Limits.InFlight), and fewer for its subscriptions.
	maxCalls = 64

	// maxPages is the maximum number of pages that query servers at the same time. Each page
	// may need dozens of queries.
	maxPages = 16

	// maxSearches is the maximum number of pages that search the history at the same time. Each
	// of them may need thousands of queries. waitingSearches is the maximum number of searches
	// that wait.
	maxSearches, waitingSearches = 4, 4

	// maxCatchUps is the maximum number of pages for clients that resume that query servers at the
	// same time.
	maxCatchUps = 4

	// maxBatched is the maximum number of accounts that calls of Balances for more than fewBalances
	// accounts read at the same time. Those of all these calls take turns.
	maxBatched = 16

	// maxLongBatches is the maximum number of these calls that read at the same time if they have more than
	// someBalances accounts. If all took turns, all would end at the same time, which may be their deadline.
	maxLongBatches, someBalances = 3, 12

	// fewBalances is the number of balances that one call reads without waiting for other calls.
	fewBalances = 4

	// minSearchDistance is the number of masterchain blocks that any page may read before it
	// counts as a search.
	minSearchDistance = 8
)

var (
	errPages    = outage{errors.New("tonlite: too many concurrent pages: retry later")}
	errSearches = outage{errors.New("tonlite: too many concurrent searches for filtered pages: " +
		"use a closer cursor, or retry later")}
	errBatches = outage{errors.New("tonlite: too many concurrent calls for many balances: retry later")}
)

// A semaphore limits the number of callers that run and the number of callers that wait. If both
// limits are reached, acquire returns errFull.
type semaphore struct {
	running, admitted chan struct{}
	errFull           error
}

func newSemaphore(size, waiting int, full error) semaphore {
	return semaphore{make(chan struct{}, size), make(chan struct{}, size+waiting), full}
}

func (r semaphore) acquire(ctx context.Context) error {
	select {
	case r.admitted <- struct{}{}:
	default:
		return r.errFull
	}
	select {
	case r.running <- struct{}{}:
		return nil
	case <-ctx.Done():
		<-r.admitted
		return timedOut(ctx.Err())
	}
}

// acquireSoon is like acquire, but returns errFull when half of the time until the deadline of ctx has passed. A
// caller that runs later might not end in time, and meanwhile it would keep one of the Handler's calls from others.
func (r semaphore) acquireSoon(ctx context.Context) error {
	deadline, limited := ctx.Deadline()
	if !limited {
		return r.acquire(ctx)
	}
	soon, cancel := context.WithTimeout(ctx, time.Until(deadline)/2)
	defer cancel()
	err := r.acquire(soon)
	if err != nil && ctx.Err() == nil {
		err = r.errFull
	}
	return err
}

func (r semaphore) release() {
	<-r.running
	<-r.admitted
}

// A pageReader reads the steps of one page. A step consists of a masterchain block and the shard
// blocks that are new in it. As soon as a step is not cached, the pageReader acquires a slot of a
// semaphore: of the one for searches if the page is a search, and otherwise of the one for pages.
// A page is a search if it filters by shard, because most blocks belong to other shards. It also
// becomes a search when it has read as many masterchain blocks as it may return blocks, and at
// least minSearchDistance. A page without a filter is never a search.
//
// Pages of the newest blocks have their own semaphore and are as urgent as balances.
//
// Pages that a Handler reads for its subscriptions are never searches. Otherwise clients that take all slots could
// prevent the Handler from following. Those for clients that resume, which are a page after a cursor and several blocks
// before it, have a semaphore of their own, and are less urgent than balances, because strangers can cause them. The
// others are as urgent as balances and need no slot, because live blocks may wait for them.
type pageReader struct {
	*Backend
	searchAfter uint32 // number of masterchain blocks after which the page is a search
	use         use
	first       *semaphore // semaphore to use while the page is not a search, or nil
	held        *semaphore // semaphore from which the pageReader holds a slot, or nil
	isSearch    bool
}

func (b *Backend) newPageReader(ctx context.Context, q chaingql.BlocksQuery) *pageReader {
	n := max(q.First, q.Last)
	s := &pageReader{Backend: b, searchAfter: max(minSearchDistance, uint32(max(n, 0))), use: forPage, first: &b.pages}
	after := q == chaingql.BlocksQuery{After: q.After, First: n}
	before := q == chaingql.BlocksQuery{Before: q.Before, Last: n} && q.Before != ""
	switch {
	case chaingql.ForSubscriptions(ctx) && (after || before && n > 1):
		s.use, s.first = forCatchUp, &b.catchUps
	case chaingql.ForSubscriptions(ctx):
		s.use, s.first = forBalance, nil
	case q == (chaingql.BlocksQuery{Last: n}):
		s.use, s.first = forBalance, &b.newestPages
	}
	return s
}

// read returns the steps in r. passed is the number of masterchain blocks that the pageReader has
// read before.
func (s *pageReader) read(
	ctx context.Context, q chaingql.BlocksQuery, r masterRange, passed uint32,
) ([][]chaingql.Block, error) {
	if steps, ok := s.cachedSteps(r); ok {
		return steps, nil
	}
	s.isSearch = s.isSearch || s.use == forPage && (passed >= s.searchAfter || q.Shard != nil)
	to := s.first
	if s.isSearch {
		to = &s.searches
		ctx = withUse(ctx, forSearch)
	}
	if err := s.switchTo(ctx, to); err != nil {
		return nil, err
	}
	return s.readSteps(ctx, q, r)
}

// acquire waits for a slot, unless s already holds one or is nil. A page needs a slot even before
// it reads blocks, because finding the oldest block takes queries, too.
func (s *pageReader) acquire(ctx context.Context) error {
	if s == nil || s.held != nil {
		return nil
	}
	return s.switchTo(ctx, s.first)
}

func (s *pageReader) switchTo(ctx context.Context, to *semaphore) error {
	if s.held == to {
		return nil
	}
	s.release()
	if to == nil {
		return nil
	}
	if err := to.acquire(ctx); err != nil {
		return err
	}
	s.held = to
	return nil
}

func (s *pageReader) release() {
	if s.held != nil {
		s.held.release()
		s.held = nil
	}
}
