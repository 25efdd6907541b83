package tonlite

import (
	"context"
	"errors"

	"github.com/chaingql/chaingql"
)

const (
	// maxPages is how many pages may be read from servers at a time, each with some
	// dozens of queries, and waitingPages how many may wait. A Handler has 64 calls
	// under way by default (InFlight), of which some must be left to balances.
	maxPages, waitingPages = 16, 24

	// maxSearches is how many pages may search the history at a time, each with
	// thousands of queries.
	maxSearches, waitingSearches = 4, 4

	// nearby is through how many masterchain blocks a page is read without being a search.
	nearby = 8
)

var (
	errPages    = errors.New("tonlite: too many pages are read at a time: try again")
	errSearches = errors.New("tonlite: too many pages are searched for at a time: ask closer to a cursor, or try again")
)

// A room admits a few at a time. Some others may wait; more are refused.
type room struct {
	places, all chan struct{}
	full        error
}

func newRoom(size, waiting int, full error) room {
	return room{make(chan struct{}, size), make(chan struct{}, size+waiting), full}
}

func (r room) enter(ctx context.Context) error {
	select {
	case r.all <- struct{}{}:
	default:
		return r.full
	}
	select {
	case r.places <- struct{}{}:
		return nil
	case <-ctx.Done():
		<-r.all
		return ctx.Err()
	}
}

func (r room) leave() {
	<-r.places
	<-r.all
}

// A search reads the steps of one page. It needs no place in a room as long as all of
// them are known. It is a search in earnest, and moves to the room of those, if it has
// a filter by shard, which passes over most blocks, or has passed over as many
// masterchain blocks as the page has blocks. Without a filter it never is: each
// masterchain block is a block.
type search struct {
	*Backend
	need    uint32
	in      *room // that has a place for it, or nil
	earnest bool
}

func (b *Backend) search(blocks int) *search {
	return &search{Backend: b, need: max(nearby, uint32(blocks))}
}

// read reads a stretch, after others of so many masterchain blocks.
func (s *search) read(ctx context.Context, q chaingql.BlocksQuery, r stretch, passed uint32) ([][]chaingql.Block, error) {
	if steps, ok := s.known(r); ok {
		return steps, nil
	}
	s.earnest = s.earnest || passed >= s.need || q.Shard != nil
	to := &s.pages
	if s.earnest {
		to = &s.searches
		ctx = with(ctx, forSearch)
	}
	if s.in != to {
		s.end()
		if err := to.enter(ctx); err != nil {
			return nil, err
		}
		s.in = to
	}
	return s.steady(ctx, q, r)
}

func (s *search) end() {
	if s.in != nil {
		s.in.leave()
		s.in = nil
	}
}
