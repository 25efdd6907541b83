package tonlite

import (
	"context"
	"errors"

	"github.com/chaingql/chaingql"
)

const (
	// maxPages is the maximum number of pages that query servers at the same time, each with
	// dozens of queries. waitingPages is the number that may wait. A Handler has 64 calls in
	// flight by default (InFlight), and some must remain for balances.
	maxPages, waitingPages = 16, 24

	// Pages of the newest blocks are read one after the other: the first one caches the blocks
	// for the others. All calls of a Handler may wait.
	waitingNewest = 64

	// maxSearches is the maximum number of pages that search the history at the same time,
	// each with thousands of queries.
	maxSearches, waitingSearches = 4, 4

	// minSearchDistance is the number of masterchain blocks that any page may read before it
	// becomes a search.
	minSearchDistance = 8
)

var (
	errPages    = errors.New("tonlite: too many concurrent pages: retry later")
	errSearches = errors.New("tonlite: too many concurrent searches for pages: use a closer cursor, or retry later")
)

// A semaphore limits concurrent and waiting callers. Beyond both limits acquire returns
// errFull.
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
		return ctx.Err()
	}
}

func (r semaphore) release() {
	<-r.running
	<-r.admitted
}

// A pageReader reads the steps of one page. It acquires a slot as soon as a step is not
// cached: of the pages' semaphore or, if the page is a search, of that of searches. A page is
// a search if it filters by shard, which skips most blocks, or if it has skipped as many
// masterchain blocks as it has blocks. A page without a filter never is.
//
// Pages of the newest blocks have their own semaphore and the urgency of balances: a Handler
// requests them at its start, before it can follow. Otherwise clients that take all slots of
// the pages would prevent its stream from starting.
type pageReader struct {
	*Backend
	searchAfter uint32 // number of masterchain blocks after which the page is a search
	use         use
	first       *semaphore // semaphore of a page that is not a search
	held        *semaphore // semaphore of which s holds a slot, or nil
	isSearch    bool
}

func (b *Backend) newPageReader(q chaingql.BlocksQuery) *pageReader {
	n := max(q.First, q.Last)
	s := &pageReader{Backend: b, searchAfter: max(minSearchDistance, uint32(max(n, 0))), use: forPage, first: &b.pages}
	if q == (chaingql.BlocksQuery{Last: n}) {
		s.use, s.first = forBalance, &b.newestPages
	}
	return s
}

// read returns the steps of a range. passed is the number of masterchain blocks that were read
// before.
func (s *pageReader) read(
	ctx context.Context, q chaingql.BlocksQuery, r masterRange, passed uint32,
) ([][]chaingql.Block, error) {
	if steps, ok := s.cachedSteps(r); ok {
		return steps, nil
	}
	s.isSearch = s.isSearch || passed >= s.searchAfter && s.use == forPage || q.Shard != nil
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

// acquire waits for a slot, unless s has one. The queries of a page before it reads blocks need
// a slot, too: finding the beginning of the history takes two.
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
